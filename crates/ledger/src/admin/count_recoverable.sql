-- How many deliveries a recovery of webhook $1 would send again: those in a state of $2 with ids after $3 and before $4,
-- up to $5. Each state is a range of one index (README, a webhook's log). The upper
-- bound is outside, as in find_recoverable.sql.
SELECT count(*) FROM (
    SELECT FROM unnest($2) AS wanted(state)
    CROSS JOIN LATERAL (
        SELECT u.delivery_id FROM unsuccessful_deliveries AS u
        WHERE u.webhook_id = ANY (ARRAY[$1]) AND u.state = wanted.state AND u.delivery_id > $3
        ORDER BY u.webhook_id, u.delivery_id
        LIMIT $5
    ) AS found
    WHERE found.delivery_id < $4
    LIMIT $5
) AS counted
