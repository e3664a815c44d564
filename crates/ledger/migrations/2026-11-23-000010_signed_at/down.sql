ALTER TABLE attempts DROP COLUMN signed_at, ADD COLUMN signature text NOT NULL DEFAULT '';
