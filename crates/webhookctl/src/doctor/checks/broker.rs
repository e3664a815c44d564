//! Area `broker`: its addresses, as a client sees them.

use domain::error_chain;

use super::{
    super::{
        finding::Finding,
        observed::{BrokerSeen, ClusterNode, ClusterSeen, Looked, Observed},
    },
    unseen,
};

/// The oldest version that the service supports.
const MIN_VERSION: (u32, u32) = (3, 10);

pub(super) fn check(observed: &Observed) -> Vec<Finding> {
    let Some(seen) = &observed.broker else {
        return vec![Finding::note("broker.connection", "not looked at: broker.url cannot be used")];
    };
    let mut findings = connection(seen);
    findings.extend(observed.cluster().and_then(version));
    if seen.inside.is_none() {
        findings.push(Finding::note("broker.rest", "not looked at: queues, ingests and dispatchers"));
    }
    if let Some(inside) = &seen.inside
        && let Some(is_blocked) = &inside.is_blocked
    {
        findings.push(match is_blocked {
            Ok(false) => Finding::ok("broker.blocked", "takes messages: no alarm"),
            Ok(true) => Finding::error(
                "broker.blocked",
                "accepts no messages: the broker is short of memory or disk (an alarm)",
                "`rabbitmq-diagnostics alarms` on its host; free disk or memory there. Publishers wait, and no message is lost",
            ),
            Err(why) => unseen("broker.blocked", why),
        });
        if let (Ok(false), Some(accepts_larger)) = (is_blocked, inside.accepts_larger.as_ref()) {
            findings.push(message_size(accepts_larger));
        }
    }
    findings
}

fn connection(seen: &BrokerSeen) -> Vec<Finding> {
    let id = "broker.connection";
    let all = seen.nodes.len();
    let faults: Vec<_> = seen.nodes.iter().filter_map(|node| Some((node, node.fault.as_ref()?))).collect();
    if faults.is_empty() {
        let text =
            if all == 1 { "accepts connections".to_owned() } else { format!("all {all} addresses accept connections") };
        return vec![Finding::ok(id, text)];
    }
    let is_lost = faults.len() == all;
    let found = faults.into_iter().map(|(node, fault)| {
        let text = format!("{}: {}", node.address, error_chain(fault));
        match is_lost {
            true => Finding::error(
                id,
                text,
                "start RabbitMQ, or correct broker.url (WEBHOOKS__BROKER__URL). The services wait for it",
            ),
            false => Finding::warning(
                id,
                text,
                "start this node: the others carry its load, and losing one more may stop the queues",
            ),
        }
    });
    found.collect()
}

fn message_size(accepts_larger: &Looked<bool>) -> Finding {
    let id = "broker.message_size";
    match accepts_larger {
        Ok(false) => Finding::ok(id, "refuses messages of more than 1 MiB"),
        Ok(true) => Finding::warning(
            id,
            "accepts messages of more than 1 MiB: many at a time may exceed the memory of an ingest",
            "set max_message_size = 1048576 in each node's rabbitmq.conf and restart the node. Larger events are invalid",
        ),
        Err(why) => unseen(id, why),
    }
}

fn version(cluster: &ClusterSeen) -> Option<Finding> {
    let id = "broker.version";
    let mut versions: Vec<_> = cluster.nodes.iter().filter_map(ClusterNode::version).collect();
    versions.sort_unstable();
    versions.dedup();
    let joined = versions.join(", ");
    if versions.is_empty() {
        return None;
    }
    let is_old = |version: &&str| number(version).is_some_and(|number| number < MIN_VERSION);
    Some(match versions.iter().any(is_old) {
        true => Finding::error(id, format!("RabbitMQ {joined} is older than 3.10"), "upgrade it to 3.10 or later"),
        false => Finding::ok(id, format!("RabbitMQ {joined}")),
    })
}

/// Its first two numbers.
fn number(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}
