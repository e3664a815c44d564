DROP INDEX webhooks_ever_by_tenant;
DROP TABLE delivery_ids;
DROP INDEX events_key;
