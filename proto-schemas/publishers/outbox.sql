-- The outbox: events that were stored in the transaction of the business change that they tell of.
CREATE TABLE outbox (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id uuid NOT NULL UNIQUE,
    event text NOT NULL, -- the exact message, so that it is the same however often it is published
    stored_at timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz, -- when the broker had confirmed it; delete such rows when you like
    returned_at timestamptz, -- when it last came back, as no queue took it: it is published again a minute later
    returns integer NOT NULL DEFAULT 0, -- how often it came back
    fault text -- why it is set aside, and no longer published: somebody has to look at it
);
CREATE INDEX outbox_unpublished ON outbox (position) WHERE published_at IS NULL AND fault IS NULL;
