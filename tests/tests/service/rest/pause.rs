//! Pausing webhooks.

use end_to_end::{
    events::Event,
    receiver::{Receiver, always, fails_then_succeeds},
    system::{Options, Service, System, TestSystem},
    wait::{SOON, until},
};
use ledger::{Actor, WebhookChange};
use serde_json::json;
use uuid::Uuid;

async fn held(system: &System, count: i64) {
    until("jobs are held", SOON, || async { system.count("SELECT count(*) FROM held_jobs").await == count }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_holds_what_waits_and_activation_lets_it_go() {
    // The retry comes long after the pause.
    let system = TestSystem::running(Options { schedule: "5s,10s", ..Options::default() }).await;
    let (tenant, api) = system.tenant().await;
    let (receiver, other) =
        (Receiver::start(&system.ca, fails_then_succeeds(1)), Receiver::start(&system.ca, always(200)));
    let webhook = api.create(&receiver.url("/"), &["quote.closed"]).await;
    api.create(&other.url("/"), &["quote.closed"]).await;
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    receiver.wait_for(1, SOON).await;
    api.set_active(&webhook.id, false).await;
    held(&system, 1).await;

    system.upstream.publish(&Event::closed(tenant, 1)).await;
    other.wait_for(2, SOON).await;
    let log = api.log(&webhook.id, "").await;
    let states: Vec<_> = log["data"].as_array().unwrap().iter().map(|one| one["state"].clone()).collect();
    assert_eq!(states, ["skipped", "retrying"], "what comes while it is paused is skipped");
    assert_eq!(receiver.received().len(), 1);

    api.set_active(&webhook.id, true).await;
    let received = receiver.wait_for(2, SOON).await;
    assert_eq!(received[0].header("x-service-webhook-id"), received[1].header("x-service-webhook-id"));
    until("the one that was held succeeds", SOON, || async {
        let log = api.log(&webhook.id, "state=succeeded").await;
        log["data"].as_array().unwrap().len() == 1
    })
    .await;
    held(&system, 0).await;
    assert_eq!(system.count("SELECT count(*) FROM promised_jobs").await, 0);

    let skipped = api.log(&webhook.id, "state=skipped").await["data"][0].clone();
    assert_eq!((&skipped["attempts"], &skipped["next_attempt_at"]), (&json!(0), &json!(null)));
    assert_eq!(api.resend(&webhook.id, &skipped).await.status, 202);
    let received = receiver.wait_for(3, SOON).await;
    assert_eq!(received[2].header("x-service-webhook-id"), skipped["id"].as_str());
    until("nothing is left", SOON, || async {
        let left = api.webhook(&webhook.id).await["deliveries"].clone();
        left == json!({"waiting": 0, "dropped": 0, "skipped": 0})
    })
    .await;
}

/// The first of the two: the activation of a webhook, or the hold of its job.
#[derive(Clone, Copy)]
enum First {
    Activation,
    Hold,
}

/// A job is read while its webhook is paused. The activation waits for the webhook's row, and the hold is tried again
/// and again until it is free.
async fn meets(system: TestSystem, first: First) {
    system.start(Service::Api).await;
    system.start(Service::Ingest).await;
    let (tenant, api) = system.tenant().await;
    let receiver = Receiver::start(&system.ca, always(200));
    let webhook = api.create(&receiver.url("/"), &["quote.closed"]).await;
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    api.newest_in(&webhook.id, "pending").await;
    api.set_active(&webhook.id, false).await;

    let hold =
        system.database_session(&format!("BEGIN; SELECT 1 FROM webhooks WHERE id = '{}' FOR UPDATE", webhook.id)).await;
    // As the API does it, but without the API's time limit.
    let activate = || {
        let (ledger, id) = (system.ledger_as("activation", 1), webhook.id.parse::<Uuid>().expect("it is an id"));
        let change = WebhookChange { is_active: Some(true), ..WebhookChange::default() };
        tokio::spawn(async move {
            let actor = Actor { tenant: tenant.into(), user: "somebody".to_owned() };
            ledger.webhook_change(&actor, id.into(), &change).await.expect("the ledger answers")
        })
    };
    let activation = match first {
        First::Activation => {
            let activation = activate();
            system.wait_for_locked_out(1).await;
            system.start(Service::Dispatcher).await;
            activation
        }
        First::Hold => {
            system.start(Service::Dispatcher).await;
            let activation = activate();
            system.wait_for_locked_out(1).await;
            activation
        }
    };
    drop(hold);
    activation.await.expect("the webhook is activated");
    api.newest_in(&webhook.id, "succeeded").await;
    assert_eq!(receiver.received().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_held_just_before_the_activation_goes() {
    meets(TestSystem::prepared(Options::default()).await, First::Hold).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_held_just_after_the_activation_goes() {
    meets(TestSystem::prepared(Options::default()).await, First::Activation).await;
}
