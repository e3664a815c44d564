//! A storm: publishers at a steady rate, receivers of every kind, and faults. Processes, broker and database are
//! killed, frozen and cut off at random times. Then an auditor reconciles what was confirmed to the publishers, what
//! the ledger says and what the receivers got.
//!
//! On a cluster, its nodes suffer ordeals (`ordeals`, `cluster_plan`, [`gaps`]).
//!
//! [`plan`] derives all random choices from a seed. [`audit`] is pure, and [`evidence`] is its input. The others do IO:
//! [`fixtures`] (tenants, webhooks, receivers), `upstream` and `business` (publishers), `fleet` (processes), `faults`,
//! `rest` (administrators) and `collect`.

pub mod audit;
mod business;
mod cluster_plan;
mod collect;
pub mod evidence;
mod faults;
pub mod fixtures;
mod fleet;
pub mod gaps;
mod ground;
mod journal;
pub mod ordeal;
mod ordeals;
pub mod plan;
mod report;
mod rest;
mod settle;
mod storm;
mod upstream;

pub use plan::{Options, Setup};
pub use report::Report;
pub use storm::run;
