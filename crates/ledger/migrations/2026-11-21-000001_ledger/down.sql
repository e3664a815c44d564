DROP TABLE admin_sessions, recoveries, held_jobs, promised_jobs, attempts, deliveries, events, webhooks;
