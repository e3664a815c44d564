ALTER TABLE webhooks DROP COLUMN recent_failures;
ALTER TABLE events ALTER COLUMN body SET COMPRESSION default;
