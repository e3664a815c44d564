//! A tenant full of life, for the console's pictures and for `make console`: webhooks that are healthy, failing, hanging,
//! paused and new, with a day of statistics.

use std::time::Duration;

use domain::EventType;
use serde_json::{Value, json};
use service_kit::Settings;
use uuid::Uuid;

use crate::{
    api::Api,
    events::Event,
    receiver::{Receiver, Reply, always, behaviour},
    system::{Options, Service, System},
    wait::{SOON, eventually},
};

/// Drops quickly, so that there is something to recover.
const SHORT: &str = "200ms,400ms";
/// As in production, so that there is something that waits.
const REAL: &str = "60s,5m,15m,1h,4h,12h";

/// What the life needs of its system.
#[must_use]
pub fn options() -> Options {
    let settings = vec![("API__RECOVER_PER_SECOND", "1".to_owned())];
    Options { schedule: SHORT, timeout: "2s", dispatchers: 1, settings, servers: None }
}

/// The tenant's webhooks. Their receivers run as long as this is held.
pub struct Life {
    /// A webhook whose deliveries succeed.
    pub healthy: String,
    /// One whose attempts fail, and which has dropped deliveries.
    pub failing: String,
    /// One whose receiver never answers.
    pub hanging: String,
    /// One that is paused, and has skipped deliveries.
    pub paused: String,
    /// One that failed, is mended, and is being recovered.
    pub mended: String,
    _receivers: [Receiver; 4],
}

