//! `make console`: the administrators' console with a tenant full of life, until Ctrl-C. Its database and its queues are
//! its own, and are removed at the end.

use end_to_end::{
    life::{self, Life},
    system::System,
};
use uuid::Uuid;

#[tokio::main]
async fn main() {
    System::run(life::options(), async |system| {
        println!("filling a tenant with life: some 15 seconds...");
        let tenant = Uuid::new_v4();
        let life = Life::begin(&system, tenant).await;
        println!("\nThe console: {}", system.console_link(tenant).await);
        println!("\nThe link works once; Ctrl-C ends everything. Look at:");
        println!("  Warehouse orders       answers 503: what failed, why, and when it is tried again");
        println!("  Reporting              never answers");
        println!("  ERP Stock              is mended, and is being recovered: tab Recover");
        println!("  Shipping labels (old)  is paused, and has skipped deliveries");
        println!("  Register a webhook     for example https://example.com/hooks");
        let _ = tokio::time::timeout(life::LASTS, tokio::signal::ctrl_c()).await;
        drop(life);
    })
    .await;
}
