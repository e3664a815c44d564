//! Cancelling what waits, without deleting the webhook.

use std::net::SocketAddr;

use domain::{EventType, Job};
use end_to_end::{
    api::Api,
    events::Event,
    history,
    receiver::{Received, Receiver, Reply, always, behaviour},
    system::{Options, Service, Subscriber, System, TestSystem, metric},
    wait::{SOON, eventually, until},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::rest::tasks::hold_pending;

/// More deliveries than one step cancels (1,000).
const WAITING: i64 = 2_500;

fn path(webhook: &str, call: &str) -> String {
    format!("/api/v1/webhooks/{webhook}/{call}")
}

async fn cancel(api: &Api, webhook: &str) {
    let answer = api.ask(&path(webhook, "cancel/")).await;
    assert_eq!((answer.status, answer.json()), (202, json!({"state": "running"})), "{}", answer.text);
}

/// A condition: the row is of one of the tenant's webhooks.
fn of(tenant: Uuid) -> String {
    format!("webhook_id IN (SELECT id FROM webhooks WHERE tenant_id = '{tenant}')")
}

async fn tasks_end(system: &System, tenant: Uuid) {
    system.until_count(&format!("SELECT count(*) FROM cancellations WHERE {}", of(tenant)), 0, SOON).await;
}

async fn in_state(system: &System, tenant: Uuid, state: &str) -> i64 {
    system.count(&format!("SELECT count(*) FROM deliveries WHERE {} AND state = '{state}'", of(tenant))).await
}

/// The webhook's history: who did what.
async fn entries(system: &System, action: &str) -> Vec<(String, String)> {
    let rows = system.sql(&format!("SELECT webhook_id::text, user_id FROM history WHERE action = '{action}'")).await;
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_is_cancelled_in_steps_and_what_was_made_later_stays() {
    let system = TestSystem::prepared(Options::default()).await;
    let ops = system.start(Service::Api).await;
    let state = "CASE i % 5 WHEN 0 THEN 'retrying' ELSE 'pending' END";
    let (tenant, api, webhook) = history::webhook(&system, usize::try_from(WAITING).unwrap(), state).await;
    let other = api.create("https://localhost/", &["quote.closed"]).await.id;
    history::made(&system, tenant, &webhook, 3, "'dropped'").await;
    history::made(&system, tenant, &other, 2, "'pending'").await;
    system.sql("INSERT INTO held_jobs SELECT webhook_id, id FROM deliveries WHERE state = 'retrying' LIMIT 9").await;
    let hold = hold_pending(&system, &webhook, "ASC").await;
    cancel(&api, &webhook).await;
    system.wait_for_locked_out(1).await;
    assert_eq!(api.log(&webhook, "limit=1&state=cancelled").await["data"], json!([]), "the webhook is not deleted");
    history::made(&system, tenant, &webhook, 1, "'pending'").await;
    let newest = "(SELECT id FROM events ORDER BY received_at DESC LIMIT 1)";
    system.sql(&format!("UPDATE deliveries SET created_at = now() WHERE event_id = {newest}")).await;
    refuses_what_it_would_cancel(&api, &webhook).await;

    drop(hold);
    // The step may have given up the lock.
    system.sql("UPDATE cancellations SET leased_until = now()").await;
    tasks_end(&system, tenant).await;
    assert_eq!(in_state(&system, tenant, "cancelled").await, WAITING);
    assert_eq!((in_state(&system, tenant, "dropped").await, in_state(&system, tenant, "retrying").await), (3, 0));
    assert_eq!(
        in_state(&system, tenant, "pending").await,
        2 + 1,
        "the other webhook's, and the one that was made later"
    );
    assert_eq!(system.count("SELECT count(*) FROM held_jobs").await, 0);
    let done = metric(ops, r#"webhooks_task_deliveries_total{task="cancel"}"#).await;
    assert_eq!(done, f64::from(i32::try_from(WAITING).unwrap()));
    assert_eq!(entries(&system, "cancelled").await, [(webhook.clone(), "somebody".to_owned())]);
    assert_eq!(api.webhook(&webhook).await["is_active"], true);
    let dropped = api.log(&webhook, "state=dropped&limit=1").await["data"][0].clone();
    assert_eq!(api.resend(&webhook, &dropped).await.status, 202, "what is sent again afterwards is not refused");
}

/// Both would be cancelled by the next steps.
async fn refuses_what_it_would_cancel(api: &Api, webhook: &str) {
    let since = json!({"from": "2026-01-01T00:00:00Z"});
    let dropped = api.log(webhook, "state=dropped&limit=1").await["data"][0].clone();
    for refused in [api.resend(webhook, &dropped).await, api.recover(webhook, &since).await] {
        assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("cancelling")), "{}", refused.text);
    }
    let count = json!({"from": "2026-01-01T00:00:00Z", "count_only": true});
    assert_eq!(api.recover(webhook, &count).await.json()["count"], 3);
}

/// A cancellation that is under way and has come to the end of the ids. It covers what was made until an hour ago.
async fn almost_done(system: &System, webhook: &str) {
    system
        .sql(&format!(
            "INSERT INTO cancellations (webhook_id, cursor, leased_until, until) VALUES \
             ('{webhook}', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'infinity', now() - interval '1 hour')"
        ))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_request_begins_a_cancellation_anew_and_a_deletion_meanwhile_cancels_everything() {
    let system = TestSystem::shared().await;
    for is_deletion in [false, true] {
        let (tenant, api, webhook) = history::webhook(&system, 10, "'pending'").await;
        almost_done(&system, &webhook).await;
        if is_deletion {
            let later = "UPDATE deliveries SET created_at = now() + interval '1 hour'";
            system.sql(&format!("{later} WHERE webhook_id = '{webhook}'")).await;
            assert_eq!(api.delete(&path(&webhook, "")).await.status, 204);
            assert_eq!(api.ask(&path(&webhook, "cancel/")).await.status, 404);
        } else {
            cancel(&api, &webhook).await;
        }
        tasks_end(&system, tenant).await;
        assert_eq!(in_state(&system, tenant, "cancelled").await, 10);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancellation_ends_the_running_recovery() {
    let system = TestSystem::serving(Options::with([("API__RECOVER_PER_SECOND", "4")]), [Service::Api]).await;
    let (tenant, api, webhook) = history::webhook(&system, 500, "'dropped'").await;
    let since = json!({"from": "2026-01-01T00:00:00Z"});
    let begun = api.recover(&webhook, &since).await;
    let location = begun.header("location").unwrap();
    until("a step is taken", SOON, || async { api.get(location).await.json()["resent"].as_i64() > Some(0) }).await;
    cancel(&api, &webhook).await;
    let ended = api.get(location).await.json();
    assert_eq!(ended["state"], "stopped");
    tasks_end(&system, tenant).await;
    assert_eq!(in_state(&system, tenant, "pending").await, 0);
    assert_eq!(Some(in_state(&system, tenant, "cancelled").await), ended["resent"].as_i64());
    assert_eq!(in_state(&system, tenant, "cancelled").await + in_state(&system, tenant, "dropped").await, 500);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_pause_holds_is_cancelled_and_never_comes() {
    let system = TestSystem::shared().await;
    let Subscriber { tenant, api, receiver, webhook, .. } = system.subscriber(always(200)).await;
    api.set_active(&webhook, false).await;
    history::made(&system, tenant, &webhook, 30, "'pending'").await;
    let hold = "INSERT INTO held_jobs SELECT webhook_id, id FROM deliveries";
    system.sql(&format!("{hold} WHERE webhook_id = '{webhook}'")).await;
    cancel(&api, &webhook).await;
    tasks_end(&system, tenant).await;
    assert_eq!((in_state(&system, tenant, "cancelled").await, in_state(&system, tenant, "pending").await), (30, 0));
    assert_eq!(system.count(&format!("SELECT count(*) FROM held_jobs WHERE webhook_id = '{webhook}'")).await, 0);
    api.set_active(&webhook, true).await;
    tasks_end(&system, tenant).await;
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    api.newest_in(&webhook, "succeeded").await;
    assert_eq!(receiver.received().len(), 1, "only what came after the cancellation");
}

/// An attempt is not broken off. Its failure is recorded and has no retry, and its success counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_cancellation_or_a_deletion_the_attempt_under_way_is_recorded_and_no_other_is_made() {
    let options = Options { schedule: "1h", timeout: "30s", ..Options::default() };
    let system = TestSystem::serving(options, [Service::Api, Service::Ingest]).await;
    let dispatcher = system.start(Service::Dispatcher).await;
    meets_attempts(&system, dispatcher, "cancel/").await;
    meets_attempts(&system, dispatcher, "").await;
}

/// Asks for a cancellation by its call, or else for a deletion.
async fn meets_attempts(system: &System, dispatcher: SocketAddr, call: &str) {
    let gate = CancellationToken::new();
    let opened = gate.clone();
    let (tenant, api) = system.tenant().await;
    let receiver = Receiver::start(
        &system.ca,
        behaviour(move |request, _| match request.path.as_str() {
            "/failure" => Reply::status(500).once(&opened),
            "/success" => Reply::ok().once(&opened),
            _ => Reply::status(500),
        }),
    );
    let failing = api.create(&receiver.url("/failure"), &["quote.closed"]).await.id;
    let slow = api.create(&receiver.url("/success"), &["quote.cancelled"]).await.id;
    let retrying = api.create(&receiver.url("/retried"), &["quote.accepted"]).await.id;
    let types = [EventType::QuoteClosed, EventType::QuoteCancelled, EventType::QuoteAccepted];
    system.upstream.publish(&types.map(|event_type| Event::now(event_type, tenant))).await;
    let arrived = |received: &[Received]| {
        ["/failure", "/success", "/retried"].iter().all(|path| received.iter().any(|one| one.path == *path))
    };
    receiver.wait_until(SOON, arrived).await;
    let retried = api.newest_in(&retrying, "retrying").await;
    let due = format!("UPDATE deliveries SET next_attempt_at = now() WHERE webhook_id = '{retrying}'");
    system.sql(&due).await;
    let job = Job { delivery: retried["id"].as_str().unwrap().parse().unwrap(), attempt: 2 }.to_bytes();
    let publish = async || system.upstream.publish_to(&system.names.exchange(), &system.names.main(), &job).await;
    let skipped = async |reason| metric(dispatcher, &format!("webhooks_jobs_skipped_total{{reason={reason:?}}}")).await;
    if call.is_empty() {
        // The job comes before the deletion's step.
        let row = format!("BEGIN; SELECT FROM deliveries WHERE webhook_id = '{retrying}' FOR UPDATE");
        let row = system.database_session(&row).await;
        for webhook in [&failing, &slow, &retrying] {
            assert_eq!(api.delete(&path(webhook, "")).await.status, 204);
        }
        publish().await;
        system.wait_for_locked_out(2).await;
        drop(row);
        until("the job is not attempted", SOON, async || skipped("cancelled").await >= 1.0).await;
    } else {
        for webhook in [&failing, &slow, &retrying] {
            cancel(&api, webhook).await;
        }
    }
    tasks_end(system, tenant).await;
    assert_eq!(in_state(system, tenant, "cancelled").await, 3, "before either attempt has ended");
    let before = skipped("stale").await;
    publish().await;
    until("the job is not attempted", SOON, async || skipped("stale").await > before).await;
    gate.cancel();

    let succeeded = api.newest_in(&slow, "succeeded").await;
    assert_eq!((&succeeded["attempts"], &succeeded["next_attempt_at"]), (&json!(1), &Value::Null));
    let failed = eventually("the attempt ends", SOON, || async {
        let newest = api.newest_in(&failing, "cancelled").await;
        (newest["attempts"] == 1).then_some(newest)
    })
    .await;
    assert_eq!(failed["next_attempt_at"], Value::Null);
    let made = receiver.received().into_iter().filter(|one| one.path == "/retried").count();
    assert_eq!((made, &api.newest_in(&retrying, "cancelled").await["attempts"]), (1, &json!(1)));
    assert_eq!(in_state(system, tenant, "cancelled").await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_outlasts_a_step_that_waits_for_one_delivery_after_another() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let (_, api, webhook) = history::webhook(&system, 2, "'pending'").await;
    let lock = |order: &str| {
        let one = format!("SELECT id FROM deliveries ORDER BY id {order} LIMIT 1");
        format!("BEGIN; SELECT FROM deliveries WHERE id = ({one}) FOR UPDATE")
    };
    let (older, _younger) = (system.database_session(&lock("ASC")).await, system.database_session(&lock("DESC")).await);
    cancel(&api, &webhook).await;
    system.wait_for_locked_out(1).await;
    // A further request waits for the step, which goes on to the second delivery and waits for that. A step that
    // nobody met gives up and comes again.
    let met = CancellationToken::new();
    let ask = async {
        while !met.is_cancelled() {
            cancel(&api, &webhook).await;
        }
    };
    let go_on = async {
        system.wait_for_locked_out(2).await;
        drop(older);
        met.cancel();
    };
    tokio::join!(ask, go_on);
}
