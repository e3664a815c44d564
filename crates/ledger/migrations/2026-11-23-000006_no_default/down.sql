CREATE TABLE events_default PARTITION OF events DEFAULT;
CREATE TABLE deliveries_default PARTITION OF deliveries DEFAULT WITH (fillfactor = 80);
CREATE TABLE attempts_default PARTITION OF attempts DEFAULT;
