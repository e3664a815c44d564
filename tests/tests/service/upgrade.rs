//! Two versions of the service side by side: each gets messages of the other.

use std::time::{Duration, Instant};

use broker::Names;
use domain::{EventType, Job};
use end_to_end::{
    events::Event,
    receiver::{Receiver, always},
    system::{Options, Service, System},
    wait::{SOON, eventually},
};
use lapin::types::AMQPValue;
use uuid::Uuid;

/// The queues from which dispatchers take jobs.
fn lanes(names: &Names) -> Vec<String> {
    vec![names.main(), names.bulk(), names.slow()]
}

/// Well below any timeout that could delay a delivery.
const AT_ONCE: Duration = Duration::from_secs(8);

async fn subscriber(system: &System) -> (Receiver, Event) {
    let tenant = Uuid::new_v4();
    let receiver = Receiver::start(&system.ca, always(200));
    system.admin(tenant).await.create(&receiver.url("/"), &["quote.closed"]).await;
    (receiver, Event::now(EventType::QuoteClosed, tenant))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_a_later_version_are_parked_untouched_from_every_lane_and_hold_nothing_up() {
    System::run(Options::default(), async |system| {
        let (receiver, event) = subscriber(&system).await;
        let mut later = Vec::new();
        for lane in lanes(&system.names) {
            for number in 0..20 {
                let body = format!(r#"{{ "v": 3, "lane": "{lane}", "number": {number}, "to": ["somebody", 1.50] }}"#);
                system.upstream.publish_to(&system.names.exchange(), &lane, body.as_bytes()).await;
                later.push(body.into_bytes());
            }
        }
        let published = Instant::now();
        system.upstream.publish(&[event]).await;
        receiver.wait_for(1, SOON).await;
        assert!(published.elapsed() < AT_ONCE, "it waited for {:?}", published.elapsed());

        let dead = system.names.dead();
        let all = u32::try_from(later.len()).unwrap();
        eventually("they are parked", SOON, || async { (system.upstream.ready(&dead).await == all).then_some(()) })
            .await;
        let mut parked = Vec::new();
        while let Some(message) = system.upstream.take(&dead).await {
            let headers = message.delivery.properties.headers().clone().unwrap();
            let reason = headers.inner().get("x-dead-reason").cloned();
            assert_eq!(reason, Some(AMQPValue::LongString("unknown_version".into())));
            assert!(headers.inner().contains_key("x-dead-detail"));
            parked.push(message.delivery.data);
        }
        parked.sort();
        later.sort();
        assert_eq!(parked, later, "bodies are untouched");
        for lane in lanes(&system.names) {
            assert_eq!(system.upstream.ready(&lane).await, 0);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_with_members_that_nobody_knows_yet_is_done() {
    System::prepared(Options::default(), async |system| {
        system.start(Service::Api).await;
        system.start(Service::Ingest).await;
        let (receiver, event) = subscriber(&system).await;
        system.upstream.publish(&[event]).await;
        let queue = system.names.main();
        let made = eventually("ingest makes the job", SOON, || system.upstream.take(&queue)).await;
        let Job { delivery, attempt } = Job::parse(&made.delivery.data).unwrap()[0];
        let job =
            format!(r#"{{"lane":"fast","v":1,"delivery_id":"{delivery}","more":{{"a":[1]}},"attempt":{attempt}}}"#);
        system.upstream.publish_to(&system.names.exchange(), &queue, job.as_bytes()).await;
        system.start(Service::Dispatcher).await;
        let received = receiver.wait_for(1, SOON).await;
        assert_eq!(received[0].header("x-service-webhook-id"), Some(delivery.to_string().as_str()));
        assert_eq!(system.upstream.ready(&system.names.dead()).await, 0);
    })
    .await;
}
