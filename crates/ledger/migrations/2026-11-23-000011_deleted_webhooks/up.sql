-- A registration counts the tenant's deleted webhooks. Webhooks are few, so this takes a moment.
CREATE INDEX webhooks_deleted_by_tenant ON webhooks (tenant_id) WHERE deleted_at IS NOT NULL;
