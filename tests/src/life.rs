//! A tenant full of life, for the console's pictures and for `make console`: webhooks that are healthy, failing, hanging,
//! paused, fixed and new, with a log of a day and statistics of a month that agree.
//!
//! Every delivery is really made, within seconds. Then its times are moved to where its event fired.

mod events;
mod hosts;
mod past;

use std::{sync::Arc, time::Duration};

use domain::EventType::{DeliveryNoteCreated, QuoteAccepted, QuoteCancelled, QuoteClosed, StockReceiptCompleted};
use serde_json::{Value, json};
use uuid::Uuid;

pub use self::hosts::Hosts;
use crate::{
    api::Api,
    events::Event,
    receiver::{Behaviour, Receiver, Reply, always, behaviour},
    system::{Options, Service, System},
    wait::until,
};

/// A schedule with as many attempts as [`REAL_SCHEDULE`].
const SHORT_SCHEDULE: &str = "100ms,200ms,300ms";
/// The tenant's schedule: a delivery is dropped after a quarter of an hour.
const REAL_SCHEDULE: &str = "60s,5m,15m";
/// How long all of a phase may take.
const PHASE_TIMEOUT: Duration = Duration::from_secs(90);
/// Who did what.
const USER: &str = "ida.berg";
const OTHER_USER: &str = "jonas.lind";

/// What the life needs of its system.
#[must_use]
pub fn options(hosts: &Hosts) -> Options {
    let settings = hosts.name_servers().map(|servers| ("EGRESS__NAME_SERVERS", servers));
    Options { schedule: SHORT_SCHEDULE, timeout: "2s", settings: settings.into_iter().collect(), ..Options::default() }
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
    /// One that failed, is fixed, and is being recovered.
    pub fixed: String,
    warehouse: Receiver,
    erp: Receiver,
    _others: [Receiver; 3],
}

