-- Counts the deliveries that a recovery of webhook $1 would send again: in a state of $2, with ids after $3 and before $4,
-- and with an outcome of $6 (empty: any) at the last attempt. Looks at $5 at most. Each state is a range of one index (README, a
-- webhook's log). The upper bound is outside, as in find_recoverable.sql.
SELECT count(*) AS looked_at, count(*) FILTER (WHERE $6 = '{}' OR (
    SELECT a.outcome FROM attempts AS a
    WHERE a.delivery_id = counted.delivery_id AND a.delivery_id > $3 AND a.delivery_id < $4
    ORDER BY a.attempt DESC
    LIMIT 1
) = ANY ($6)) AS count
FROM (
    SELECT found.delivery_id FROM unnest($2) AS wanted(state)
    CROSS JOIN LATERAL (
        SELECT u.delivery_id FROM unsuccessful_deliveries AS u
        WHERE u.webhook_id = ANY (ARRAY[$1]) AND u.state = wanted.state AND u.delivery_id > $3
        ORDER BY u.webhook_id, u.delivery_id
        LIMIT $5
    ) AS found
    WHERE found.delivery_id < $4
    LIMIT $5
) AS counted
