-- How many deliveries a recovery of webhook $1 would send again: those in a state of $2 with ids after $3 and before $4,
-- up to $5. Each state is a range of one index (README, a webhook's log).
SELECT count(*) FROM (
    SELECT FROM unnest($2) AS wanted(state)
    CROSS JOIN LATERAL (
        SELECT FROM unsuccessful_deliveries AS u
        WHERE u.webhook_id = ANY (ARRAY[$1]) AND u.state = wanted.state AND u.delivery_id > $3 AND u.delivery_id < $4
        ORDER BY u.webhook_id, u.delivery_id
        LIMIT $5
    ) AS found
    LIMIT $5
) AS counted
