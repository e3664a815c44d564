//! Area `queues`: do they exist as they should, and are those empty that should be?

use std::collections::BTreeMap;

use broker::Seen;
use domain::error_chain;
use ledger::WorkSeen;

use super::super::{
    finding::{Finding, grouped, many},
    observed::{InsideSeen, Observed},
};

/// Notices that wait while somebody consumes them, at most.
const MAX_NORMAL_NOTICES: u32 = 1_000;

pub(super) fn check(observed: &Observed) -> Vec<Finding> {
    let Some(inside) = observed.inside() else { return Vec::new() };
    let mut findings = vec![present(inside)];
    findings.extend(arguments(inside));
    findings.extend(unknown(inside));
    findings.extend(parked(inside));
    findings.extend(observed.database().and_then(|seen| purged(inside, seen.work.as_ref().ok()?)));
    findings.extend(notices(inside));
    findings
}

fn present(inside: &InsideSeen) -> Finding {
    let id = "queues.present";
    let missing = |seen: &BTreeMap<String, Seen>| -> Vec<String> {
        seen.iter().filter(|(_, seen)| matches!(seen, Seen::Missing)).map(|(name, _)| name.clone()).collect()
    };
    let (queues, exchanges) = (missing(&inside.queues), missing(&inside.exchanges));
    let mut remedy =
        "webhookctl dead list declares what is missing (so does each service that connects). Lost jobs come \
                      back from the ledger within minutes"
            .to_owned();
    if queues.contains(&inside.names.events()) {
        remedy += "; events that were waiting there are stored nowhere else: they have to be published again";
    }
    if queues.len() == inside.queues.len() {
        let text = "none of the queues exists: no service has started yet, or broker.url or broker.prefix is wrong";
        return Finding::error(id, text, "start the services; they declare their queues");
    }
    let missing = [("queue", queues), ("exchange", exchanges)].into_iter().filter(|(_, names)| !names.is_empty());
    let texts = missing.map(|(noun, names)| match names.as_slice() {
        [name] => format!("the {noun} {name} is missing"),
        names => format!("the {noun}s {} are missing", names.join(", ")),
    });
    let texts: Vec<_> = texts.collect();
    if texts.is_empty() {
        let (queues, exchanges) = (inside.queues.len(), inside.exchanges.len());
        return Finding::ok(id, format!("all {queues} queues and {exchanges} exchanges exist"));
    }
    Finding::error(id, texts.join("; "), remedy)
}

fn arguments(inside: &InsideSeen) -> Vec<Finding> {
    let id = "queues.arguments";
    let all = inside.queues.iter().chain(&inside.exchanges);
    let found = all.filter_map(|(name, seen)| {
        let Seen::Present { differs: Some(differs), .. } = seen else { return None };
        // The broker's words name it, mostly.
        let reason = differs.trim_start_matches("PRECONDITION_FAILED - ");
        let text = format!("{name} is declared with other arguments, so no service can connect: {reason}");
        let remedy = format!(
            "once it is empty: `rabbitmqctl delete_queue {name}` (an exchange: by the management plugin); then webhookctl dead \
             list declares it"
        );
        Some(Finding::error(id, text, remedy))
    });
    let found: Vec<_> = found.collect();
    let is_any = inside.queues.values().any(|seen| matches!(seen, Seen::Present { .. }));
    if found.is_empty() && is_any {
        return vec![Finding::ok(id, "all are declared as the services declare them")];
    }
    found
}

fn unknown(inside: &InsideSeen) -> Option<Finding> {
    let all = inside.queues.iter().chain(&inside.exchanges);
    let unknown = |(name, seen): (&String, &Seen)| match seen {
        Seen::Unknown(error) => Some(format!("{name}: {}", error_chain(error))),
        _ => None,
    };
    let texts: Vec<_> = all.filter_map(unknown).collect();
    let [first, ..] = texts.as_slice() else { return None };
    let count = many(texts.len(), "queue");
    Some(Finding::error(
        "queues.answer",
        format!("{count} did not answer, such as {first}"),
        "check the broker's log, and with broker.management_url whether the queue has a leader (cluster.members); may the user configure it?",
    ))
}

