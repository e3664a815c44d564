//! Tests of the service on servers that it shares with other tests: one folder a subject.
#![expect(clippy::unwrap_used, reason = "all of this crate is tests; clippy sees that of the test functions only")]

use end_to_end::further_api;

mod bad_rows;
mod brake;
mod catalogue;
mod clocks;
mod contracts;
mod decisions;
mod defaults;
mod delivery;
mod egress;
mod headers;
mod health;
mod isolation;
mod keys;
mod listen;
mod messages;
mod odd_messages;
mod openapi;
mod operations;
mod operators;
mod poison;
mod rest;
mod retention;
mod retries;
mod secrecy;
mod sessions;
mod tenants;
mod traces;
mod upgrade;