impl Life {
    /// Fills a tenant of a system that was started with [`options`].
    pub async fn begin(system: &Arc<System>, tenant: Uuid, hosts: &Hosts) -> Self {
        let api = system.session_of(tenant, USER, "admin", Duration::from_secs(3600)).await;
        let other = system.session_of(tenant, OTHER_USER, "admin", Duration::from_secs(3600)).await;
        let start = |host, behaviour: Behaviour| hosts.receiver(&system.ca, host, behaviour);
        let accepts = || behaviour(|_, _| Reply::ok().body(r#"{"accepted": true}"#));
        let (crm, warehouse) = (start("crm", accepts()), start("warehouse", accepts()));
        let (erp, reporting) = (start("erp", always(200)), start("reporting", behaviour(|_, _| Reply::hang())));
        let office = start("office", accepts());
        let create = async |api: &Api, name: &str, url: String, events: &[&str]| {
            let body = json!({"name": name, "url": url, "events": events});
            let answer = api.post("/api/v1/webhooks/", &body).await;
            assert_eq!(answer.status, 201, "{}", answer.text);
            answer.json()["id"].as_str().expect("it has an id").to_owned()
        };
        let url = |host, receiver: &Receiver, path| hosts.url(host, receiver, path);
        let quotes = ["quote.closed", "quote.accepted", "quote.cancelled"];
        let [labels, portal, finance] = ["labels", "portal", "finance"].map(|path| url("office", &office, path));
        let life = Self {
            healthy: create(&api, "CRM: quotes", url("crm", &crm, "hooks/quotes"), &quotes[..2]).await,
            failing: create(&api, "Warehouse orders", url("warehouse", &warehouse, "api/orders"), &quotes[1..2]).await,
            hanging: create(&other, "Reporting", url("reporting", &reporting, "ingest"), &quotes[2..]).await,
            paused: create(&other, "Shipping labels", labels, &["delivery_note.created"]).await,
            fixed: create(&api, "ERP stock", url("erp", &erp, "stock"), &["stock_receipt.completed"]).await,
            warehouse,
            erp,
            _others: [crm, reporting, office],
        };
        create(&other, "Customer portal", portal, &quotes[..2]).await;
        create(&other, "Finance export", finance, &["delivery_note.marked_delivered"]).await;
        create(&api, "Returns desk", "https://returns.example.com/in".to_owned(), &["return_note.created"]).await;
        let change = json!({"events": quotes});
        assert_eq!(other.patch(&format!("/api/v1/webhooks/{}/", life.healthy), &change).await.status, 200);
        life.go_well(system, tenant).await;
        life.fail(system, &api, tenant).await;
        life.go_on(system, &api, tenant).await;
        life
    }

    /// Yesterday and this morning: only the hanging one fails.
    async fn go_well(&self, system: &System, tenant: Uuid) {
        let mut events = events::past(tenant, QuoteClosed, 0..24, 6.0);
        events.extend(events::past(tenant, QuoteAccepted, 3..24, 6.0));
        events.extend(events::past(tenant, QuoteCancelled, 0..24, 0.4));
        events.extend(events::past(tenant, DeliveryNoteCreated, 11..24, 4.0));
        events.extend(events::past(tenant, domain::EventType::DeliveryNoteMarkedDelivered, 0..24, 3.0));
        events.extend(events::past(tenant, StockReceiptCompleted, 9..24, 5.0));
        publish(system, events).await;
    }

    /// One is down for three hours, one was down for seven, and one is paused for eleven.
    async fn fail(&self, system: &System, api: &Api, tenant: Uuid) {
        let down =
            Reply::status(503).body(r#"{"error": "the order database is being upgraded", "retry_after": "02:00"}"#);
        self.warehouse.behave(behaviour(move |_, _| down.clone()));
        self.erp.behave(behaviour(|_, _| Reply::close()));
        let paused = api.patch(&format!("/api/v1/webhooks/{}/", self.paused), &json!({"is_active": false})).await;
        assert_eq!(paused.status, 200, "{}", paused.text);
        let mut events = events::past(tenant, QuoteAccepted, 0..3, 7.0);
        events.extend(events::past(tenant, DeliveryNoteCreated, 0..11, 4.0));
        events.extend(events::past(tenant, StockReceiptCompleted, 2..9, 9.0));
        publish(system, events).await;
    }

    /// With the real schedule: something waits, and one is fixed and is being recovered.
    async fn go_on(&self, system: &System, api: &Api, tenant: Uuid) {
        for service in [Service::Api, Service::Ingest, Service::Dispatcher] {
            system.stop(service).await;
        }
        // Held jobs come back at the pace of recoveries, so that is slow only from now on.
        let settings = system.settings_with(&[("RETRY__SCHEDULE", REAL_SCHEDULE), ("API__RECOVER_PER_SECOND", "1")]);
        for service in [Service::Api, Service::Ingest, Service::Dispatcher] {
            system.start_with(service, settings.clone()).await;
        }
        self.erp.behave(always(200));
        let api = &Api { session: api.session.clone(), ..system.anonymous().await };
        publish(system, events::past(tenant, StockReceiptCompleted, 0..2, 7.0)).await;
        past::move_back(system).await;
        past::look_back(self, system).await;
        let now = [QuoteAccepted, QuoteAccepted, QuoteClosed, QuoteCancelled].map(|kind| Event::now(kind, tenant));
        system.upstream.publish(&now).await;
        for (webhook, state) in [(&self.failing, "retrying"), (&self.hanging, "retrying"), (&self.healthy, "succeeded")]
        {
            api.newest_in(webhook, state).await;
        }
        let since = json!({"from": "2026-01-01T00:00:00Z"});
        let begun = api.recover(&self.fixed, &since).await;
        assert_eq!(begun.status, 202, "{}", begun.text);
    }

    /// A link that logs its administrator in, once.
    pub async fn link(&self, system: &System, tenant: Uuid) -> String {
        system.console_link_of(tenant, USER).await
    }

    /// An event that several webhooks were sent, and its newest dropped delivery at the failing webhook.
    pub async fn event(&self, api: &Api) -> (String, String) {
        let newest: Value = api.log(&self.failing, "limit=1&state=dropped").await["data"][0].clone();
        let text = |name: &str| newest[name].as_str().expect(name).to_owned();
        (text("event_id"), text("id"))
    }
}

/// Publishes events, oldest first, and waits until every delivery of them is done.
async fn publish(system: &System, mut events: Vec<Event>) {
    events.sort_by(|a, b| a.timestamp.cmp(&b.timestamp));
    system.upstream.publish(&events).await;
    let stored = format!("SELECT count(*) FROM events WHERE id = ANY('{{{}}}')", events::ids(&events));
    let open = "SELECT count(*) FROM deliveries WHERE state IN ('pending', 'retrying')";
    until("every delivery is done", PHASE_TIMEOUT, || async {
        system.count(&stored).await == events.len() as i64 && system.count(open).await == 0
    })
    .await;
}

/// How long `make console` lasts at most.
pub const CONSOLE_DURATION: Duration = Duration::from_secs(4 * 3600);
