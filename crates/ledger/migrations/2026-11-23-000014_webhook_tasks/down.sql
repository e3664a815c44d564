DROP TABLE webhook_tasks;
