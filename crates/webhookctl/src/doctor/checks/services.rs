//! Areas `services` and `leader`: who runs.

use broker::Seen;
use ledger::Brake;
use time::OffsetDateTime;

use crate::brake::why;

use super::{
    super::{
        finding::{Finding, lasting, many},
        observed::{DatabaseSeen, Observed},
    },
    judged, unseen,
};

pub(super) fn check(observed: &Observed) -> Vec<Finding> {
    let mut findings: Vec<_> = observed.database().map(api).into_iter().collect();
    findings.extend(consumers(observed));
    if let Some(seen) = observed.database() {
        let brake = |brakes: &Vec<Brake>| vec![brake(brakes, seen.now)];
        findings.extend(judged("services.brake", (&seen.brakes, seen), brake));
        findings.extend(leader(seen, observed));
    }
    findings
}

/// Where a service is connected from, such as `10.0.0.5 (4), 10.0.0.6 (4)`. `None` when it is not.
fn hosts(seen: &DatabaseSeen, name: &str) -> Option<String> {
    let seen = seen.connections.as_ref().ok()?.iter().filter(|seen| seen.name == name);
    let texts: Vec<_> = seen
        .map(|seen| format!("{} ({})", seen.address.as_deref().unwrap_or("its own host"), seen.connections))
        .collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

fn api(seen: &DatabaseSeen) -> Finding {
    let id = "services.api";
    match (hosts(seen, "api-service"), &seen.connections) {
        (_, Err(why)) => unseen(id, why),
        (Some(hosts), _) => Finding::ok(id, format!("api-service holds database connections from {hosts}")),
        (None, _) => Finding::error(
            id,
            "no api-service is connected to the database: no REST API, no console, no outbox relay",
            "start api-service; if it runs: what do its log and its /readyz (on ops.listen) say?",
        ),
    }
}

fn consumers(observed: &Observed) -> Vec<Finding> {
    let Some(inside) = observed.inside() else { return Vec::new() };
    let consumers = |queue: &str| inside.of(queue).map(|(_, consumers)| consumers);
    let names = &inside.names;
    let from = |name: &str| {
        let hosts = observed.database().and_then(|seen| hosts(seen, name));
        hosts.map(|hosts| format!("; database connections from {hosts}")).unwrap_or_default()
    };
    let mut findings = Vec::new();
    let id = "services.ingest";
    findings.extend(consumers(&names.events()).map(|consumers| match consumers {
        0 => Finding::error(
            id,
            format!("no event-ingest consumes {}: events are waiting there", names.events()),
            "start event-ingest; if it runs: what do its log and its /readyz (on ops.listen) say?",
        ),
        _ => Finding::ok(id, format!("{}{}", many(consumers, "event-ingest consumer"), from("event-ingest"))),
    }));
    let id = "services.dispatchers";
    let lanes = [names.main(), names.bulk(), names.slow()].map(|queue| consumers(&queue));
    if let [Some(main), Some(bulk), Some(slow)] = lanes {
        let remedy = "start a dispatcher; if one runs: what do its log and its /readyz (on ops.listen) say?";
        let consumers = format!("main {main}, bulk {bulk}, slow {slow}");
        let brakes = observed.database().and_then(|seen| seen.brakes.as_ref().ok());
        findings.push(match (main.min(bulk).min(slow), main.max(bulk).max(slow)) {
            (_, 0) if brakes.is_some_and(|brakes| !brakes.is_empty()) => {
                Finding::note(id, "no dispatcher consumes the lanes: the brake is on")
            }
            (_, 0) => Finding::error(id, "no dispatcher consumes the lanes: no delivery is attempted", remedy),
            (0, _) => Finding::error(id, format!("a lane has no consumer ({consumers}): its jobs are waiting"), remedy),
            (least, most) if least < most => Finding::warning(
                id,
                format!("the lanes' consumers differ ({consumers})"),
                "run the doctor again in a minute; if the lanes still differ, /readyz of each dispatcher says which one lacks a lane",
            ),
            _ => Finding::ok(id, format!("{} on each lane{}", many(main, "dispatcher consumer"), from("dispatcher"))),
        });
    }
    findings
}

/// Returns whether dispatchers accept no jobs.
fn brake(brakes: &[Brake], now: OffsetDateTime) -> Finding {
    let id = "services.brake";
    match brakes {
        [] => Finding::ok(id, "no brake is on: dispatchers accept jobs"),
        [first, ..] if first.is_operators() => Finding::warning(
            id,
            format!("an operator has stopped all dispatchers {} ago: {}", lasting(now - first.since), first.reason),
            "when the reason has ended: webhookctl brake off",
        ),
        [first, ..] => Finding::error(
            id,
            format!(
                "{} without jobs, the first for {}: {}",
                many(brakes.len(), "braked dispatcher"),
                lasting(now - first.since),
                why(&first.reason)
            ),
            "fix what it names (operators' pages: WebhooksBraked); deliveries wait meanwhile. After an outage `webhookctl recover --dry-run` shows what was dropped before",
        ),
    }
}

fn leader(seen: &DatabaseSeen, observed: &Observed) -> Vec<Finding> {
    let mut findings = Vec::new();
    let id = "leader.present";
    findings.push(match &seen.connections {
        Err(why) => unseen(id, why),
        Ok(connections) => match connections.iter().find(|seen| seen.leads) {
            Some(leader) => {
                let host = leader.address.as_deref().unwrap_or("the database's host");
                Finding::ok(id, format!("an {} at {host} leads", leader.name))
            }
            None => Finding::error(
                id,
                "no event-ingest leads: lost jobs are not found, partitions are not created, old rows are not deleted",
                "start event-ingest: one of them leads within seconds; if one runs, its log (target upkeep) says why not",
            ),
        },
    });
    findings.extend(judged("leader.broker", (&seen.generation, seen), |generation| {
        vec![match observed.inside().and_then(|inside| inside.sentinel.as_ref()) {
            _ if generation.is_rebuilding => Finding::warning(
                "leader.broker",
                "the queues are being rebuilt from the ledger",
                "wait: deliveries continue meanwhile (operators' pages: Lost brokers and queues)",
            ),
            Some((queue, Seen::Missing)) => Finding::error(
                "leader.broker",
                format!("the broker lacks {queue}: it lost its disk, or it is another one"),
                "if broker.url names the right broker, wait: the leader rebuilds the queues from the ledger",
            ),
            _ if generation.id.is_none() => {
                Finding::note("leader.broker", "the ledger has not been compared with this broker yet")
            }
            Some((queue, Seen::Present { .. })) => {
                Finding::ok("leader.broker", format!("the broker has {queue}: it is the one that the ledger knows"))
            }
            _ => Finding::note("leader.broker", "not looked at: the broker does not show its queues"),
        }]
    }));
    findings
}
