//! Area `cluster`: what only RabbitMQ's management API shows.

use std::collections::{BTreeMap, BTreeSet};

use broker::Seen;
use serde_json::Value;

use super::super::{
    finding::{Finding, many},
    observed::{Binding, ClusterNode, ClusterQueue, ClusterSeen, InsideSeen, Observed},
};

/// What a policy must not do: it would take messages away, or refuse them.
const LOSING_ARGUMENTS: [&str; 5] = ["message-ttl", "expires", "max-length", "max-length-bytes", "delivery-limit"];
/// What a policy should not do: our arguments win where there are any.
const SHADOWED_ARGUMENTS: [&str; 4] =
    ["dead-letter-exchange", "dead-letter-routing-key", "dead-letter-strategy", "overflow"];
/// Three members survive the loss of one; more cost more than they are worth.
const WANTED_MEMBERS: usize = 3;
/// The longest wait for a silent node that keeps to what deploy/production.md promises.
const SILENT_NODE_S: u64 = 20;

pub(super) fn check(observed: &Observed) -> Vec<Finding> {
    let seen = match &observed.cluster {
        Some(Ok(seen)) => seen,
        Some(Err(why)) => {
            let remedy = "set broker.management_url (WEBHOOKS__BROKER__MANAGEMENT_URL) to the address of the management API. \
                          On each node: `rabbitmq-plugins enable rabbitmq_management`. For the user: `rabbitmqctl \
                          set_user_tags USER monitoring`. A firewall or NetworkPolicy has to allow the port";
            return vec![Finding::warning("cluster.nodes", format!("not seen: {why}"), remedy)];
        }
        None => {
            let text = "not looked at: version, nodes, members, leaders, policies, bindings. Set broker.management_url \
                        (WEBHOOKS__BROKER__MANAGEMENT_URL), such as http://HOST:15672";
            let is_there = observed.inside().is_some();
            return is_there.then(|| Finding::note("cluster.nodes", text)).into_iter().collect();
        }
    };
    let mut findings = of_nodes(&seen.nodes);
    let known = observed.inside().map(|inside| &inside.queues);
    let is_ours = |queue: &&ClusterQueue| known.is_none_or(|known| known.contains_key(&queue.name));
    let ours: Vec<_> = seen.queues.iter().filter(is_ours).collect();
    if !ours.is_empty() {
        findings.push(members(&ours, seen.nodes.len()));
        findings.extend(leaders(&ours, &seen.nodes));
        findings.extend(policies(&ours, &seen.vhost));
        findings.push(bindings(seen, observed));
        findings.extend(observed.inside().map(|inside| other_bindings(seen, inside)).unwrap_or_default());
    }
    findings
}

