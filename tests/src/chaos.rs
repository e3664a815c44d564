//! A storm: publishers at a steady rate, receivers of every kind, and processes, broker and database that are killed,
//! frozen and cut off at random times. Afterwards an auditor reconciles what was confirmed to the publishers, what the
//! ledger says and what the receivers got.
//!
//! [`plan`] derives everything that is left to chance from a seed; [`audit`] is pure, and [`evidence`] is what it is fed.
//! The modules between them are the rim: [`cast`] (tenants, webhooks, receivers), `upstream`, `fleet`, `faults`, `rest`
//! and `collect`.

pub mod audit;
pub mod cast;
mod collect;
pub mod evidence;
mod faults;
mod fleet;
mod journal;
pub mod plan;
mod report;
mod rest;
mod settle;
mod storm;
mod upstream;

pub use plan::Options;
pub use report::Report;
pub use storm::run;
