-- The next $5 deliveries that a recovery of webhook $1 looks at: those in a state of $2 with ids after $3 and before $4, and
-- whether the last attempt had an outcome of $6 (empty: any). Reads $5 of each state at most, along one index (README, a
-- webhook's log): with both bounds inside, the planner may read the range of ids, with those of every webhook, and sort it.
-- The caller adds the order and `LIMIT $5`.
SELECT found.delivery_id AS id, $6 = '{}' OR coalesce((
    SELECT a.outcome FROM attempts AS a
    WHERE a.delivery_id = found.delivery_id AND a.delivery_id > $3 AND a.delivery_id < $4
    ORDER BY a.attempt DESC
    LIMIT 1
) = ANY ($6), false) AS is_wanted
FROM unnest($2) AS wanted(state)
CROSS JOIN LATERAL (
    SELECT u.delivery_id FROM unsuccessful_deliveries AS u
    WHERE u.webhook_id = ANY (ARRAY[$1]) AND u.state = wanted.state AND u.delivery_id > $3
    ORDER BY u.webhook_id, u.delivery_id
    LIMIT $5
) AS found
WHERE found.delivery_id < $4