fn of_nodes(nodes: &[ClusterNode]) -> Vec<Finding> {
    let list = |is_one: fn(&ClusterNode) -> bool| {
        let names: Vec<_> = nodes.iter().filter(|node| is_one(node)).map(|node| node.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let mut findings = vec![match (nodes.len(), list(|node| !node.running)) {
        (_, Some(stopped)) => {
            Finding::error("cluster.nodes", format!("not running: {stopped}"), "start RabbitMQ there")
        }
        (1, _) => {
            Finding::note("cluster.nodes", "one node: if its disk is lost, so are events that nobody has ingested")
        }
        (count, _) => Finding::ok("cluster.nodes", format!("all {count} nodes run")),
    }];
    let versions: BTreeSet<_> = nodes.iter().filter_map(ClusterNode::version).collect();
    if versions.len() > 1 {
        let versions = nodes.iter().filter_map(|node| Some(format!("{} {}", node.name, node.version()?)));
        let text = format!("the nodes differ: {}", versions.collect::<Vec<_>>().join(", "));
        findings.push(Finding::warning("cluster.versions", text, "right during an upgrade only: finish it"));
    }
    for (resource, short) in [("memory", list(|node| node.mem_alarm)), ("disk", list(|node| node.disk_free_alarm))] {
        let remedy = format!("free {resource} there; until then all publishers of the cluster wait");
        findings.extend(
            short.map(|short| Finding::error("cluster.alarms", format!("an alarm: {resource} of {short}"), remedy)),
        );
    }
    if let Some(parted) = nodes.iter().find(|node| !node.partitions.is_empty()) {
        let text = format!("{} does not see {}", parted.name, parted.partitions.join(", "));
        let remedy = "restart the nodes of the smaller side; set cluster_partition_handling = pause_minority";
        findings.push(Finding::error("cluster.partitions", text, remedy));
    }
    if list(|node| node.running && node.net_ticktime.is_none()).is_some() {
        let text = "the management API shows no alarms, partitions and policies: the broker has just started, or collects \
                    no statistics (management_agent.disable_metrics_collector)";
        findings.push(Finding::note("cluster.statistics", text));
    }
    let silent = nodes.iter().filter_map(|node| node.net_ticktime.as_ref().and_then(Value::as_u64)).max();
    findings.extend(silent.filter(|_| nodes.len() > 1).map(silent_node));
    findings
}

/// By default deliveries stand still for a minute when a node is silent, and retries for three.
fn silent_node(after_s: u64) -> Finding {
    let text = format!("a silent node counts as gone after {after_s} s");
    if after_s <= SILENT_NODE_S {
        return Finding::ok("cluster.waits", text);
    }
    let remedy = "[{kernel, [{net_ticktime, 12}]}, {rabbit, [{dead_letter_worker_publisher_confirm_timeout, 20000}]}]. in each node's advanced.config";
    Finding::warning("cluster.waits", format!("{text}: its queues stand still until then"), remedy)
}

fn members(queues: &[&ClusterQueue], nodes: usize) -> Finding {
    let id = "cluster.members";
    let those = |is_one: &dyn Fn(&ClusterQueue) -> bool| {
        let names = queues.iter().filter(|queue| is_one(queue)).map(|queue| queue.name.as_str());
        Some(names.collect::<Vec<_>>()).filter(|names| !names.is_empty()).map(|names| listed(&names))
    };
    let is_leaderless = |queue: &ClusterQueue| {
        queue.leader.as_deref().unwrap_or("").is_empty() || queue.online.len() * 2 <= queue.members.len()
    };
    if let Some(queues) = those(&is_leaderless) {
        let remedy = "start the nodes with their members; nobody publishes or consumes there until most of them run";
        return Finding::error(id, format!("without a majority of members: {queues}"), remedy);
    }
    let wanted = nodes.min(WANTED_MEMBERS);
    if let Some(queues) = those(&|queue| queue.members.len() < wanted) {
        let remedy = "rabbitmq-queues grow NODE all, for each node that has none";
        return Finding::warning(id, format!("fewer than {} on {queues}", many(wanted, "member")), remedy);
    }
    if let Some(queues) = those(&|queue| queue.online.len() < queue.members.len()) {
        let remedy = "start the member's node; if the node is lost permanently, rabbitmq-queues shrink NODE";
        return Finding::warning(id, format!("a member of {queues} is unavailable"), remedy);
    }
    let text = match wanted {
        1 => "every queue has its member, which is online".to_owned(),
        wanted => format!("every queue has {wanted} members or more, and all are online"),
    };
    Finding::ok(id, text)
}

fn leaders(queues: &[&ClusterQueue], nodes: &[ClusterNode]) -> Option<Finding> {
    let running = nodes.iter().filter(|node| node.running).count();
    let leaders: BTreeSet<_> = queues.iter().filter_map(|queue| queue.leader.as_deref()).collect();
    if running < 2 || queues.len() < 2 {
        return None;
    }
    Some(match leaders.into_iter().collect::<Vec<_>>().as_slice() {
        [node] => Finding::warning(
            "cluster.leaders",
            format!("all leaders are on {node}, which does the other nodes' work"),
            "rabbitmq-queues rebalance quorum; and set queue_leader_locator = balanced in rabbitmq.conf",
        ),
        nodes => Finding::ok("cluster.leaders", format!("leaders are on {} of {running} nodes", nodes.len())),
    })
}

/// Policies that set of our queues what the services declare or need otherwise.
fn policies(queues: &[&ClusterQueue], vhost: &str) -> Vec<Finding> {
    let id = "cluster.policies";
    let mut wrong = BTreeMap::<_, Vec<&str>>::new();
    for queue in queues {
        let set = queue.effective_policy_definition.as_ref().and_then(harmful);
        if let Some(set) = set {
            let by = (queue.policy.as_deref(), queue.operator_policy.as_deref());
            wrong.entry((by, set)).or_default().push(&queue.name);
        }
    }
    if wrong.is_empty() {
        let is_known = queues.iter().all(|queue| queue.effective_policy_definition.is_some());
        let ok = is_known.then(|| Finding::ok(id, "no policy changes what the services declare"));
        return ok.into_iter().collect();
    }
    let judged = wrong.into_iter().map(|(((policy, operator), (loses, set)), queues)| {
        let both = |of_policy: String, of_operator: String| {
            let both = [policy.map(|name| of_policy + name), operator.map(|name| of_operator + name)];
            both.into_iter().flatten().collect::<Vec<_>>().join(" and ")
        };
        let by = both("policy ".to_owned(), "operator policy ".to_owned());
        let clear = both(format!("clear_policy -p {vhost} "), format!("clear_operator_policy -p {vhost} "));
        let remedy = format!("rabbitmqctl {clear}, or set it again with a pattern that does not match our queues");
        let text = format!("{set} on {} by {by}", listed(&queues));
        match loses {
            true => Finding::error(id, format!("{text}: the queue can lose messages"), remedy),
            false => Finding::warning(id, format!("{text}, where our arguments decide"), remedy),
        }
    });
    judged.collect()
}

/// The keys that our queues must not get from a policy, and whether one of them can lose messages.
fn harmful(definition: &Value) -> Option<(bool, String)> {
    let set = definition.as_object()?.iter().filter(|(key, value)| {
        // The lower of two limits counts, and a thousand redeliveries is ours.
        let is_harmless = *key == "delivery-limit" && value.as_u64().is_some_and(|limit| limit >= 1_000);
        (LOSING_ARGUMENTS.contains(&key.as_str()) || SHADOWED_ARGUMENTS.contains(&key.as_str())) && !is_harmless
    });
    let set: Vec<_> = set.collect();
    let arguments = set.iter().map(|(key, value)| match value {
        Value::String(text) => format!("{key} = {text}"),
        value => format!("{key} = {value}"),
    });
    let loses = set.iter().any(|(key, _)| LOSING_ARGUMENTS.contains(&key.as_str()));
    (!set.is_empty()).then(|| (loses, arguments.collect::<Vec<_>>().join(", ")))
}

fn bindings(seen: &ClusterSeen, observed: &Observed) -> Finding {
    let id = "cluster.bindings";
    // A queue that is missing is shown elsewhere.
    let is_there =
        |queue: &str| !observed.inside().is_some_and(|inside| matches!(inside.queues.get(queue), Some(Seen::Missing)));
    let missing: Vec<_> = seen.wanted.difference(&seen.bindings).filter(|one| is_there(&one.destination)).collect();
    if missing.is_empty() {
        return Finding::ok(id, format!("all {} are there", many(seen.wanted.len(), "binding")));
    }
    let text = format!("{} missing: {}: messages go astray", many(missing.len(), "binding"), binding_texts(&missing));
    let remedy = "event-ingest declares those of the events queue within a minute, and webhookctl dead list declares all. Messages \
                  without a queue came back to their publishers, or are on the queue for unroutable messages";
    Finding::error(id, text, remedy)
}

/// Bindings that the service does not declare: to the service's own queues and exchanges, or from the events exchange.
fn other_bindings(seen: &ClusterSeen, inside: &InsideSeen) -> Vec<Finding> {
    let id = "cluster.other_bindings";
    // RabbitMQ itself binds each queue to the exchange without a name.
    let others = seen.bindings.difference(&seen.wanted).filter(|one| !one.source.is_empty());
    let is_ours = |name: &String| inside.queues.contains_key(name) || inside.exchanges.contains_key(name);
    let (ours, others): (Vec<_>, Vec<_>) = others.partition(|one| is_ours(&one.destination));
    let events = &inside.names.events_exchange;
    let of_events: Vec<_> = others.into_iter().filter(|one| one.source == *events).collect();
    let mut findings = Vec::new();
    if !ours.is_empty() {
        let text = format!("{} that no service declares: {}", many(ours.len(), "binding"), binding_texts(&ours));
        let remedy = "remove it (management plugin: the queue's page, Unbind), unless it is meant: what comes that way and is no \
                      event is rejected";
        findings.push(Finding::warning(id, text, remedy));
    }
    if !of_events.is_empty() {
        let text = format!(
            "{} of others: {}. An event that only others take under its routing key does not come back to its publisher",
            many(of_events.len(), "binding"),
            binding_texts(&of_events)
        );
        findings.push(Finding::note(id, text));
    }
    findings
}

fn binding_texts(bindings: &[&Binding]) -> String {
    let text = |Binding { source, destination, routing_key }: &&Binding| {
        format!("{source} to {destination} by {routing_key:?}")
    };
    let texts: Vec<_> = bindings.iter().map(text).collect();
    listed(&texts.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The first names.
fn listed(names: &[&str]) -> String {
    match names {
        [first, second, third, _, ..] => format!("{first}, {second}, {third} and {} more", names.len() - 3),
        names => names.join(", "),
    }
}
