DROP TABLE suspect_jobs, slow_webhooks;
