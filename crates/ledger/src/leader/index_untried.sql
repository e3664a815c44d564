-- Looks at the next deliveries from the cursor $1 to $2. Untried ones get their creation as their due time, and with it a
-- place in the index of waiting deliveries. Moves the cursor to the last of these rows, or to $2 if there are no more: also
-- back to $2, after the clock was set back. Does nothing during a rebuild, which walks from the cursor.
WITH chunk AS MATERIALIZED (
    SELECT id, state = 'pending' AND next_attempt_at IS NULL AS is_untried
    FROM deliveries WHERE id >= $1 AND id < $2 ORDER BY id LIMIT {rows}
)
, moved AS (
    UPDATE broker_generation SET indexed_before = coalesce((SELECT id FROM chunk ORDER BY id OFFSET {rows} - 1), $2)
    WHERE rebuild_id IS NULL
    RETURNING indexed_before
)
-- Locked in the order of ids, as recording attempts does. One that was attempted meanwhile has a due time.
, untried AS MATERIALIZED (
    SELECT id FROM deliveries
    WHERE id = ANY (ARRAY(SELECT id FROM chunk WHERE is_untried AND EXISTS (SELECT FROM moved)))
        AND id >= $1 AND id < $2 AND state = 'pending' AND next_attempt_at IS NULL
    ORDER BY id FOR UPDATE
)
, indexed AS (
    UPDATE deliveries SET next_attempt_at = created_at
    WHERE id = ANY (ARRAY(SELECT id FROM untried)) AND id >= $1 AND id < $2
        AND state = 'pending' AND next_attempt_at IS NULL
    RETURNING created_at
)
SELECT
    indexed_before,
    (SELECT count(*) FROM chunk) AS looked,
    (SELECT count(*) FROM indexed) AS indexed,
    (SELECT min(created_at) FROM indexed) AS earliest
FROM moved
