//! Tests that kill processes or break servers. Servers that are broken are private to these tests.
#![expect(clippy::unwrap_used, reason = "all of this crate is tests; clippy sees that of the test functions only")]

mod chaos;
mod database;
mod doctor;
mod faults;
mod rebuild;
mod startup;
mod together;
