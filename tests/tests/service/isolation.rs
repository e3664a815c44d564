//! One tenant cannot slow another (crates/README.md, fairness): shares of slots, the slow lane, held jobs, and little memory.
mod fan_out;
mod flood;
mod held;
mod kills;
mod memory;
mod tenants;

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use end_to_end::{
    events::Event,
    receiver::{Receiver, Reply, behaviour},
    system::{Options, System},
};
use uuid::Uuid;

/// The deadline for work that keeps the machine busy.
const LONG: Duration = Duration::from_secs(90);

/// So many slots in the main and in the slow lane. An attempt at a hanging receiver outlasts the test.
fn options(slots: usize, slow: usize) -> Options {
    let settings = [
        ("DISPATCHER__MAX_IN_FLIGHT", slots.to_string()),
        ("DISPATCHER__SLOW_IN_FLIGHT", slow.to_string()),
        ("LIMITS__WEBHOOKS_PER_TENANT", "300".to_owned()),
        ("SHUTDOWN__DEADLINE", "100ms".to_owned()),
    ];
    Options { timeout: "120s", settings: settings.to_vec(), ..Options::default() }
}

fn hanging(system: &System) -> Receiver {
    Receiver::start(&system.ca, behaviour(|_, _| Reply::hang()))
}

fn answering_after(system: &System, delay: Duration) -> Receiver {
    Receiver::start(&system.ca, behaviour(move |_, _| Reply::ok().after(delay)))
}

/// Takes more than a second for every eighth request: after a second, a webhook counts as slow.
fn now_and_then_slow(system: &System) -> Receiver {
    let answered = AtomicUsize::new(0);
    Receiver::start(
        &system.ca,
        behaviour(move |_, _| {
            let is_slow = answered.fetch_add(1, Ordering::Relaxed).is_multiple_of(8);
            Reply::ok().after(Duration::from_millis(if is_slow { 1_200 } else { 40 }))
        }),
    )
}

fn events(tenant: Uuid, count: usize) -> Vec<Event> {
    Event::closed(tenant, count)
}

/// How many attempts at a tenant's webhooks are recorded.
async fn recorded(system: &System, tenant: Uuid) -> i64 {
    let statement = "SELECT count(*) FROM attempts AS a JOIN deliveries AS d ON d.id = a.delivery_id \
                     JOIN webhooks AS w ON w.id = d.webhook_id WHERE w.tenant_id = ";
    system.count(&format!("{statement} '{tenant}'")).await
}
