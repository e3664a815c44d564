//! From the event to the receiver.

use domain::EventType;
use end_to_end::{
    events::Event,
    receiver::{Receiver, always, verify},
    system::{Options, System},
    wait::{SOON, eventually},
};
use uuid::Uuid;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_the_seven_event_types_reaches_its_subscriber_signed() {
    System::run(Options::default(), async |system| {
        let tenant = Uuid::new_v4();
        let api = system.admin(tenant).await;
        let receiver = Receiver::start(&system.ca, always(200));
        let all = EventType::ALL.map(EventType::as_str);
        let webhook = api.create(&receiver.url("/hook?x=1"), &all).await;
        let events = EventType::ALL.map(|event_type| Event::now(event_type, tenant));
        system.upstream.publish(&events).await;
        let received = receiver.wait_for(7, SOON).await;
        for one in &received {
            verify(one, &webhook.secret).unwrap();
            assert_eq!(one.path, "/hook?x=1");
        }
        let mut types: Vec<_> = received.iter().map(|one| one.header("x-service-event").unwrap().to_owned()).collect();
        types.sort();
        let mut expected = all.to_vec();
        expected.sort_unstable();
        assert_eq!(types, expected);
        let health = eventually("health is recorded", SOON, || async {
            let health = api.webhook(&webhook.id).await;
            (!health["last_success_at"].is_null()).then_some(health)
        })
        .await;
        assert_eq!(health["failure_count"], 0);
    })
    .await;
}
