-- The next $5 deliveries of each state of $2 that a recovery of webhook $1 looks at, with ids after $3 and before $4, and
-- whether the last attempt's outcome is of $6 and the event's type of $7 (empty: any).
SELECT found.id, ($6 = '{}' OR coalesce((
    SELECT a.outcome FROM attempts AS a WHERE a.delivery_id = found.id AND a.delivery_id > $3 AND a.delivery_id < $4
    ORDER BY a.attempt DESC LIMIT 1
) = ANY ($6), false)) AND ($7 = '{}' OR coalesce((
    SELECT d.event_type FROM deliveries AS d WHERE d.id = found.id AND d.id > $3 AND d.id < $4
) = ANY ($7), false)) AS is_wanted
FROM unnest($2) AS wanted(state)
CROSS JOIN LATERAL (
    SELECT u.delivery_id AS id FROM unsuccessful_deliveries AS u
    WHERE u.webhook_id = ANY (ARRAY[$1]) AND u.state = wanted.state AND u.delivery_id > $3
    ORDER BY u.webhook_id, u.delivery_id LIMIT $5
) AS found
WHERE found.id < $4
