-- Events that differ in their type alone cannot both be kept under the key of the version before.
DELETE FROM events AS one USING events AS other
WHERE one.occurred_at = other.occurred_at AND one.id = other.id AND one.tenant_id = other.tenant_id
  AND one.event_type > other.event_type;
ALTER TABLE events ADD PRIMARY KEY (occurred_at, id, tenant_id);
