-- `migrate` has put the deliveries of before into `unsuccessful_deliveries` before this: from here on the table is complete.
COMMENT ON TABLE unsuccessful_deliveries IS 'complete';
