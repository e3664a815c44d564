DROP FUNCTION derived_id;
