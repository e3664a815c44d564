//! Turns business events into deliveries