fn parked(inside: &InsideSeen) -> Vec<Finding> {
    let (names, mut findings) = (&inside.names, Vec::new());
    let ready = |queue: &str| inside.of(queue).map(|(ready, _)| i64::from(ready));
    findings.extend(ready(&names.rejected()).map(|ready| match ready {
        0 => Finding::ok("queues.rejected", "no event was rejected"),
        _ => Finding::warning(
            "queues.rejected",
            format!("{} {} rejected", many(ready, "event"), if ready == 1 { "was" } else { "were" }),
            "webhookctl rejected list shows why; fix the upstream service, or report the reason panicked, which is a fault of event-ingest; then webhookctl rejected requeue, or discard",
        ),
    }));
    findings.extend(ready(&names.unreadable()).map(|ready| match ready {
        0 => Finding::ok("queues.unreadable", "the broker itself parked no event"),
        _ => Finding::error(
            "queues.unreadable",
            format!("the broker parked {} that no ingest could receive or finish, or that expired", many(ready, "event")),
            "webhookctl rejected list --unreadable shows why (operators' pages: WebhooksParked); once the cause is fixed, webhookctl rejected requeue --unreadable; do not purge the queue before a look",
        ),
    }));
    findings.extend(ready(&names.dead()).map(|ready| match ready {
        0 => Finding::ok("queues.dead", "no job is dead"),
        _ => Finding::error(
            "queues.dead",
            format!("{}: their deliveries wait until you requeue or discard them", many(ready, "dead letter")),
            "webhookctl dead list says why (operators' pages: Dead jobs); then webhookctl dead requeue, or discard",
        ),
    }));
    findings.extend(ready(&names.unroutable()).map(|ready| match ready {
        0 => Finding::ok("queues.unroutable", "every message found its queue"),
        _ => Finding::error(
            "queues.unroutable",
            format!("{} found no queue: a queue or a binding was deleted", many(ready, "message")),
            format!("webhookctl dead list declares what is missing; jobs come back from the ledger; then `rabbitmqctl purge_queue {}`, unless there are notices (operators' pages: What to watch)", names.unroutable()),
        ),
    }));
    findings
}

/// The deliveries whose dead letters are gone: nothing else makes their jobs. Each parked job is a message of its own.
fn purged(inside: &InsideSeen, work: &WorkSeen) -> Option<Finding> {
    let (ready, _) = inside.of(&inside.names.dead())?;
    let lost = work.parked - i64::from(ready);
    (lost > 0).then(|| {
        Finding::error(
            "queues.purged",
            format!(
                "parked deliveries by the ledger: {}; messages on {}: {ready}. Somebody purged it, or reads it now",
                grouped(work.parked),
                inside.names.dead()
            ),
            "webhookctl dead requeue: the jobs of these deliveries are made again within minutes",
        )
    })
}

fn notices(inside: &InsideSeen) -> Option<Finding> {
    let (ready, consumers) = inside.of(&inside.names.notices())?;
    let waiting = many(ready, "notice");
    Some(match (ready, consumers) {
        (0, _) => Finding::ok("queues.notices", "no notice waits"),
        (..MAX_NORMAL_NOTICES, _) => Finding::note(
            "queues.notices",
            format!("{waiting} of webhooks are waiting, with {}", many(consumers, "consumer")),
        ),
        _ => Finding::warning(
            "queues.notices",
            format!(
                "{waiting} are waiting, with {}; beyond 100,000 the oldest are dropped",
                many(consumers, "consumer")
            ),
            "check that the business application, which consumes the notices, is running. Deliveries are not affected",
        ),
    })
}
