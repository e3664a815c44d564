//! What `rabbitmqctl` tells of the cluster. Its answers differ between RabbitMQ 3.10 and 4.x: what is missing or has
//! another shape is left out.

use std::collections::{BTreeMap, BTreeSet};

use broker::Broker;
use serde_json::Value;

use super::{
    super::observed::{Binding, ClusterSeen, MembersSeen, NodesSeen, PolicySeen, WaitsSeen},
    rabbitmqctl::ask,
};

/// How long a node waits for a silent one, in seconds, and a retry queue for the confirm of what it hands on, in
/// milliseconds. AMQP shows neither, nor does another command in JSON.
const WAITS: &str = "[net_kernel:get_net_ticktime(), \
    application:get_env(rabbit, dead_letter_worker_publisher_confirm_timeout, undefined)].";

pub(super) async fn look(broker: &Broker, command: &str) -> ClusterSeen {
    let vhost = broker.vhost();
    let list = async |what: &[&str]| {
        let (name, columns) = what.split_first().unwrap_or((&"", &[]));
        ask(command, &[&[*name, "-p", &vhost], columns].concat()).await
    };
    let (nodes, waits, queues, policies, operator_policies, bindings) = tokio::join!(
        ask(command, &["cluster_status"]),
        ask(command, &["eval", WAITS]),
        list(&["list_queues", "name", "policy", "leader", "members", "online"]),
        list(&["list_policies"]),
        list(&["list_operator_policies"]),
        list(&["list_bindings", "source_name", "destination_name", "routing_key"]),
    );
    let rows = |value: Value, read: fn(&Value) -> Option<PolicySeen>| -> Vec<PolicySeen> {
        value.as_array().into_iter().flatten().filter_map(read).collect()
    };
    ClusterSeen {
        nodes: nodes.map(|value| self::nodes(&value)),
        waits: waits.map(|value| self::waits(&value)),
        queues: queues.map(|value| value.as_array().into_iter().flatten().filter_map(members).collect()),
        policies: policies.map(|value| rows(value, policy)),
        operator_policies: operator_policies.map(|value| rows(value, policy)),
        bindings: bindings.map(|value| value.as_array().into_iter().flatten().filter_map(binding).collect()),
        wanted: wanted(broker),
        vhost,
    }
}

fn wanted(broker: &Broker) -> BTreeSet<Binding> {
    let topology = broker.topology();
    let queues = topology.queues.iter().map(|queue| (&queue.name, &queue.bindings));
    let exchanges = topology.exchanges.iter().map(|exchange| (&exchange.name, &exchange.bindings));
    let all = queues.chain(exchanges);
    all.flat_map(|(name, bindings)| bindings.iter().map(|(source, key)| (source.clone(), name.clone(), key.clone())))
        .collect()
}

fn text(value: &Value, key: &str) -> Option<String> {
    Some(value.get(key)?.as_str()?.to_owned()).filter(|text| !text.is_empty())
}

fn texts(value: Option<&Value>) -> Vec<String> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(|text| Some(text.as_str()?.to_owned())).collect()
}

fn nodes(status: &Value) -> NodesSeen {
    let of_all = |key: &str| texts(status.get(key));
    let map = |key: &str| status.get(key).and_then(Value::as_object).into_iter().flatten();
    let alarm = |alarm: &Value| match (text(alarm, "resource"), text(alarm, "node")) {
        (Some(resource), Some(node)) => format!("{resource} at {node}"),
        _ => alarm.to_string(),
    };
    let is_off = |flag: &&Value| {
        text(flag, "state").as_deref() == Some("disabled") && text(flag, "stability").as_deref() != Some("experimental")
    };
    let flags = status.get("feature_flags").and_then(Value::as_array).into_iter().flatten();
    NodesSeen {
        all: [of_all("disk_nodes"), of_all("ram_nodes")].concat(),
        running: of_all("running_nodes"),
        versions: map("versions")
            .filter_map(|(node, versions)| Some((node.clone(), text(versions, "rabbitmq_version")?)))
            .collect(),
        alarms: status.get("alarms").and_then(Value::as_array).into_iter().flatten().map(alarm).collect(),
        partitions: map("partitions").map(|(node, others)| format!("{node} {others}")).collect(),
        disabled: flags.filter(is_off).filter_map(|flag| text(flag, "name")).collect(),
    }
}

