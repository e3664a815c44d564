//! Starts the service.
fn main() {}
