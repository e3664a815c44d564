//! How often a session may call.

use end_to_end::{
    system::{Options, Service, System},
    wait::{SOON, eventually},
};
use uuid::Uuid;

use crate::sessions::application::with;

const LIST: &str = "/api/v1/webhooks/";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_calls_too_often_is_told_when_to_come_again() {
    let settings = vec![("API__RATE_LIMIT_PER_MINUTE", "12".to_owned()), ("API__RATE_LIMIT_BURST", "3".to_owned())];
    System::prepared(Options { settings, ..Options::default() }, async |system| {
        system.start(Service::Api).await;
        let tenant = Uuid::new_v4();
        let (eager, other) = (system.admin(tenant).await, system.admin(tenant).await);
        for _ in 0..3 {
            assert_eq!(eager.get(LIST).await.status, 200);
        }
        // On a slow machine, another token may have come meanwhile.
        let refused = eventually("a refusal", SOON, async || {
            let answer = eager.get(LIST).await;
            (answer.status != 200).then_some(answer)
        })
        .await;
        assert_eq!((refused.status, refused.json()["code"].as_str()), (429, Some("too_many_requests")));
        assert_eq!(refused.header("content-type"), Some("application/problem+json"));
        let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=5).contains(&wait), "{wait}");
        assert_eq!(other.get(LIST).await.status, 200, "each session has its own pace");
        eventually("it may call again", SOON, async || (eager.get(LIST).await.status == 200).then_some(())).await;
        for _ in 0..10 {
            assert_eq!(with(&eager, "unknown").get(LIST).await.status, 401, "who is not logged in has no pace");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_limited_unless_it_is_set() {
    System::shared(async |system| {
        let api = system.admin(Uuid::new_v4()).await;
        for _ in 0..100 {
            assert_eq!(api.get(LIST).await.status, 200);
        }
    })
    .await;
}
