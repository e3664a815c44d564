//! Pausing webhooks.

use std::collections::HashSet;

use end_to_end::{
    events::Event,
    receiver::{Receiver, Reply, always, behaviour},
    system::{Options, Service, Subscriber, System, TestSystem},
    wait::{SOON, until},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_holds_what_waits_and_activation_lets_it_go() {
    let system = TestSystem::running(Options { timeout: "20s", ..Options::default() }).await;
    let (tenant, api) = system.tenant().await;
    let gate = CancellationToken::new();
    let fails_once = behaviour({
        let gate = gate.clone();
        move |_, nth| if nth == 1 { Reply::status(500).once(&gate) } else { Reply::ok() }
    });
    let (receiver, other) = (Receiver::start(&system.ca, fails_once), Receiver::start(&system.ca, always(200)));
    let webhook = api.create(&receiver.url("/"), &["quote.closed"]).await;
    api.create(&other.url("/"), &["quote.closed"]).await;
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    // The first attempt fails after the pause, so that its retry comes then.
    until("the attempt is under way", SOON, || async { receiver.arrived() == 1 }).await;
    api.set_active(&webhook.id, false).await;
    gate.cancel();
    let held = "SELECT count(*) FROM held_jobs";
    system.until_count(held, 1, SOON).await;

    system.upstream.publish(&Event::closed(tenant, 1)).await;
    other.wait_for(2, SOON).await;
    let log = api.log(&webhook.id, "").await;
    let states: Vec<_> = log["data"].as_array().unwrap().iter().map(|one| one["state"].clone()).collect();
    assert_eq!(states, ["skipped", "retrying"], "what comes while it is paused is skipped");
    let skipped = &log["data"][0];
    assert_eq!((&skipped["attempts"], &skipped["next_attempt_at"]), (&json!(0), &json!(null)));
    assert_eq!(api.resend(&webhook.id, skipped).await.status, 202);
    system.until_count(held, 2, SOON).await;
    assert_eq!(receiver.received().len(), 1);

    api.set_active(&webhook.id, true).await;
    let received = receiver.wait_for(3, SOON).await;
    let id = |nth: usize| received[nth].header("x-service-webhook-id");
    assert_eq!(HashSet::from([id(1), id(2)]), HashSet::from([id(0), skipped["id"].as_str()]));
    let left = "SELECT (SELECT count(*) FROM held_jobs) + (SELECT count(*) FROM promised_jobs)";
    system.until_count(left, 0, SOON).await;
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
async fn meets(system: &System, first: First) {
    let Subscriber { tenant, api, receiver, webhook, .. } = system.subscriber(always(200)).await;
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    api.newest_in(&webhook, "pending").await;
    api.set_active(&webhook, false).await;

    let hold =
        system.database_session(&format!("BEGIN; SELECT 1 FROM webhooks WHERE id = '{webhook}' FOR UPDATE")).await;
    let activate = || {
        tokio::spawn({
            let (api, webhook) = (api.clone(), webhook.clone());
            async move { api.set_active(&webhook, true).await }
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
    api.newest_in(&webhook, "succeeded").await;
    assert_eq!(receiver.received().len(), 1);
    system.stop(Service::Dispatcher).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_held_just_before_or_just_after_the_activation_goes() {
    let system = TestSystem::serving(Options::default(), [Service::Api, Service::Ingest]).await;
    for first in [First::Hold, First::Activation] {
        meets(&system, first).await;
    }
}
