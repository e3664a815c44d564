//! Area `cluster`: what only `rabbitmqctl` sees.

use std::collections::BTreeSet;

use broker::Seen;

use super::{
    super::{
        finding::{Finding, many},
        observed::{ClusterSeen, MembersSeen, NodesSeen, Observed, PolicySeen, WaitsSeen},
    },
    unseen,
};

/// What a policy must not do: it would take messages away, or refuse them.
const LOSES: [&str; 5] = ["message-ttl", "expires", "max-length", "max-length-bytes", "delivery-limit"];
/// What a policy should not do: our arguments win where there are any.
const SHADOWS: [&str; 4] = ["dead-letter-exchange", "dead-letter-routing-key", "dead-letter-strategy", "overflow"];
/// Three members survive the loss of one; more cost more than they are worth.
const ENOUGH: usize = 3;
const WAITS: &str = "cluster.waits";
/// The longest waits for a silent node that keep to what deploy/production.md promises.
const SILENT_NODE_S: u64 = 20;
const CONFIRM_MS: u64 = 30_000;

pub(super) fn check(observed: &Observed) -> Vec<Finding> {
    let Some(seen) = &observed.cluster else {
        let is_there = observed.inside().is_some();
        let text = "members, leaders and policies of queues are seen with --rabbitmqctl \"rabbitmqctl\"";
        return is_there.then(|| Finding::note("cluster.nodes", text)).into_iter().collect();
    };
    let mut findings = match &seen.nodes {
        Ok(nodes) => of_nodes(nodes),
        Err(why) => vec![unseen("cluster.nodes", why)],
    };
    if seen.nodes.as_ref().is_ok_and(|nodes| nodes.all.len() > 1) {
        findings.push(match &seen.waits {
            Ok(seen) => waits(*seen),
            Err(why) => unseen(WAITS, why),
        });
    }
    match &seen.queues {
        Ok(queues) => {
            let ours = ours(queues, observed);
            let nodes = seen.nodes.as_ref().ok();
            if !ours.is_empty() {
                findings.push(members(&ours, nodes));
                findings.extend(leaders(&ours, nodes));
                findings.extend(policies(&ours, seen));
                findings.push(bindings(seen, observed));
            }
        }
        Err(why) => findings.push(unseen("cluster.members", why)),
    }
    findings
}

/// The queues of the service.
fn ours<'q>(queues: &'q [MembersSeen], observed: &Observed) -> Vec<&'q MembersSeen> {
    let known = observed.inside().map(|inside| &inside.queues);
    queues.iter().filter(|queue| known.is_none_or(|known| known.contains_key(&queue.name))).collect()
}

fn of_nodes(nodes: &NodesSeen) -> Vec<Finding> {
    let NodesSeen { all, running, versions, alarms, partitions, disabled } = nodes;
    let stopped: Vec<_> = all.iter().filter(|node| !running.contains(node)).cloned().collect();
    let nodes = match (all.len(), stopped.as_slice()) {
        (1, []) => {
            Finding::note("cluster.nodes", "one node: if its disk is lost, so are events that nobody has ingested")
        }
        (count, []) => Finding::ok("cluster.nodes", format!("all {count} nodes run")),
        _ => Finding::error("cluster.nodes", format!("not running: {}", stopped.join(", ")), "start RabbitMQ there"),
    };
    let mut findings = vec![nodes];
    let kinds: BTreeSet<_> = versions.values().collect();
    if let [_, _, ..] = kinds.into_iter().collect::<Vec<_>>().as_slice() {
        let told: Vec<_> = versions.iter().map(|(node, version)| format!("{node} {version}")).collect();
        let remedy = "right during an upgrade only: finish it";
        findings.push(Finding::warning("cluster.versions", format!("the nodes differ: {}", told.join(", ")), remedy));
    }
    if !alarms.is_empty() {
        let remedy = "free memory or disk on that node; until then all publishers of the cluster wait";
        findings.push(Finding::error("cluster.alarms", format!("alarms: {}", alarms.join(", ")), remedy));
    }
    if !partitions.is_empty() {
        let remedy = "restart the nodes of the smaller side; set cluster_partition_handling = pause_minority";
        findings.push(Finding::error(
            "cluster.partitions",
            format!("nodes do not see: {}", partitions.join(", ")),
            remedy,
        ));
    }
    if !disabled.is_empty() {
        let names = disabled.join(", ");
        let text = format!("stable feature flags are off: {names}");
        let remedy = "rabbitmqctl enable_feature_flag all, once all nodes have the same version";
        // Dead-lettering at least once needs it.
        findings.push(match disabled.iter().any(|flag| flag == "stream_queue") {
            true => Finding::error(
                "cluster.features",
                format!("{text}; without stream_queue expired jobs can be lost"),
                remedy,
            ),
            false => Finding::warning("cluster.features", text, remedy),
        });
    }
    findings
}

/// By default deliveries stand still for a minute when a node is silent, and retries for three.
fn waits(seen: Option<WaitsSeen>) -> Finding {
    let Some(WaitsSeen { silent_node_s, confirm_ms }) = seen else {
        return Finding::note(
            WAITS,
            "this release of RabbitMQ does not show how long the nodes wait for a silent node",
        );
    };
    let confirm_s = confirm_ms.div_ceil(1_000);
    let text = format!(
        "a silent node is given up after {silent_node_s} s, and a retry that it did not confirm is handed on again after {confirm_s} s"
    );
    if silent_node_s <= SILENT_NODE_S && confirm_ms <= CONFIRM_MS {
        return Finding::ok(WAITS, text);
    }
    let remedy = "[{kernel, [{net_ticktime, 12}]}, {rabbit, [{dead_letter_worker_publisher_confirm_timeout, 20000}]}]. in each node's advanced.config";
    Finding::warning(WAITS, text, remedy)
}

