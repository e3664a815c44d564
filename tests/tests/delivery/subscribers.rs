//! Who subscribes is supposed, and checked by the statement that stores.

use domain::{DeliveryId, EventId, EventType, TenantId, Timestamp, WebhookId};
use end_to_end::{
    events::Event,
    receiver::{Receiver, always},
    system::{Options, Service, System},
};
use ledger::{Ledger, LedgerConfig, NewDelivery, NewEvent, Stored, Subscriber};
use serde_json::json;
use uuid::Uuid;

use crate::{judged, settled, start_all};

/// An event of now, and its delivery to each of the webhooks.
fn planned(tenant: TenantId, webhooks: &[WebhookId]) -> (NewEvent, Vec<NewDelivery>) {
    let (id, event_type) = (EventId::from(Uuid::now_v7()), EventType::QuoteClosed);
    let timestamp: Timestamp = Event::now(event_type, tenant.as_uuid()).timestamp.parse().unwrap();
    let delivery = |webhook: &WebhookId| NewDelivery {
        id: DeliveryId::derive(*webhook, id, timestamp),
        webhook: *webhook,
        event: id,
        event_type,
    };
    let deliveries = webhooks.iter().map(delivery).collect();
    (NewEvent { id, timestamp, tenant, event_type, body: b"{}"[..].into() }, deliveries)
}

fn all(webhooks: &[WebhookId]) -> Vec<Subscriber> {
    webhooks.iter().map(|webhook| Subscriber { pair: 0, webhook: *webhook }).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_subscribe_to_than_was_supposed_is_not_stored_and_they_are_named() {
    System::prepared(Options::default(), async |system| {
        system.start(Service::Api).await;
        let tenant = Uuid::new_v4();
        let api = system.admin(tenant).await;
        let mut webhooks = Vec::new();
        for path in ["one", "two"] {
            let webhook = api.create(&format!("https://localhost/{path}"), &["quote.closed"]).await;
            webhooks.push(webhook.id.parse::<WebhookId>().unwrap());
        }
        webhooks.sort();
        let config = LedgerConfig { url: system.database_url.clone(), max_connections: 1, application_name: "others" };
        let (ledger, tenant) = (Ledger::new(&config).unwrap(), TenantId::from(tenant));
        let pairs = [(tenant, EventType::QuoteClosed)];
        let stranger = WebhookId::from(Uuid::new_v4());
        let wrong = [vec![], vec![webhooks[1]], vec![webhooks[0], stranger], vec![webhooks[0], webhooks[1], stranger]];
        for supposed in wrong {
            let (event, deliveries) = planned(tenant, &supposed);
            let stored = ledger.events_store(&pairs, all(&supposed), &[event], &deliveries).await.unwrap();
            let Stored::Others(mut found) = stored else { panic!("{supposed:?} are not the subscribers") };
            found.sort();
            assert_eq!(found, all(&webhooks));
        }
        assert_eq!(system.count("SELECT count(*) FROM events").await, 0);
        assert_eq!(system.count("SELECT count(*) FROM deliveries").await, 0);

        // In whichever order they are named.
        let turned = [webhooks[1], webhooks[0]];
        let (event, deliveries) = planned(tenant, &turned);
        let store = || ledger.events_store(&pairs, all(&turned), std::slice::from_ref(&event), &deliveries);
        let Stored::New(mut new) = store().await.unwrap() else { panic!("they are the subscribers") };
        let mut expected: Vec<_> = deliveries.iter().map(|delivery| delivery.id).collect();
        new.sort();
        expected.sort();
        assert_eq!(new, expected);
        assert_eq!(store().await.unwrap(), Stored::New(Vec::new()), "all of it is there already");

        // Nobody wants it any more, and that is no wrong supposition of nobody.
        system.sql("UPDATE webhooks SET is_active = false").await;
        assert_eq!(store().await.unwrap(), Stored::Others(Vec::new()));
        assert_eq!(ledger.events_store(&pairs, Vec::new(), &[], &[]).await.unwrap(), Stored::New(Vec::new()));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_change_of_subscriptions_holds_from_the_next_event_on() {
    System::prepared(Options::default(), async |system| {
        let ingest = start_all(&system).await;
        let tenant = Uuid::new_v4();
        let api = system.admin(tenant).await;
        let receiver = Receiver::start(&system.ca, always(200));
        let mut events = 0;
        let mut got = async || {
            let before = receiver.received().len();
            system.upstream.publish(&[Event::now(EventType::QuoteClosed, tenant)]).await;
            events += 1;
            settled(&system, ingest, events).await;
            let mut paths: Vec<_> = receiver.received().split_off(before).into_iter().map(|one| one.path).collect();
            paths.sort();
            paths.join(" ")
        };
        assert_eq!(got().await, "");
        let one = api.create(&receiver.url("/one"), &["quote.closed"]).await;
        assert_eq!(got().await, "/one");
        let two = api.create(&receiver.url("/two"), &["quote.closed"]).await;
        assert_eq!(got().await, "/one /two");
        let (one, two) = (format!("/api/v1/webhooks/{}/", one.id), format!("/api/v1/webhooks/{}/", two.id));
        assert_eq!(api.patch(&one, &json!({"events": ["quote.accepted"]})).await.status, 200);
        assert_eq!(got().await, "/two");
        assert_eq!(api.patch(&two, &json!({"is_active": false})).await.status, 200);
        assert_eq!(got().await, "");
        assert_eq!(api.patch(&one, &json!({"events": ["quote.closed"]})).await.status, 200);
        assert_eq!(got().await, "/one");
        assert!(api.delete(&one).await.status < 300);
        assert_eq!(got().await, "");
        assert_eq!((judged(ingest, "accepted").await, judged(ingest, "unwanted").await), (4.0, 3.0));
    })
    .await;
}
