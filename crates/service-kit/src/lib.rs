//! What every process needs: configuration, logs, metrics, health, shutdown