fn members(queues: &[&MembersSeen], nodes: Option<&NodesSeen>) -> Finding {
    let id = "cluster.members";
    let names = |is_one: &dyn Fn(&MembersSeen) -> bool| -> Vec<&str> {
        queues.iter().filter(|queue| is_one(queue)).map(|queue| queue.name.as_str()).collect()
    };
    let leaderless = names(&|queue| queue.leader.is_none() || queue.online.len() * 2 <= queue.members.len());
    if !leaderless.is_empty() {
        let remedy = "start the nodes with their members; nobody publishes or consumes there until most of them run";
        return Finding::error(id, format!("without a majority of members: {}", listed(&leaderless)), remedy);
    }
    let wanted = nodes.map_or(1, |nodes| nodes.all.len()).min(ENOUGH);
    let few = names(&|queue| queue.members.len() < wanted);
    if !few.is_empty() {
        let remedy = "rabbitmq-queues grow NODE all, for each node that has none";
        return Finding::warning(
            id,
            format!("fewer than {} on {}", many(i64::try_from(wanted).unwrap_or(1), "member"), listed(&few)),
            remedy,
        );
    }
    let away = names(&|queue| queue.online.len() < queue.members.len());
    if !away.is_empty() {
        let text = format!("a member of {} is unavailable", listed(&away));
        return Finding::warning(
            id,
            text,
            "start the member's node; if the node is lost permanently, rabbitmq-queues shrink NODE",
        );
    }
    let text = match wanted {
        1 => "every queue has its member, which is online".to_owned(),
        wanted => format!("every queue has {wanted} members or more, and all are online"),
    };
    Finding::ok(id, text)
}

fn leaders(queues: &[&MembersSeen], nodes: Option<&NodesSeen>) -> Option<Finding> {
    let running = nodes?.running.len();
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

fn policies(queues: &[&MembersSeen], seen: &ClusterSeen) -> Vec<Finding> {
    let id = "cluster.policies";
    let mut findings = Vec::new();
    match &seen.policies {
        Err(why) => findings.push(unseen(id, why)),
        Ok(policies) => {
            for policy in policies {
                let under = queues.iter().filter(|queue| queue.policy.as_deref() == Some(&policy.name));
                let under: Vec<_> = under.map(|queue| queue.name.as_str()).collect();
                if !under.is_empty() {
                    findings.extend(judged(policy, &format!("of {}", listed(&under)), "clear_policy", seen));
                }
            }
        }
    }
    // Which queues these apply to is not told.
    for policy in seen.operator_policies.iter().flatten() {
        let to = format!("of queues like {}", policy.pattern);
        let judged = judged(policy, &to, "clear_operator_policy", seen);
        findings.extend(judged.map(|finding| match finding.remedy {
            Some(remedy) => {
                Finding::warning(id, format!("operator {}", finding.text), format!("if that is ours: {remedy}"))
            }
            None => finding,
        }));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(id, "no policy changes what the services declare"));
    }
    findings
}

fn judged(policy: &PolicySeen, of: &str, clear: &str, seen: &ClusterSeen) -> Option<Finding> {
    let of_kind = |keys: &[&str]| -> Vec<String> {
        let is_one = |(key, value): &(&String, &String)| {
            keys.contains(&key.as_str()) && !is_harmless(key.as_str(), value.as_str())
        };
        policy.definition.iter().filter(is_one).map(|(key, value)| format!("{key} = {value}")).collect()
    };
    let (loses, shadows) = (of_kind(&LOSES), of_kind(&SHADOWS));
    let name = &policy.name;
    let remedy = format!(
        "rabbitmqctl {clear} -p {} {name}, or set it again with a pattern that does not match our queues",
        seen.vhost
    );
    let id = "cluster.policies";
    match (loses.as_slice(), shadows.as_slice()) {
        ([], []) => None,
        ([], _) => Some(Finding::warning(
            id,
            format!("policy {name} sets {} {of}, where our arguments decide", shadows.join(", ")),
            remedy,
        )),
        _ => Some(Finding::error(
            id,
            format!("policy {name} sets {} {of}: it can lose messages", loses.join(", ")),
            remedy,
        )),
    }
}

/// The lower of two limits counts, and a thousand redeliveries is ours.
fn is_harmless(key: &str, value: &str) -> bool {
    key == "delivery-limit" && value.parse::<u64>().is_ok_and(|limit| limit >= 1_000)
}

fn bindings(seen: &ClusterSeen, observed: &Observed) -> Finding {
    let id = "cluster.bindings";
    match &seen.bindings {
        Err(why) => unseen(id, why),
        Ok(there) => {
            // A queue that is missing is told elsewhere.
            let is_there = |queue: &str| {
                !observed.inside().is_some_and(|inside| matches!(inside.queues.get(queue), Some(Seen::Missing)))
            };
            let missing: Vec<_> =
                seen.wanted.difference(there).filter(|(_, destination, _)| is_there(destination)).collect();
            match missing.as_slice() {
                [] => Finding::ok(
                    id,
                    format!("all {} are there", many(i64::try_from(seen.wanted.len()).unwrap_or(0), "binding")),
                ),
                [(source, destination, key), ..] => Finding::error(
                    id,
                    format!(
                        "{} missing, such as {source} to {destination} by {key:?}: messages go astray",
                        many(i64::try_from(missing.len()).unwrap_or(0), "binding")
                    ),
                    "webhookctl dead list declares them again; lost events have to be published again",
                ),
            }
        }
    }
}

/// The first names.
fn listed(names: &[&str]) -> String {
    match names {
        [first, second, third, _, ..] => format!("{first}, {second}, {third} and {} more", names.len() - 3),
        names => names.join(", "),
    }
}
