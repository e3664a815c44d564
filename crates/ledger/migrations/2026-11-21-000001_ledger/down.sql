DROP TABLE admin_sessions, attempts, deliveries, events, webhooks;
