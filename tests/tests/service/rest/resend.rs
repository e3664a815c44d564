//! Sending deliveries again.

use end_to_end::{
    events::Event,
    history,
    proxy::{Mode, Proxy},
    receiver::{Reply, always, behaviour},
    system::{Options, Service, Subscriber, System, TestSystem},
    wait::{SOON, eventually},
};
use futures_util::future::join_all;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{further_api::FurtherApi, rest::recover::ago};

/// Waits until the relay has deleted the published jobs that the query counts.
pub(crate) async fn outbox_empties(system: &System, jobs: &str) {
    system.until_count(jobs, 0, SOON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_finished_delivery_can_be_sent_again_with_its_id_and_its_body() {
    let system = TestSystem::shared().await;
    let Subscriber { tenant, api, receiver, webhook, .. } = system.subscriber(always(200)).await;
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    let delivery = api.newest_in(&webhook, "succeeded").await;
    for (nth, state) in ["succeeded", "dropped", "cancelled"].into_iter().enumerate() {
        system.sql(&format!("UPDATE deliveries SET state = '{state}' WHERE webhook_id = '{webhook}'")).await;
        let answer = api.resend(&webhook, &delivery).await;
        assert_eq!(answer.status, 202, "{state}: {}", answer.text);
        assert_eq!(answer.json()["id"], delivery["id"]);
        receiver.wait_for(nth + 2, SOON).await;
        let sent = api.newest_in(&webhook, "succeeded").await;
        assert_eq!(sent["attempts"], nth + 2);
    }
    let received = receiver.received();
    assert_eq!(received.len(), 4);
    for one in &received {
        assert_eq!((one.header("x-service-webhook-id"), &one.body), (delivery["id"].as_str(), &received[0].body));
    }
    let promised =
        format!("SELECT count(*) FROM promised_jobs WHERE delivery_id = '{}'", delivery["id"].as_str().unwrap());
    outbox_empties(&system, &promised).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_at_once_make_one_run() {
    let system = TestSystem::running(Options::default()).await;
    let Subscriber { tenant, api, receiver, webhook, .. } = system.subscriber(always(200)).await;
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    let delivery = api.newest_in(&webhook, "succeeded").await;
    // Without a dispatcher, no run ends before the last request has come.
    system.stop(Service::Dispatcher).await;
    for answer in join_all((0..20).map(|_| api.resend(&webhook, &delivery))).await {
        assert_eq!((answer.status, &answer.json()["state"]), (202, &json!("pending")));
    }
    outbox_empties(&system, "SELECT count(*) FROM promised_jobs").await;
    assert_eq!(system.upstream.ready(&system.names.main()).await, 1);
    system.start(Service::Dispatcher).await;
    let sent = api.newest_in(&webhook, "succeeded").await;
    assert_eq!((&sent["attempts"], receiver.received().len()), (&json!(2), 2));
}

/// Asks for a resend while the attempt of this number is under way. Every later attempt succeeds. Returns the numbers of
/// the attempts in the log, and that of the requests that arrived.
async fn resent_during_an_attempt(system: &System, number: usize, is_beside: bool) -> (Vec<u64>, usize) {
    let gate = CancellationToken::new();
    let opened = gate.clone();
    let slow = behaviour(move |_, nth| match nth {
        _ if nth == number => Reply::status(if nth == 1 { 200 } else { 500 }).once(&opened),
        _ if nth < number => Reply::status(500),
        _ => Reply::ok(),
    });
    let Subscriber { tenant, api, receiver, webhook, .. } = system.subscriber(slow).await;
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    receiver.wait_for(number, SOON).await;
    let during = api.log(&webhook, "").await["data"][0].clone();
    assert_eq!(during["attempts"], number - 1, "the attempt is under way");
    assert_eq!(api.resend(&webhook, &during).await.status, 202);
    if is_beside {
        api.newest_in(&webhook, "succeeded").await;
    }
    gate.cancel();
    let sent = api.newest_in(&webhook, "succeeded").await;
    let sent = api.delivery(&webhook, sent["id"].as_str().unwrap()).await;
    let log = sent["attempt_log"].as_array().unwrap();
    assert_eq!(log.last().unwrap()["outcome"], "success");
    (log.iter().map(|attempt| attempt["attempt"].as_u64().unwrap()).collect(), receiver.received().len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resend_during_an_attempt_begins_after_it_and_joins_the_very_first_one() {
    let system = TestSystem::running(Options { timeout: "20s", ..Options::default() }).await;
    assert_eq!(resent_during_an_attempt(&system, 2, false).await, (vec![1, 2, 3], 3));
    assert_eq!(resent_during_an_attempt(&system, 1, false).await, (vec![1], 1));
}

/// Another dispatcher does not know of the attempt under way: the one that ends first is the second one in the ledger.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resend_during_an_attempt_may_begin_beside_it_elsewhere() {
    let system = TestSystem::running(Options { dispatchers: 2, timeout: "20s", ..Options::default() }).await;
    assert_eq!(resent_during_an_attempt(&system, 2, true).await, (vec![1, 2], 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_broker_is_unavailable_tests_and_resends_are_queued_and_they_are_sent_afterwards() {
    let system = TestSystem::serving(Options::default(), [Service::Api, Service::Dispatcher]).await;
    let Subscriber { tenant, api: admin, receiver, webhook, .. } = system.subscriber(always(200)).await;
    history::dropped(&system, tenant, &webhook, 1).await;
    let delivery = admin.newest_in(&webhook, "dropped").await;
    system.stop(Service::Api).await;
    let (proxy, url) = Proxy::before(&system.amqp_url);
    proxy.set(Mode::Refuse);
    let api = FurtherApi::start(&system, &[("BROKER__URL", url.as_str())], &admin).await;
    let test = api.ask(&format!("/api/v1/webhooks/{webhook}/test/")).await;
    // The second resend joins the run of the first one.
    for answer in [api.resend(&webhook, &delivery).await, test, api.resend(&webhook, &delivery).await] {
        assert_eq!((answer.status, &answer.json()["state"]), (202, &json!("pending")), "{}", answer.text);
    }
    assert_eq!(system.count("SELECT count(*) FROM promised_jobs").await, 2);
    assert_eq!(receiver.received().len(), 0);
    proxy.set(Mode::Pass);
    receiver.wait_for(2, SOON).await;
    outbox_empties(&system, "SELECT count(*) FROM promised_jobs").await;
    eventually("both have succeeded", SOON, || async {
        let log = api.log(&webhook, "state=succeeded").await;
        (log["data"].as_array()?.len() == 2).then_some(())
    })
    .await;
    assert_eq!(receiver.received_once().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_with_a_thousand_attempts_is_not_sent_again_nor_recovered() {
    let system = TestSystem::shared().await;
    let Subscriber { tenant, api, receiver, webhook, .. } = system.subscriber(always(200)).await;
    history::dropped(&system, tenant, &webhook, 2).await;
    let (log, attempts) = (api.log(&webhook, "").await, "UPDATE deliveries SET attempts = ");
    for (delivery, number) in log["data"].as_array().unwrap().iter().zip([1_000, 999]) {
        system.sql(&format!("{attempts}{number} WHERE id = '{}'", delivery["id"].as_str().unwrap())).await;
    }
    let answer = api.resend(&webhook, &log["data"][0]).await;
    assert_eq!((answer.status, &answer.json()["code"]), (409, &json!("too_many_attempts")), "{}", answer.text);
    let answer = api.recover(&webhook, &ago(time::Duration::HOUR)).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    receiver.wait_for(1, SOON).await;
    api.recovered(answer.header("location").unwrap()).await;
    assert_eq!(receiver.received().len(), 1, "only the one with fewer");
}
