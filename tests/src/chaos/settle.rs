//! Waits until everything has come to rest after the storm.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{fleet::Fleet, journal::Journal};
use crate::{
    outsider::Outsider,
    system::{System, metric},
};

/// How long everything may take to come to rest: the schedule's ten seconds, and the backlog of a busy machine.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(240);
/// How often the journal says what is left.
const JOURNAL_INTERVAL: Duration = Duration::from_secs(10);

/// What still waits. A delivery of a paused webhook may wait if its job is in `held_jobs`. Otherwise its job is lost.
const WAITING_QUERY: &str = "SELECT \
    (SELECT count(*) FROM deliveries AS d JOIN webhooks AS w ON w.id = d.webhook_id \
     WHERE d.state IN ('pending', 'retrying') AND (w.is_active OR NOT EXISTS \
         (SELECT FROM held_jobs AS h WHERE h.webhook_id = w.id AND h.delivery_id = d.id))), \
    (SELECT count(*) FROM promised_jobs), \
    (SELECT count(*) FROM deliveries WHERE NOT is_test)";

/// Waits until no delivery, no job in flight, no outbox entry and no message is left. Returns what is left at the
/// deadline.
pub(super) async fn settle(system: &System, fleet: &Fleet, journal: &Journal) -> Vec<String> {
    let end = Instant::now() + SETTLE_TIMEOUT;
    let (mut before, mut silent_until) = (0, Instant::now() + JOURNAL_INTERVAL);
    loop {
        let left = left(system, fleet).await;
        let stored: i64 = system.sql(WAITING_QUERY).await[0].get(2);
        if left.is_empty() && stored == before {
            return left;
        }
        if Instant::now() >= end {
            journal.say(format_args!("not at rest within {SETTLE_TIMEOUT:?}"));
            return left;
        }
        before = stored;
        if Instant::now() > silent_until {
            journal.say(format_args!("{stored} deliveries; left: {}", left.join(", ")));
            silent_until += JOURNAL_INTERVAL;
        }
        sleep(Duration::from_millis(700)).await;
    }
}

async fn left(system: &System, fleet: &Fleet) -> Vec<String> {
    let mut left = Vec::new();
    let row = &system.sql(WAITING_QUERY).await[0];
    let (deliveries, outbox): (i64, i64) = (row.get(0), row.get(1));
    if deliveries > 0 {
        left.push(format!("{deliveries} deliveries wait"));
    }
    if outbox > 0 {
        left.push(format!("{outbox} jobs are in the outbox"));
    }
    for ops in fleet.dispatchers().await {
        let in_flight = metric(ops, "webhooks_attempts_in_flight").await;
        if in_flight > 0.0 {
            left.push(format!("{in_flight} jobs are in flight in the dispatcher at {ops}"));
        }
    }
    let names = &system.names;
    let mut queues = system.retry_queues();
    queues.extend([
        names.events(),
        names.main(),
        names.bulk(),
        names.slow(),
        names.dead(),
        names.unroutable(),
        names.rejected(),
    ]);
    let outsider = Outsider::connect(&system.amqp_url, &names.events_exchange).await;
    for queue in queues {
        let messages = outsider.ready(&queue).await;
        if messages > 0 {
            left.push(format!("{messages} messages in {queue}"));
        }
    }
    outsider.close().await;
    left
}