impl Life {
    /// Fills a tenant of a system that was started with [`options`].
    pub async fn begin(system: &System, tenant: Uuid) -> Self {
        let api = system.admin(tenant).await;
        let down = Reply::status(503).body(r#"{"error": "the order database is being upgraded"}"#);
        let receivers = [
            Receiver::start(&system.ca, behaviour(|_, _| Reply::ok().body(r#"{"accepted": true}"#))),
            Receiver::start(&system.ca, behaviour(move |_, _| down.clone())),
            Receiver::start(&system.ca, behaviour(|_, _| Reply::hang())),
            Receiver::start(&system.ca, always(500)),
        ];
        let [good, bad, hang, mend] = &receivers;
        let create = async |name: &str, url: String, events: &[&str]| {
            let body = json!({"name": name, "url": url, "events": events});
            let answer = api.post("/api/v1/webhooks/", &body).await;
            assert_eq!(answer.status, 201, "{}", answer.text);
            answer.json()["id"].as_str().expect("it has an id").to_owned()
        };
        let quotes = ["quote.closed", "quote.accepted", "quote.cancelled"];
        let life = Self {
            healthy: create("CRM: quotes", good.url("/hooks/quotes"), &quotes).await,
            failing: create("Warehouse orders", bad.url("/api/orders/notify"), &["quote.accepted"]).await,
            hanging: create("Reporting", hang.url("/ingest"), &["quote.closed"]).await,
            paused: create("Shipping labels (old)", good.url("/labels"), &["delivery_note.created"]).await,
            mended: create("ERP Stock", mend.url("/erp"), &["stock_receipt.completed"]).await,
            _receivers: receivers,
        };
        create("Customer portal", life._receivers[0].url("/portal"), &["quote.accepted", "return_note.created"]).await;
        create("Finance export", life._receivers[0].url("/finance"), &["delivery_note.marked_delivered"]).await;
        create("Returns desk", "https://returns.example.com/in".to_owned(), &["return_note.created"]).await;
        life.fail(system, &api, tenant).await;
        life.go_on(system, &api, tenant).await;
        life.look_back(system).await;
        life
    }

    /// With the short schedule: deliveries succeed, fail and are dropped.
    async fn fail(&self, system: &System, api: &Api, tenant: Uuid) {
        let types = [EventType::QuoteClosed, EventType::QuoteAccepted, EventType::DeliveryNoteCreated];
        let mut events: Vec<_> = (0..24).map(|nth| Event::now(types[nth % types.len()], tenant)).collect();
        events.extend((0..60).map(|_| Event::now(EventType::StockReceiptCompleted, tenant)));
        events.extend((0..3).map(|_| Event::now(EventType::DeliveryNoteMarkedDelivered, tenant)));
        system.upstream.publish(&events).await;
        for (webhook, dropped) in [(&self.failing, 8), (&self.mended, 60), (&self.hanging, 8)] {
            eventually("deliveries are dropped", SOON, || async {
                (api.webhook(webhook).await["deliveries"]["dropped"] == dropped).then_some(())
            })
            .await;
        }
    }

    /// With the real schedule: something waits, one is paused, and one is being recovered.
    async fn go_on(&self, system: &System, api: &Api, tenant: Uuid) {
        for service in [Service::Api, Service::Ingest, Service::Dispatcher] {
            system.stop(service).await;
        }
        let mut variables = system.variables.clone();
        variables.insert("WEBHOOKS__RETRY__SCHEDULE".to_owned(), REAL.to_owned());
        let settings = Settings::from_sources(None, variables).expect("the settings are good");
        for service in [Service::Api, Service::Ingest, Service::Dispatcher] {
            system.start_with(service, settings.clone()).await;
        }
        let api = &Api { session: api.session.clone(), ..system.anonymous().await };
        self._receivers[3].behave(always(200));
        let paused = api.patch(&format!("/api/v1/webhooks/{}/", self.paused), &json!({"is_active": false})).await;
        assert_eq!(paused.status, 200, "{}", paused.text);
        let types = [EventType::QuoteAccepted, EventType::DeliveryNoteCreated, EventType::QuoteClosed];
        let events: Vec<_> = (0..6).map(|nth| Event::now(types[nth % types.len()], tenant)).collect();
        system.upstream.publish(&events).await;
        system.upstream.publish(&[Event::now(EventType::StockReceiptCompleted, tenant)]).await;
        for (webhook, state) in [(&self.failing, "retrying"), (&self.hanging, "retrying"), (&self.mended, "succeeded")]
        {
            api.newest_in(webhook, state).await;
        }
        let since = json!({"since": "2026-01-01T00:00:00Z"});
        let begun = api.post(&format!("/api/v1/webhooks/{}/recover/", self.mended), &since).await;
        assert_eq!(begun.status, 202, "{}", begun.text);
    }

    /// As if all of it had gone on for a day.
    async fn look_back(&self, system: &System) {
        let hours =
            "generate_series(date_trunc('hour', now()) - interval '29 days', date_trunc('hour', now()), '1 hour')";
        for (webhook, outcome, bucket, attempts, dropped, when) in [
            (&self.healthy, "success", 4, "30 + 20 * sin(extract(hour FROM h) / 3.8 - 2)", "0", "true"),
            (&self.healthy, "status", 4, "2", "0", "extract(hour FROM h) IN (3, 14)"),
            (
                &self.mended,
                "success",
                6,
                "18 + 9 * cos(extract(hour FROM h) / 3.8)",
                "0",
                "h < now() - interval '8 hours'",
            ),
            (&self.mended, "connect", 2, "9", "3", "h >= now() - interval '8 hours'"),
            (&self.failing, "success", 5, "14 + 6 * sin(extract(hour FROM h))", "0", "h < now() - interval '3 hours'"),
            (&self.failing, "status", 5, "22", "11", "h >= now() - interval '3 hours'"),
            (&self.failing, "timeout", 14, "4", "2", "h >= now() - interval '2 hours'"),
            (&self.hanging, "success", 9, "6 + 3 * sin(extract(hour FROM h))", "0", "h < now() - interval '26 hours'"),
            (&self.hanging, "timeout", 14, "5", "1", "h >= now() - interval '26 hours'"),
            (&self.paused, "success", 5, "4", "0", "h < now() - interval '12 hours' AND extract(hour FROM h) > 6"),
        ] {
            let rows = format!(
                "SELECT '{webhook}', h, '{outcome}', {bucket}, round({attempts})::int, {dropped} FROM {hours} AS h WHERE {when}"
            );
            let columns = "webhook_id, hour, outcome, bucket, attempts, dropped";
            let into = format!("INSERT INTO webhook_stats ({columns}) {rows} ON CONFLICT DO NOTHING");
            system.sql(&into).await;
        }
        for (webhook, since) in [(&self.failing, "3 hours"), (&self.hanging, "26 hours")] {
            let since = format!("failing_since = now() - interval '{since}'");
            system.sql(&format!("UPDATE webhook_health SET {since} WHERE webhook_id = '{webhook}'")).await;
        }
    }

    /// An event that several webhooks were sent, and its newest delivery at the failing webhook.
    pub async fn event(&self, api: &Api) -> (String, String) {
        let newest: Value = api.log(&self.failing, "limit=1").await["data"][0].clone();
        let text = |name: &str| newest[name].as_str().expect(name).to_owned();
        (text("event_id"), text("id"))
    }
}

/// How long `make console` lasts at most.
pub const LASTS: Duration = Duration::from_secs(4 * 3600);
