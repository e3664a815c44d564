//! The broker, over AMQP.

use std::{collections::BTreeMap, time::Duration};

use broker::{Broker, Examiner, Seen};
use ledger::Ledger;
use tokio::time::timeout;

use super::{
    super::observed::{BrokerSeen, InsideSeen, Roles},
    PATIENCE, error_chain,
};

/// How long a broker may take for all its queues.
const ALL_QUEUES: Duration = Duration::from_secs(8);

pub(super) async fn look(broker: &Broker, ledger: Option<&Ledger>) -> BrokerSeen {
    let (nodes, examiner) = broker.examine(PATIENCE).await;
    let Some(examiner) = examiner else { return BrokerSeen { nodes, inside: None } };
    let (topology, mut queues, mut exchanges) = (broker.topology(), BTreeMap::new(), BTreeMap::new());
    let sentinel = timeout(ALL_QUEUES, async {
        for exchange in &topology.exchanges {
            exchanges.insert(exchange.name.clone(), examiner.exchange(exchange).await);
        }
        for queue in &topology.queues {
            queues.insert(queue.name.clone(), examiner.queue(queue).await);
        }
        sentinel(broker, &examiner, ledger).await
    });
    let sentinel = sentinel.await.ok().flatten();
    // Those that the time was too short for.
    let unknown = || Seen::Unknown(broker::BrokerError::Timeout(ALL_QUEUES));
    for exchange in &topology.exchanges {
        exchanges.entry(exchange.name.clone()).or_insert_with(unknown);
    }
    for queue in &topology.queues {
        queues.entry(queue.name.clone()).or_insert_with(unknown);
    }
    // Last, as an alarm ends what can be done with the connection.
    let is_blocked = match exchanges.get(&broker.names().exchange()) {
        Some(Seen::Present { .. }) => Some(examiner.is_blocked().await.map_err(|error| error_chain(&error))),
        _ => None,
    };
    examiner.close().await;
    let names = broker.names();
    let roles = Roles {
        events: names.events(),
        deliveries: names.main(),
        bulk: names.bulk(),
        slow: names.slow(),
        rejected: names.rejected(),
        unknown_key: names.unknown_key(),
        dead: names.dead(),
        unroutable: names.unroutable(),
        notices: names.notices(),
    };
    BrokerSeen { nodes, inside: Some(InsideSeen { is_blocked, exchanges, queues, roles, sentinel }) }
}

/// The queue that the ledger knows this broker by.
async fn sentinel(broker: &Broker, examiner: &Examiner, ledger: Option<&Ledger>) -> Option<(String, Seen)> {
    let generation = timeout(PATIENCE, ledger?.generation_seen()).await.ok()?.ok()?;
    let queue = broker.names().generation(generation.id?);
    let seen = examiner.passive_queue(&queue).await;
    Some((queue, seen))
}
