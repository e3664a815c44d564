//! The broker's cluster, by RabbitMQ's management API.

use std::collections::BTreeSet;

use base64::{Engine, engine::general_purpose::STANDARD};
use broker::Broker;
use domain::error_chain;
use serde::de::DeserializeOwned;
use service_kit::settings;

use super::{
    super::observed::{Binding, ClusterSeen, Looked},
    STEP_TIMEOUT,
};
use crate::connect;

/// Looks at nodes, queues and bindings, if the settings name the API.
pub(super) async fn look(broker: &Broker, settings: &settings::Broker) -> Option<Looked<ClusterSeen>> {
    let base = settings.management_url.as_ref()?;
    let vhost = broker.vhost();
    let url = |path: &[&str], columns: &str| {
        let mut url = base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("api").extend(path);
        }
        url.set_query(Some(&format!("columns={columns}")));
        url.to_string()
    };
    let nodes = "name,running,mem_alarm,disk_free_alarm,partitions,net_ticktime,applications";
    let queues = "name,policy,operator_policy,effective_policy_definition,leader,members,online";
    let (nodes, queues) = (url(&["nodes"], nodes), url(&["queues", &vhost], queues));
    let bindings = url(&["bindings", &vhost], "source,destination,routing_key");
    let seen = async {
        let (user, password) = broker.login().map_err(|error| error_chain(&error))?;
        let authorization = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
        let read = settings.ca_file.as_ref().map(std::fs::read).transpose();
        let authorities = read.map_err(|error| format!("broker.ca_file cannot be read: {error}"))?;
        let access = (authorization.as_str(), authorities.as_ref());
        let (nodes, queues, bindings) =
            tokio::try_join!(get(&nodes, access), get(&queues, access), get(&bindings, access))?;
        Ok(ClusterSeen { nodes, queues, bindings, wanted: wanted(broker), vhost })
    };
    Some(seen.await.map_err(|why: String| format!("{base}: {why}")))
}

/// Asks as a user, and trusts authorities.
async fn get<T: DeserializeOwned>(url: &str, (authorization, authorities): (&str, Option<&Vec<u8>>)) -> Looked<T> {
    let client = connect::client(url, STEP_TIMEOUT * 2, authorities.cloned()).map_err(|error| error_chain(&error))?;
    let answer = client.get("authorization", authorization).await.map_err(|error| error_chain(&error))?;
    match answer.status {
        200 => serde_json::from_slice(&answer.body).map_err(|error| format!("it answers with other JSON: {error}")),
        401 => Err("it answers 401: the user of broker.url needs the tag monitoring".to_owned()),
        status => Err(format!("it answers {status}")),
    }
}

fn wanted(broker: &Broker) -> BTreeSet<Binding> {
    let topology = broker.topology();
    let queues = topology.queues.iter().map(|queue| (&queue.name, &queue.bindings));
    let exchanges = topology.exchanges.iter().map(|exchange| (&exchange.name, &exchange.bindings));
    let binding = |destination: &String, (source, routing_key): &(String, String)| Binding {
        source: source.clone(),
        destination: destination.clone(),
        routing_key: routing_key.clone(),
    };
    queues.chain(exchanges).flat_map(|(name, bindings)| bindings.iter().map(move |one| binding(name, one))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::observed::{ClusterNode, ClusterQueue};

    /// The answers of RabbitMQ 3.10.8, with a second node that does not run.
    #[test]
    fn nodes_and_queues_are_read_with_statistics_and_without() {
        let nodes: Vec<ClusterNode> = serde_json::from_value(json!([
            {
                "partitions": [], "mem_alarm": true, "disk_free_alarm": false, "net_ticktime": 60, "name": "rabbit@a",
                "running": true,
                "applications": [
                    {"name": "os_mon", "description": "CPO  CXC 138 46", "version": "2.8.1"},
                    {"name": "rabbit", "description": "RabbitMQ", "version": "3.10.8"},
                ],
            },
            {"name": "rabbit@b", "running": false},
        ]))
        .unwrap();
        assert_eq!((nodes[0].version(), nodes[0].mem_alarm, nodes[0].running), (Some("3.10.8"), true, true));
        assert_eq!(nodes[0].net_ticktime.as_ref().and_then(Value::as_u64), Some(60));
        assert_eq!((nodes[1].version(), nodes[1].running, nodes[1].net_ticktime.is_some()), (None, false, false));

        let queues: Vec<ClusterQueue> = serde_json::from_value(json!([
            {
                "effective_policy_definition": {}, "name": "classic", "node": "rabbit@a", "operator_policy": null,
                "policy": null, "state": "running", "type": "classic",
            },
            {
                "effective_policy_definition": {"max-length": 5, "message-ttl": 1000}, "leader": "rabbit@a",
                "members": ["rabbit@a"], "name": "webhooks.dead", "node": "rabbit@a", "online": ["rabbit@a"],
                "operator_policy": "oper", "policy": "short", "state": "running", "type": "quorum",
            },
            {
                "leader": "rabbit@a", "members": ["rabbit@a"], "name": "webhooks.dead", "online": ["rabbit@a"],
                "policy": "short", "state": "live", "type": "quorum",
            },
        ]))
        .unwrap();
        assert_eq!((queues[0].policy.as_deref(), queues[0].members.len()), (None, 0));
        assert_eq!((queues[1].policy.as_deref(), queues[1].operator_policy.as_deref()), (Some("short"), Some("oper")));
        assert_eq!(queues[1].effective_policy_definition, Some(json!({"max-length": 5, "message-ttl": 1000})));
        assert_eq!((queues[1].online.len(), queues[2].effective_policy_definition.as_ref()), (1, None));
    }
}
