//! The broker, over AMQP.

use std::{collections::BTreeMap, time::Duration};

use broker::{Broker, BrokerError, Examiner, Seen};
use domain::error_chain;
use ledger::Ledger;
use tokio::time::timeout;

use super::{
    super::observed::{BrokerSeen, InsideSeen},
    STEP_TIMEOUT,
};

/// The `max_message_size` that deploy/README.md sets. An ingest holds four such events.
const MAX_MESSAGE_BYTES: usize = 1024 * 1024;
/// How long a broker may take for all its queues.
const ALL_QUEUES_TIMEOUT: Duration = Duration::from_secs(8);

pub(super) async fn look(broker: &Broker, ledger: Option<&Ledger>) -> BrokerSeen {
    let (nodes, examiner) = broker.examine(STEP_TIMEOUT).await;
    let Some(examiner) = examiner else { return BrokerSeen { nodes, inside: None } };
    let topology = broker.topology();
    // Until they have answered: the time may be too short for all.
    let unknown = |name: &String| (name.clone(), Seen::Unknown(BrokerError::Timeout(ALL_QUEUES_TIMEOUT)));
    let mut exchanges: BTreeMap<_, _> = topology.exchanges.iter().map(|exchange| unknown(&exchange.name)).collect();
    let mut queues: BTreeMap<_, _> = topology.queues.iter().map(|queue| unknown(&queue.name)).collect();
    let sentinel = timeout(ALL_QUEUES_TIMEOUT, async {
        for exchange in &topology.exchanges {
            exchanges.insert(exchange.name.clone(), examiner.exchange(exchange).await);
        }
        for queue in &topology.queues {
            queues.insert(queue.name.clone(), examiner.queue(queue).await);
        }
        sentinel(broker, &examiner, ledger).await
    });
    let sentinel = sentinel.await.ok().flatten();
    // Last, as an alarm ends what can be done with the connection.
    let (is_blocked, accepts_larger) = match exchanges.get(&broker.names().exchange()) {
        Some(Seen::Present { .. }) => {
            let (is_blocked, accepts) = tokio::join!(examiner.is_blocked(), examiner.accepts(MAX_MESSAGE_BYTES + 1));
            let looked = |seen: Result<bool, BrokerError>| Some(seen.map_err(|error| error_chain(&error)));
            (looked(is_blocked), looked(accepts))
        }
        _ => (None, None),
    };
    examiner.close().await;
    let names = broker.names().clone();
    BrokerSeen { nodes, inside: Some(InsideSeen { is_blocked, accepts_larger, exchanges, queues, names, sentinel }) }
}

/// The queue that the ledger knows this broker by.
async fn sentinel(broker: &Broker, examiner: &Examiner, ledger: Option<&Ledger>) -> Option<(String, Seen)> {
    let generation = timeout(STEP_TIMEOUT, ledger?.generation_seen()).await.ok()?.ok()?;
    let queue = broker.names().generation(generation.id?);
    let seen = examiner.passive_queue(&queue).await;
    Some((queue, seen))
}
