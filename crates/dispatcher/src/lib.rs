//! Turns deliveries into attempts
