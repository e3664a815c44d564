-- When the failures since the last success ended, the latest ones: a success that is recorded after failures that are
-- younger than itself takes back only the older ones.
ALTER TABLE webhooks ADD COLUMN recent_failures timestamptz[] NOT NULL DEFAULT '{}';

-- Bodies of a few KiB and more are compressed by lz4, which costs a fraction of the default's time. A server that was
-- built without it goes on as before.
DO $$ BEGIN
    ALTER TABLE events ALTER COLUMN body SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN
    NULL;
END $$;
