-- The next $5 deliveries that a recovery of webhook $1 looks at, in the order of their ids: those in a state of $2 with
-- ids after $3 and before $4. Reads as many of each state at most, from one index. The order over all of its columns
-- leaves the planner no other index.
SELECT found.delivery_id AS id
FROM unnest($2) AS wanted(state)
CROSS JOIN LATERAL (
    SELECT u.delivery_id FROM unsuccessful_deliveries AS u
    WHERE (u.webhook_id, u.state, u.delivery_id) > ($1, wanted.state, $3)
        AND (u.webhook_id, u.state, u.delivery_id) < ($1, wanted.state, $4)
    ORDER BY u.webhook_id, u.state, u.delivery_id
    LIMIT $5
) AS found
ORDER BY found.delivery_id
LIMIT $5
