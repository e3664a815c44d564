-- The services' role and their database, when the volume is new. The limit is for an api-service, an ingest and up to three
-- dispatchers ("A limit of connections" in deploy/production.md): PostgreSQL's own limit is 100.
\set password `cat /run/secrets/postgres-password`
CREATE ROLE webhooks LOGIN CONNECTION LIMIT 92 PASSWORD :'password';
CREATE DATABASE webhooks OWNER webhooks;
