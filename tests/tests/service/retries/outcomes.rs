//! The outcome of an attempt as the ledger records it (specification, section 7; crates/README.md, ledger).

use std::time::Duration;

use end_to_end::{
    api::Api,
    receiver::{Receiver, Reply, TestCa, always, behaviour},
    system::{Options, Service, System},
    wait::{SOON, eventually},
};
use service_kit::Settings;
use uuid::Uuid;

use crate::retries::{Attempt, attempts, publish};

/// One attempt: the next one is too late to disturb the test.
fn once() -> Options {
    Options { schedule: "1h,2h", timeout: "5s", ..Options::default() }
}

async fn create(api: &Api, url: &str) -> String {
    api.create(url, &["quote.closed"]).await.id
}

/// The only attempt of a webhook's only delivery.
async fn only_attempt(system: &System, webhook: &str) -> Attempt {
    let mut attempts = eventually("the attempt is recorded", SOON, || async {
        Some(attempts(system, webhook).await).filter(|attempts| !attempts.is_empty())
    })
    .await;
    assert_eq!((attempts.len(), attempts[0].number), (1, 1));
    attempts.remove(0)
}

/// The only attempt of a webhook: a failure without an answer.
async fn unanswered(system: &System, webhook: &str, outcome: &str) -> Attempt {
    let attempt = only_attempt(system, webhook).await;
    assert_eq!((attempt.outcome.as_str(), attempt.status), (outcome, None), "{attempt:?}");
    assert!(attempt.head.is_empty() && attempt.error.as_ref().is_some_and(|text| !text.is_empty()), "{attempt:?}");
    attempt
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_status_that_is_not_2xx_is_a_failure_and_no_redirect_is_followed() {
    System::run(once(), async |system| {
        let tenant = Uuid::new_v4();
        let api = system.admin(tenant).await;
        let elsewhere = Receiver::start(&system.ca, always(200));
        let location = elsewhere.url("/followed");
        let receiver = Receiver::start(
            &system.ca,
            behaviour(move |request, _| {
                let status = request.path.trim_start_matches('/').parse().unwrap_or(418);
                let redirect = matches!(status, 300..=399);
                Reply::status(status).header(if redirect { "location" } else { "x-other" }, location.clone())
            }),
        );
        let good = [200, 201, 202, 204, 205, 206, 226, 299].as_slice();
        let bad = [
            300, 301, 302, 303, 304, 305, 307, 308, 399, 400, 401, 403, 404, 408, 410, 418, 429, 499, 500, 502, 503,
            504, 599,
        ];
        let mut webhooks = Vec::new();
        for status in good.iter().copied().chain(bad) {
            webhooks.push((status, create(&api, &receiver.url(&status.to_string())).await));
        }
        publish(&system, tenant).await;
        for (status, webhook) in &webhooks {
            let attempt = only_attempt(&system, webhook).await;
            let class = if good.contains(status) { "success" } else { "status" };
            assert_eq!((attempt.outcome.as_str(), attempt.status), (class, Some(*status)));
            assert_eq!(attempt.error.is_none(), class == "success", "{attempt:?}");
            assert_eq!(api.webhook(webhook).await["failure_count"], u32::from(class == "status"));
        }
        // A 408 on a reused connection is an idle close: the POST is repeated once.
        let received = receiver.received();
        let repeated = received.iter().filter(|post| post.path == "/408").count() - 1;
        assert!(repeated <= 1 && received.len() == webhooks.len() + repeated, "{repeated} of {}", received.len());
        assert_eq!(elsewhere.received().len(), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_kibibyte_of_an_answer_is_kept_with_its_status_and_its_duration() {
    System::run(once(), async |system| {
        let tenant = Uuid::new_v4();
        let api = system.admin(tenant).await;
        let answer: Vec<u8> = (0..100_000_u32).flat_map(u32::to_be_bytes).collect();
        let (whole, slow) = (answer.clone(), Duration::from_millis(700));
        let receiver = Receiver::start(
            &system.ca,
            behaviour(move |request, _| match request.path.as_str() {
                "/long" => Reply::status(500).body(answer.clone()),
                "/short" => Reply::status(422).body("{\"error\":\"no\u{fffd}\"}").after(slow),
                _ => Reply::ok().body("thanks"),
            }),
        );
        let (long, short) = (create(&api, &receiver.url("/long")).await, create(&api, &receiver.url("/short")).await);
        let fine = create(&api, &receiver.url("/fine")).await;
        publish(&system, tenant).await;
        let attempt = only_attempt(&system, &long).await;
        assert_eq!((attempt.status, attempt.head.as_slice()), (Some(500), &whole[..1024]));
        let attempt = only_attempt(&system, &short).await;
        assert_eq!((attempt.status, attempt.head.as_slice()), (Some(422), "{\"error\":\"no\u{fffd}\"}".as_bytes()));
        assert!(attempt.took >= slow && attempt.took < Duration::from_secs(5), "{attempt:?}");
        let attempt = only_attempt(&system, &fine).await;
        assert_eq!((attempt.status, attempt.head.as_slice(), attempt.error), (Some(200), &b"thanks"[..], None));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_way_of_not_answering_has_a_class_of_its_own() {
    System::run(once(), async |system| {
        let tenant = Uuid::new_v4();
        let api = system.admin(tenant).await;
        let hanging = Receiver::start(&system.ca, behaviour(|_, _| Reply::hang()));
        let breaking = Receiver::start(&system.ca, behaviour(|_, _| Reply::hang()));
        let stopped = Receiver::start(&system.ca, always(200));
        stopped.stop().await;
        let untrusted = Receiver::start(&TestCa::new(), always(200));
        let timeout = create(&api, &hanging.url("/")).await;
        let protocol = create(&api, &breaking.url("/")).await;
        let connect = create(&api, &stopped.url("/")).await;
        let dns = create(&api, "https://nowhere.invalid/hook").await;
        let tls = create(&api, &untrusted.url("/")).await;
        publish(&system, tenant).await;
        breaking.wait_for(1, SOON).await;
        breaking.stop().await;
        let attempt = unanswered(&system, &timeout, "timeout").await;
        assert!(attempt.took >= Duration::from_secs(5) && attempt.took < Duration::from_secs(15), "{attempt:?}");
        assert_eq!(hanging.received().len(), 1);
        for (webhook, outcome) in [(protocol, "protocol"), (connect, "connect"), (dns, "dns"), (tls, "tls")] {
            let attempt = unanswered(&system, &webhook, outcome).await;
            assert!(attempt.took < Duration::from_secs(5), "{attempt:?}");
            assert_eq!(api.webhook(&webhook).await["failure_count"], 1);
        }
        assert_eq!(untrusted.received().len(), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_is_not_allowed_any_more_is_refused_at_the_attempt() {
    System::run(Options { dispatchers: 0, ..once() }, async |system| {
        let tenant = Uuid::new_v4();
        let api = system.admin(tenant).await;
        let receiver = Receiver::start(&system.ca, always(200));
        let by_name = create(&api, &receiver.url("/")).await;
        let by_address = create(&api, &format!("https://127.0.0.1:{}/", receiver.addr().port())).await;
        let mut variables = system.variables.clone();
        variables.remove("WEBHOOKS__EGRESS__ALLOWED_NETWORKS");
        let strict = Settings::from_sources(None, variables).unwrap();
        system.start_with(Service::Dispatcher, strict).await;
        publish(&system, tenant).await;
        for webhook in [by_name, by_address] {
            unanswered(&system, &webhook, "refused_address").await;
            assert_eq!(api.webhook(&webhook).await["failure_count"], 1);
        }
        assert_eq!(receiver.received().len(), 0);
    })
    .await;
}
