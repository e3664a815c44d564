COMMENT ON TABLE unsuccessful_deliveries IS NULL;