fn waits(answer: &Value) -> Option<WaitsSeen> {
    let number = |at: usize| answer.get("value")?.get(at)?.as_u64();
    Some(WaitsSeen { silent_node_s: number(0)?, confirm_ms: number(1)? })
}

fn members(queue: &Value) -> Option<MembersSeen> {
    Some(MembersSeen {
        name: text(queue, "name")?,
        policy: text(queue, "policy"),
        leader: text(queue, "leader"),
        members: texts(queue.get("members")),
        online: texts(queue.get("online")),
    })
}

/// A policy's definition is an object, or the text of one.
fn policy(policy: &Value) -> Option<PolicySeen> {
    let definition = match policy.get("definition")? {
        Value::String(text) => serde_json::from_str(text).ok()?,
        value => value.clone(),
    };
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let definition: BTreeMap<_, _> =
        definition.as_object()?.iter().map(|(key, value)| (key.clone(), plain(value))).collect();
    Some(PolicySeen { name: text(policy, "name")?, pattern: text(policy, "pattern").unwrap_or_default(), definition })
}

fn binding(binding: &Value) -> Option<Binding> {
    let key = text(binding, "routing_key").unwrap_or_default();
    Some((text(binding, "source_name")?, text(binding, "destination_name")?, key))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_status_of_a_cluster_is_read() {
        let status = json!({
            "disk_nodes": ["a@x", "b@x"], "ram_nodes": [], "running_nodes": ["a@x"], "partitions": {"a@x": ["b@x"]},
            "alarms": [{"node": "a@x", "resource": "memory"}, "file_descriptor_limit"],
            "versions": {"a@x": {"erlang_version": "25", "rabbitmq_version": "3.10.8"}},
            "feature_flags": [
                {"name": "on", "state": "enabled", "stability": "stable"},
                {"name": "off", "state": "disabled", "stability": "stable"},
                {"name": "new", "state": "disabled", "stability": "experimental"},
            ],
        });
        let seen = nodes(&status);
        assert_eq!((seen.all.len(), seen.running.as_slice()), (2, ["a@x".to_owned()].as_slice()));
        assert_eq!(seen.alarms, ["memory at a@x", "\"file_descriptor_limit\""]);
        assert_eq!(seen.versions["a@x"], "3.10.8");
        assert_eq!((seen.disabled, seen.partitions), (vec!["off".to_owned()], vec!["a@x [\"b@x\"]".to_owned()]));
    }

    #[test]
    fn what_a_node_waits_for_is_read() {
        let answer = json!({"node": "a@x", "result": "ok", "value": [12, 20_000]});
        assert_eq!(waits(&answer), Some(WaitsSeen { silent_node_s: 12, confirm_ms: 20_000 }));
        // While the time is being changed, and a release without the setting.
        for value in [json!([["ongoing_change_to", 12], 20_000]), json!([60, "undefined"]), json!("[60,180000]")] {
            assert_eq!(waits(&json!({"value": value})), None);
        }
    }

    #[test]
    fn what_has_another_shape_is_left_out() {
        assert_eq!(nodes(&json!([])), NodesSeen::default());
        assert_eq!(nodes(&json!({"alarms": {}, "versions": [], "feature_flags": "none"})), NodesSeen::default());
        assert_eq!(members(&json!({"policy": "p"})), None);
        let of_classic = json!({"name": "q", "policy": "", "leader": "", "members": "", "online": ""});
        assert_eq!(members(&of_classic), Some(MembersSeen { name: "q".to_owned(), ..MembersSeen::default() }));
        assert_eq!(binding(&json!({"source_name": "", "destination_name": "q"})), None, "of the default exchange");
    }

    #[test]
    fn a_definition_is_an_object_or_its_text() {
        for definition in
            [json!({"message-ttl": 5, "overflow": "drop-head"}), json!(r#"{"message-ttl":5,"overflow":"drop-head"}"#)]
        {
            let seen = policy(&json!({"name": "p", "pattern": "^q", "definition": definition})).unwrap();
            assert_eq!(
                (seen.definition["message-ttl"].as_str(), seen.definition["overflow"].as_str()),
                ("5", "drop-head")
            );
        }
        assert_eq!(policy(&json!({"name": "p", "definition": 3})), None);
    }
}
