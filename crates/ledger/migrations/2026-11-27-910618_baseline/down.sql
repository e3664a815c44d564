-- There is no schema before the baseline: the way back from it would drop every table.
DO $$
BEGIN
    RAISE EXCEPTION 'the baseline has no way back, as it would drop every table: to remove the ledger, drop its database';
END
$$;
