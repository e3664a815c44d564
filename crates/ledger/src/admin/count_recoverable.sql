-- How many deliveries a recovery of webhook $1 would send again: those in a state of $2 with ids after $3 and before $4,
-- up to $5. Each state is a range of one index. The order over all of its columns leaves the planner no other index.
SELECT count(*) FROM (
    SELECT FROM unnest($2) AS wanted(state)
    CROSS JOIN LATERAL (
        SELECT FROM unsuccessful_deliveries AS u
        WHERE (u.webhook_id, u.state, u.delivery_id) > ($1, wanted.state, $3)
            AND (u.webhook_id, u.state, u.delivery_id) < ($1, wanted.state, $4)
        ORDER BY u.webhook_id, u.state, u.delivery_id
        LIMIT $5
    ) AS found
    LIMIT $5
) AS counted
