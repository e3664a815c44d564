//! `make console`: the administrators' console with a tenant full of life, until Ctrl-C. Its database and its queues are
//! its own, and are removed at the end.

use end_to_end::{
    life::{self, Hosts, Life},
    system::TestSystem,
};
use uuid::Uuid;

#[tokio::main]
async fn main() {
    // What a look at the console needs is printed below. It looks for queues before they exist, and lapin logs each.
    tracing_subscriber::fmt().with_env_filter("warn,lapin=off").init();
    let hosts = Hosts::local();
    let system = TestSystem::running(life::options(&hosts)).await;
    println!("filling a tenant with life: some 30 seconds...");
    let tenant = Uuid::new_v4();
    let life = Life::begin(&system, tenant, &hosts).await;
    println!("\nThe console: {}", life.link(&system, tenant).await);
    println!("\nThe link works once; Ctrl-C ends everything. Look at:");
    println!("  Warehouse orders       answers 503: what failed, why, and when it is tried again");
    println!("  Reporting              never answers");
    println!("  ERP stock              is fixed, and is being recovered: tab Recover");
    println!("  Shipping labels        is paused, and has skipped deliveries");
    println!("  Register a webhook     for example https://example.com/hooks");
    let _ = tokio::time::timeout(life::CONSOLE_DURATION, tokio::signal::ctrl_c()).await;
    drop(life);
}
