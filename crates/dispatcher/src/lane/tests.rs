use std::{cell::Cell, pin::pin};

use futures_util::{FutureExt, future::join_all};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::*;

fn ids(webhook: u128, tenant: u128) -> (WebhookId, TenantId) {
    (Uuid::from_u128(webhook).into(), Uuid::from_u128(tenant).into())
}

async fn admit(
    lane: &Lane,
    (webhook, tenant): (WebhookId, TenantId),
    body: Option<usize>,
) -> Result<Admission, Refusal> {
    let mut admission = lane.patience(webhook, tenant).admit(body).await?;
    admission.begin();
    Ok(admission)
}

/// Begins `count` attempts, each as soon as it may. Returns how long that took, in milliseconds.
async fn begin(lane: &Lane, attempts: &mut JoinSet<()>, count: usize, attempt: Duration) -> u128 {
    let began = Instant::now();
    for _ in 0..count {
        let (webhook, tenant) = ids(1, 1);
        let admission = lane.patience(webhook, tenant).admit(None).await.ok().unwrap();
        attempts.spawn(async move { admission.spend(pin!(tokio::time::sleep(attempt))).await });
        tokio::task::yield_now().await;
    }
    began.elapsed().as_millis()
}

#[tokio::test(start_paused = true)]
async fn there_are_as_many_places_as_slots_and_who_finds_none_waits() {
    let lane = Lane::new(LaneKind::Main, Slots { slots: 10, webhook_share: 1.0, tenant_share: 1.0 });
    let mut held = lane.places(8).await;
    assert_eq!(held.len(), 8);
    held.extend(lane.places(8).await);
    assert_eq!(held.len(), 10, "as many as are free");
    let waiting = lane.places(8);
    tokio::pin!(waiting);
    assert!(waiting.as_mut().now_or_never().is_none());
    held.truncate(9);
    assert_eq!(waiting.await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_bulk_lane_leaves_a_quarter_of_the_places_to_the_main_lane_and_has_no_slots_of_its_own() {
    let main = Lane::new(LaneKind::Main, Slots { slots: 16, webhook_share: 0.125, tenant_share: 1.0 });
    let bulk = Lane::bulk_of(&main);
    let in_bulk = bulk.places(16).await;
    assert_eq!(in_bulk.len(), 12);
    let in_main = main.places(16).await;
    assert_eq!(in_main.len(), 4);
    drop(in_bulk);
    assert_eq!(main.places(16).await.len(), 12, "all of them while nothing is in bulk");
    drop(in_main);
    let _held = (admit(&main, ids(1, 1), None).await.ok().unwrap(), admit(&bulk, ids(1, 1), None).await.ok().unwrap());
    assert_eq!(admit(&bulk, ids(1, 1), None).await.err(), Some(Refusal::Webhook), "one share in both");
}

#[tokio::test(start_paused = true)]
async fn a_webhook_and_a_tenant_at_their_share_wait_in_vain_and_others_do_not_wait() {
    let lane = Lane::new(LaneKind::Main, Slots { slots: 16, webhook_share: 0.125, tenant_share: 0.25 });
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(admit(&lane, ids(1, 1), None).await.ok().unwrap());
    }
    assert_eq!(admit(&lane, ids(1, 1), None).await.err(), Some(Refusal::Webhook));
    for _ in 0..2 {
        held.push(admit(&lane, ids(2, 1), None).await.ok().unwrap());
    }
    assert_eq!(admit(&lane, ids(3, 1), None).await.err(), Some(Refusal::Tenant));
    let before = Instant::now();
    held.push(admit(&lane, ids(4, 2), None).await.ok().unwrap());
    assert_eq!(before, Instant::now(), "another tenant does not wait");
    held.clear();
    assert!(admit(&lane, ids(3, 1), None).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_burst_waits_while_attempts_are_short_and_is_moved_once_one_takes_long() {
    let lane = Lane::new(LaneKind::Main, Slots { slots: 64, webhook_share: 0.125, tenant_share: 1.0 });
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(admit(&lane, ids(1, 1), None).await.ok().unwrap());
    }
    let waited = async || {
        let began = Instant::now();
        assert_eq!(admit(&lane, ids(1, 1), None).await.err(), Some(Refusal::Webhook));
        began.elapsed().as_millis()
    };
    let first = waited().await;
    assert!((1_000..=1_200).contains(&first), "until an attempt has taken a second: {first} ms");
    let next = waited().await;
    assert!((100..=200).contains(&next), "its attempts are known to take long: {next} ms");
    held.clear();
    assert!(admit(&lane, ids(1, 1), None).await.is_ok(), "and forgotten with them");
}

#[tokio::test(start_paused = true)]
async fn while_places_are_scarce_a_job_of_the_main_lane_does_not_wait_at_the_end_of_a_long_line() {
    for (attempt, taken, moved_after) in [(200, 49, Some(100..=200)), (200, 48, None), (50, 49, None)] {
        let main = Lane::new(LaneKind::Main, Slots { slots: 64, webhook_share: 0.125, tenant_share: 1.0 });
        let (bulk, attempt) = (Lane::bulk_of(&main), Duration::from_millis(attempt));
        let (webhook, tenant) = ids(1, 1);
        let _taken = main.places(taken).await;
        // Ten rounds of eight attempts. None is refused.
        let line = join_all((0..80).map(|_| async {
            let admission = bulk.patience(webhook, tenant).admit(None).await.ok().unwrap();
            admission.spend(pin!(tokio::time::sleep(attempt))).await;
        }));
        let last = async {
            tokio::time::sleep(attempt * 3 / 2).await;
            let began = Instant::now();
            let refused = admit(&main, (webhook, tenant), None).await.err();
            (refused, began.elapsed().as_millis())
        };
        let (_, (refused, waited)) = tokio::join!(line, last);
        match moved_after {
            Some(moved_after) => {
                assert_eq!(refused, Some(Refusal::Webhook));
                assert!(moved_after.contains(&waited), "it would wait for over a second: {waited} ms");
            }
            None => assert_eq!(refused, None, "places are free, or the line is soon through"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_waits_for_room_holds_up_no_start_of_its_tenant() {
    let lane = Lane::new(LaneKind::Main, Slots { slots: 1000, webhook_share: 0.125, tenant_share: 1.0 });
    let full = admit(&lane, ids(1, 1), Some(usize::MAX)).await.ok().unwrap();
    let waiting = (0..MOST_STARTING).map(|_| admit(&lane, ids(1, 1), Some(1024 * 1024)));
    let waiting = join_all(waiting);
    tokio::pin!(waiting);
    assert!(waiting.as_mut().now_or_never().is_none());
    let began = Instant::now();
    let other = timeout(Duration::from_secs(60), admit(&lane, ids(2, 1), None)).await;
    assert_eq!(began, Instant::now(), "another webhook of the tenant does not wait");
    drop((other, full));
}

#[tokio::test(start_paused = true)]
async fn a_tenants_attempts_begin_a_few_at_a_time_and_another_tenants_do_not_wait() {
    let lane = Lane::new(LaneKind::Main, Slots { slots: 1000, webhook_share: 0.5, tenant_share: 1.0 });
    let mut attempts = JoinSet::new();
    let few = usize::try_from(MOST_STARTING).unwrap();
    assert_eq!(begin(&lane, &mut attempts, few, Duration::from_secs(10)).await, 0);
    let began = Instant::now();
    drop(admit(&lane, ids(2, 2), None).await.ok().unwrap());
    assert_eq!(began, Instant::now(), "another tenant does not wait");
    assert_eq!(begin(&lane, &mut attempts, 1, Duration::from_secs(10)).await, STARTING_FOR.as_millis());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_hangs_does_not_slow_the_others_of_its_tenant() {
    let lane = Lane::new(LaneKind::Main, Slots { slots: 1024, webhook_share: 0.125, tenant_share: 0.25 });
    let mut attempts = JoinSet::new();
    begin(&lane, &mut attempts, 1, Duration::from_secs(10)).await;
    tokio::time::advance(Duration::from_millis(900)).await;
    let took = begin(&lane, &mut attempts, 1_000, Duration::from_millis(30)).await;
    assert!(took <= 400, "as the slots allow, 30 ms for each 128: {took} ms");
}

#[tokio::test(start_paused = true)]
async fn what_hung_together_does_not_begin_together_again() {
    let lane = Lane::new(LaneKind::Slow, Slots { slots: 256, webhook_share: 1.0, tenant_share: 1.0 });
    let (mut attempts, hangs) = (JoinSet::new(), Duration::from_secs(10));
    let began = Instant::now();
    let took = begin(&lane, &mut attempts, 256, hangs).await;
    assert!(took < 500, "nothing is known of them yet: {took} ms");
    tokio::time::advance(Duration::from_secs(9)).await;
    let last = Cell::new(began);
    let waiting = (0..256).map(|_| async {
        let admission = lane.patience(ids(1, 1).0, ids(1, 1).1).admit(None).await.ok().unwrap();
        last.set(Instant::now());
        admission.spend(pin!(tokio::time::sleep(hangs))).await;
    });
    join_all(waiting).await;
    let took = (last.get() - began - hangs).as_millis();
    assert!((4_000..=6_000).contains(&took), "within half the time of an attempt: {took} ms");
}

#[tokio::test(start_paused = true)]
async fn long_bodies_share_a_room_of_their_own_and_one_larger_than_the_room_takes_all_of_it() {
    let lane = Lane::new(LaneKind::Slow, Slots { slots: 1000, webhook_share: 0.5, tenant_share: 1.0 });
    let megabyte = Some(1024 * 1024);
    let two = (admit(&lane, ids(1, 1), megabyte).await.ok(), admit(&lane, ids(1, 1), megabyte).await.ok());
    assert_eq!(admit(&lane, ids(1, 1), megabyte).await.err(), Some(Refusal::Webhook));
    assert!(admit(&lane, ids(1, 1), None).await.is_ok(), "a short body needs no room");
    drop(two);
    let rest = admit(&lane, ids(2, 2), Some(usize::MAX)).await.ok().unwrap();
    assert_eq!(admit(&lane, ids(3, 3), megabyte).await.err(), Some(Refusal::Bodies));
    drop(rest);
    assert!(admit(&lane, ids(3, 3), megabyte).await.is_ok());
}
