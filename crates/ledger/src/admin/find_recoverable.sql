-- The next $5 deliveries that a recovery of webhook $1 looks at, in the order of their ids: those in a state of $2 with
-- ids after $3 and before $4. Reads as many of each state at most, along one index (README, a webhook's log): with both
-- bounds inside, the planner may read the range of ids, with those of every webhook, and sort it.
SELECT found.delivery_id AS id
FROM unnest($2) AS wanted(state)
CROSS JOIN LATERAL (
    SELECT u.delivery_id FROM unsuccessful_deliveries AS u
    WHERE u.webhook_id = ANY (ARRAY[$1]) AND u.state = wanted.state AND u.delivery_id > $3
    ORDER BY u.webhook_id, u.delivery_id
    LIMIT $5
) AS found
WHERE found.delivery_id < $4
ORDER BY found.delivery_id
LIMIT $5
