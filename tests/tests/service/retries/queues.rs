//! The schedule as the broker's queues (crates/README.md, queues).

use end_to_end::{
    receiver::{Receiver, always},
    system::{Options, System},
    wait::{SOON, eventually},
};
use lapin::{
    Connection, ConnectionProperties, Queue,
    options::QueueDeclareOptions,
    types::{AMQPValue, FieldTable},
};
use uuid::Uuid;

use crate::retries::publish;

/// The schedule of the specification, section 8.
const PRODUCTION: &str = "60s,5m,15m,1h,4h,12h";
/// The gaps between its steps: queue and delay in milliseconds.
const DELAYS: [(&str, i64); 6] = [
    ("60s", 60_000),
    ("240s", 240_000),
    ("600s", 600_000),
    ("2700s", 2_700_000),
    ("10800s", 10_800_000),
    ("28800s", 28_800_000),
];

/// The arguments of a retry queue, with all that at-least-once dead-lettering needs.
fn arguments(system: &System, millis: i64) -> FieldTable {
    let text = |value: &str| AMQPValue::LongString(value.into());
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), text("quorum"));
    arguments.insert("x-message-ttl".into(), AMQPValue::LongLongInt(millis));
    arguments.insert("x-delivery-limit".into(), AMQPValue::LongLongInt(1_000));
    arguments.insert("x-overflow".into(), text("reject-publish"));
    arguments.insert("x-dead-letter-strategy".into(), text("at-least-once"));
    arguments.insert("x-dead-letter-exchange".into(), text(&system.names.exchange()));
    arguments.insert("x-dead-letter-routing-key".into(), text(&system.names.main()));
    arguments
}

/// Declares a queue again, on a channel that an error may close.
async fn declare(broker: &Connection, queue: &str, arguments: FieldTable) -> Result<Queue, lapin::Error> {
    let channel = broker.create_channel().await.unwrap();
    let options = QueueDeclareOptions { durable: true, ..Default::default() };
    channel.queue_declare(queue.into(), options, arguments).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_production_schedule_is_six_queues_that_lead_back_to_the_deliveries() {
    System::run(Options { schedule: PRODUCTION, ..Options::default() }, async |system| {
        let broker = Connection::connect(&system.amqp_url, ConnectionProperties::default()).await.unwrap();
        for (name, millis) in DELAYS {
            let queue = format!("{}.retry.{name}", system.names.exchange());
            // The outsider declares passively: the queue exists already.
            assert_eq!(system.upstream.ready(&queue).await, 0);
            declare(&broker, &queue, arguments(&system, millis)).await.unwrap();
            let other = |name: &'static str, value: AMQPValue| {
                let mut other = arguments(&system, millis);
                other.insert(name.into(), value);
                declare(&broker, &queue, other)
            };
            let text = |value: &str| AMQPValue::LongString(value.into());
            for (name, value) in [
                ("x-message-ttl", AMQPValue::LongLongInt(millis + 1)),
                ("x-dead-letter-routing-key", text("elsewhere")),
                ("x-dead-letter-exchange", text("elsewhere")),
                ("x-overflow", text("drop-head")),
                ("x-dead-letter-strategy", text("at-most-once")),
                ("x-delivery-limit", AMQPValue::LongLongInt(20)),
            ] {
                let refused = other(name, value).await;
                assert!(refused.is_err_and(|error| error.to_string().contains("PRECONDITION")), "{queue}: {name}");
            }
        }
        broker.close(200, "bye".into()).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_first_attempt_leaves_one_small_job_in_the_queue_of_a_minute() {
    System::run(Options { schedule: PRODUCTION, ..Options::default() }, async |system| {
        let tenant = Uuid::new_v4();
        let receiver = Receiver::start(&system.ca, always(500));
        system.admin(tenant).await.create(&receiver.url("/"), &["quote.closed"]).await;
        publish(&system, tenant).await;
        let queue = format!("{}.retry.60s", system.names.exchange());
        eventually("the retry waits", SOON, || async { (system.upstream.ready(&queue).await == 1).then_some(()) })
            .await;
        for queue in &system.retry_queues()[1..] {
            assert_eq!(system.upstream.ready(queue).await, 0, "{queue}");
        }
        let id = receiver.received()[0].header("x-service-webhook-id").unwrap().to_owned();
        let message = system.upstream.take(&queue).await.unwrap().delivery;
        let job: serde_json::Value = serde_json::from_slice(&message.data).unwrap();
        assert_eq!(job, serde_json::json!({"v": 1, "delivery_id": id, "attempt": 2}));
        let expires: u64 = message.properties.expiration().clone().unwrap().as_str().parse().unwrap();
        // What is left of the minute since the first failure.
        assert!((30_000..=60_000).contains(&expires), "it expires in {expires} ms");
        let due = "SELECT next_attempt_at - first_failed_at = interval '60 s' FROM deliveries";
        assert!(system.sql(due).await[0].get::<_, bool>(0));
    })
    .await;
}
