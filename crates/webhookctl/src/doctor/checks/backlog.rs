//! Area `backlog`: what waits.

use ledger::{OverdueSeen, WorkSeen};

use super::{
    super::{
        finding::{Finding, grouped, lasting, many},
        observed::{DatabaseSeen, Observed},
    },
    judged,
    ledger::is_old,
};

/// Messages that wait although everything is well, at most.
const MAX_NORMAL_MESSAGES: u32 = 1_000;
/// A retry may be late by some minutes: it waits in its queue behind others that are due later.
const MAX_NORMAL_LATENESS: time::Duration = time::Duration::minutes(5);
/// Overdue for longer is wrong, whatever the reason.
const MAX_LATENESS: time::Duration = time::Duration::minutes(15);

pub(super) fn check(observed: &Observed) -> Vec<Finding> {
    let mut findings = queues(observed);
    let Some(seen) = observed.database() else { return findings };
    if is_old(seen) {
        findings.push(Finding::note("backlog.retries", "not looked at: the schema is too old"));
        return findings;
    }
    findings.extend(judged("backlog.retries", (&seen.retries, seen), |retries| {
        let (count, is_exact) = retries.count();
        let about = if is_exact { "" } else { "about " };
        vec![Finding::ok("backlog.retries", format!("{about}{} for a retry", deliveries(count, "waits", "wait")))]
    }));
    findings.extend(judged("backlog.overdue", (&seen.overdue, seen), |late| vec![overdue(late, seen, observed)]));
    findings.extend(judged("backlog.outbox", (&seen.work, seen), |seen| work(seen, observed.inside().is_some())));
    findings
}

fn queues(observed: &Observed) -> Vec<Finding> {
    let Some(inside) = observed.inside() else { return Vec::new() };
    let ready = |queue: &str| inside.of(queue).map(|(ready, _)| ready);
    let (names, mut findings) = (&inside.names, Vec::new());
    if let Some(ready) = ready(&names.events()) {
        let text = format!("{} {} for ingest", many(ready, "event"), if ready == 1 { "waits" } else { "wait" });
        findings.push(match ready {
            ..MAX_NORMAL_MESSAGES => Finding::ok("backlog.events", text),
            _ => Finding::warning("backlog.events", text, "if it grows, start another event-ingest"),
        });
    }
    if let (Some(main), Some(bulk), Some(slow)) = (ready(&names.main()), ready(&names.bulk()), ready(&names.slow())) {
        let text = format!(
            "messages of due jobs: main {}, bulk {}, slow {}",
            grouped(main.into()),
            grouped(bulk.into()),
            grouped(slow.into())
        );
        findings.push(match main {
            ..MAX_NORMAL_MESSAGES => Finding::ok("backlog.due", text),
            _ => Finding::warning("backlog.due", text, "if main grows, start another dispatcher"),
        });
    }
    findings
}

fn overdue(overdue: &OverdueSeen, seen: &DatabaseSeen, observed: &Observed) -> Finding {
    let id = "backlog.overdue";
    let late = overdue.oldest_due.map_or(time::Duration::ZERO, |due| seen.now - due);
    if late <= MAX_NORMAL_LATENESS {
        return Finding::ok(id, format!("no attempt is overdue by more than {}", lasting(MAX_NORMAL_LATENESS)));
    }
    let text =
        format!("{} due and not attempted, the oldest for {}", deliveries(overdue.overdue, "is", "are"), lasting(late));
    let of_lanes = |pick: fn((u32, u32)) -> u32| {
        let inside = observed.inside()?;
        Some(inside.of(&inside.names.main()).map_or(0, pick) + inside.of(&inside.names.bulk()).map_or(0, pick))
    };
    if observed.database().is_some_and(|seen| seen.brakes.as_ref().is_ok_and(|brakes| !brakes.is_empty())) {
        return Finding::note(id, format!("{text}: the brake is on (services.brake)"));
    }
    let remedy = match (of_lanes(|(_, consumers)| consumers), of_lanes(|(ready, _)| ready)) {
        (None, _) => "restore the broker first: attempts then continue automatically",
        (Some(0), _) => "start a dispatcher",
        (_, Some(MAX_NORMAL_MESSAGES..)) => {
            "the dispatchers are behind: start another one, or check whether they wait for the database"
        }
        _ => {
            "the dispatchers hold their jobs (are their slots full?), or these are lost, and enqueued again after \
             reconcile.grace if somebody leads; if it stays: the dispatchers' logs"
        }
    };
    if late > MAX_LATENESS { Finding::error(id, text, remedy) } else { Finding::warning(id, text, remedy) }
}

fn deliveries(count: i64, verb_of_one: &str, verb: &str) -> String {
    match count {
        1 => format!("1 delivery {verb_of_one}"),
        count => format!("{} deliveries {verb}", grouped(count)),
    }
}

fn work(work: &WorkSeen, has_broker: bool) -> Vec<Finding> {
    let relay = match has_broker {
        true => "start api-service; if it runs, its log says why the work has stopped",
        false => "restore the broker first: the work then continues automatically",
    };
    let unpublished = |count, noun| format!("outbox: {} for over a minute: nothing publishes them", jobs(count, noun));
    let outbox = match work.outbox_late {
        1.. => Finding::error("backlog.outbox", unpublished(work.outbox_late, "job"), relay),
        _ => Finding::ok("backlog.outbox", format!("outbox: {}", jobs(work.outbox, "job"))),
    };
    let notices = (work.notices_late > 0)
        .then(|| Finding::error("backlog.notices", unpublished(work.notices_late, "notice"), relay));
    let (under_way, stopped) = (up_to(work.tasks), up_to(work.tasks_late));
    let tasks = match work.tasks_late {
        1.. => {
            let text = format!("deletions, activations or recoveries that have stopped: {stopped}");
            Finding::error("backlog.tasks", text, relay)
        }
        _ => Finding::ok("backlog.tasks", format!("deletions, activations and recoveries under way: {under_way}")),
    };
    let held =
        format!("held jobs: {}; active webhooks with held jobs: {}", up_to(work.held), up_to(work.slow_webhooks));
    let held = match work.slow_webhooks {
        0 => Finding::ok("backlog.held", held),
        _ => Finding::note("backlog.held", format!("{held}: their receivers are slow or dead")),
    };
    [Some(outbox), notices, Some(tasks), Some(held)].into_iter().flatten().collect()
}

/// A count that stops at a limit.
fn up_to(count: i64) -> String {
    if count >= WorkSeen::MAX_COUNT { format!("at least {}", grouped(count)) } else { grouped(count) }
}

fn jobs(count: i64, noun: &str) -> String {
    if count >= WorkSeen::MAX_COUNT { format!("at least {}", many(count, noun)) } else { many(count, noun) }
}
