DROP TABLE requeued_jobs, broker_generation;
