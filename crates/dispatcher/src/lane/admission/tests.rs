use std::pin::pin;

use futures_util::FutureExt;
use tokio::{task::JoinSet, time::sleep};
use uuid::Uuid;

use super::*;

fn owner(webhook: u128, tenant: u128) -> Owner {
    Owner { webhook: Uuid::from_u128(webhook).into(), tenant: Uuid::from_u128(tenant).into() }
}

fn lanes(main: u16, slow: u16) -> Arc<Lanes> {
    with_shares(main, slow, 0.125, 0.25)
}

fn with_shares(main: u16, slow: u16, webhook_share: f64, tenant_share: f64) -> Arc<Lanes> {
    let settings = Dispatcher { max_in_flight: main, slow_in_flight: slow, webhook_share, tenant_share, batch: 1 };
    Arc::new(Lanes::new(&settings))
}

async fn admit(lanes: &Arc<Lanes>, owner: Owner) -> Result<Admission, Refusal> {
    lanes.admit(owner, LaneKind::Main, None).await.map_err(|refused| refused.refusal)
}

async fn admit_again(lanes: &Arc<Lanes>, owner: Owner) -> Result<Admission, Hold> {
    lanes.admit(owner, LaneKind::Slow, None).await
}

/// An attempt that takes so long. Leaves its place when it may.
async fn attempt(lanes: &Arc<Lanes>, owner: Owner, takes: Duration, has_answer: bool) -> bool {
    let admission = admit(lanes, owner).await.ok().unwrap();
    spend(admission, takes, has_answer).await
}

async fn spend(mut admission: Admission, takes: Duration, has_answer: bool) -> bool {
    admission.begin().await;
    let (timed, mut has_left) = (admission.timed(), false);
    admission.spend(&timed, pin!(sleep(takes)), || has_left = true).await;
    if has_answer {
        timed.mark_answered();
    }
    has_left
}

const QUICK_ATTEMPT: Duration = Duration::from_millis(20);
const HANGING_ATTEMPT: Duration = Duration::from_secs(10);

/// Begins attempts that hang, each in a task of its own, as far as they are admitted without waiting.
async fn hang(lanes: &Arc<Lanes>, owners: impl IntoIterator<Item = Owner>, tasks: &mut JoinSet<bool>) -> usize {
    let mut begun = 0;
    for owner in owners {
        if let Some(Ok(admission)) = lanes.admit(owner, LaneKind::Main, None).now_or_never() {
            begun += 1;
            tasks.spawn(spend(admission, HANGING_ATTEMPT, false));
            tokio::task::yield_now().await;
            tokio::time::advance(MAX_START_TIME).await;
        }
    }
    begun
}

#[tokio::test(start_paused = true)]
async fn there_are_as_many_places_as_slots_and_who_finds_none_waits() {
    let lanes = lanes(10, 8);
    let mut held = lanes.places(LaneKind::Main, 8).await;
    assert_eq!(held.len(), 8);
    held.extend(lanes.places(LaneKind::Main, 8).await);
    assert_eq!(held.len(), 10, "as many as are free");
    let waiting = lanes.places(LaneKind::Main, 8);
    tokio::pin!(waiting);
    assert!(waiting.as_mut().now_or_never().is_none());
    held.truncate(9);
    assert_eq!(waiting.await.len(), 1);
    assert_eq!(lanes.places(LaneKind::Slow, 8).await.len(), 8, "held jobs that come back have places of their own");
}

#[tokio::test(start_paused = true)]
async fn the_bulk_lane_leaves_a_quarter_of_the_places_to_the_main_lane() {
    let lanes = lanes(16, 8);
    let in_bulk = lanes.places(LaneKind::Bulk, 16).await;
    assert_eq!(in_bulk.len(), 12);
    assert_eq!(lanes.places(LaneKind::Main, 16).await.len(), 4);
    drop(in_bulk);
    assert_eq!(lanes.places(LaneKind::Main, 16).await.len(), 16, "all of them while nothing is in bulk");
}

#[tokio::test(start_paused = true)]
async fn who_is_at_its_share_waits_for_a_second_in_vain_and_others_do_not_wait() {
    let lanes = lanes(16, 8);
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(admit(&lanes, owner(1, 1)).await.ok().unwrap());
    }
    let began = Instant::now();
    assert_eq!(admit(&lanes, owner(1, 1)).await.err(), Some(Refusal::Webhook));
    assert_eq!(began.elapsed(), ADMISSION_TIMEOUT);
    for _ in 0..2 {
        held.push(admit(&lanes, owner(2, 1)).await.ok().unwrap());
    }
    assert_eq!(admit(&lanes, owner(3, 1)).await.err(), Some(Refusal::Tenant));
    let before = Instant::now();
    held.push(admit(&lanes, owner(4, 2)).await.ok().unwrap());
    assert_eq!(before, Instant::now(), "another tenant does not wait");
    held.clear();
    assert!(admit(&lanes, owner(3, 1)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_job_that_would_wait_is_refused_immediately_while_few_places_are_free() {
    let lanes = lanes(64, 64);
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(admit(&lanes, owner(1, 1)).await.ok().unwrap());
    }
    for (kind, by, other) in [
        (LaneKind::Main, LaneKind::Main, LaneKind::Slow),
        (LaneKind::Main, LaneKind::Bulk, LaneKind::Slow),
        (LaneKind::Slow, LaneKind::Slow, LaneKind::Main),
    ] {
        let _places = lanes.places(kind, 61).await;
        let (began, refused) = (Instant::now(), lanes.admit(owner(1, 1), by, None).await.err().unwrap());
        assert_eq!((refused.refusal, began.elapsed()), (Refusal::Webhook, Duration::ZERO), "{by:?}");
        let refused = lanes.admit(owner(1, 1), other, None).await.err().unwrap();
        assert_eq!(
            (refused.refusal, began.elapsed()),
            (Refusal::Webhook, ADMISSION_TIMEOUT),
            "{other:?} has its own places"
        );
        assert!(lanes.admit(owner(2, 2), by, None).await.is_ok(), "another webhook need not wait");
    }
}

/// An alert asks for what the whole lacks.
#[tokio::test(start_paused = true)]
async fn a_lack_of_the_whole_has_other_reasons_than_a_share_that_is_taken() {
    let lanes = lanes(16, 16);
    let mut held = Vec::new();
    for number in (1..=8).cycle().take(16) {
        held.push(admit(&lanes, owner(number, number)).await.ok().unwrap());
    }
    assert_eq!(admit(&lanes, owner(20, 20)).await.err(), Some(Refusal::Slots));
    assert_eq!(admit(&lanes, owner(1, 1)).await.err(), Some(Refusal::Webhook));
    let _places = lanes.places(LaneKind::Main, 16).await;
    let began = Instant::now();
    assert_eq!(admit(&lanes, owner(20, 20)).await.err(), Some(Refusal::Slots));
    assert_eq!(admit(&lanes, owner(1, 1)).await.err(), Some(Refusal::Webhook));
    held.drain(..2);
    held.extend([admit(&lanes, owner(30, 9)).await.ok(), admit(&lanes, owner(31, 9)).await.ok()].into_iter().flatten());
    held.drain(..2);
    held.extend([admit(&lanes, owner(32, 9)).await.ok(), admit(&lanes, owner(33, 9)).await.ok()].into_iter().flatten());
    assert_eq!(admit(&lanes, owner(34, 9)).await.err(), Some(Refusal::Tenant));
    assert_eq!(began.elapsed(), Duration::ZERO, "places are scarce");
}

/// Receivers that do not read make no shortage of the dispatcher.
#[tokio::test(start_paused = true)]
async fn long_bodies_of_silent_webhooks_lack_only_what_is_for_slow_ones() {
    let lanes = lanes(64, 64);
    for number in 1..=9 {
        attempt(&lanes, owner(number, number / 2), HANGING_ATTEMPT, false).await;
    }
    let body = Some(256 * 1024);
    let mut held = Vec::new();
    for number in 1..=8 {
        held.push(lanes.admit(owner(number, number / 2), LaneKind::Slow, body).await.ok().unwrap());
    }
    let refused = lanes.admit(owner(9, 4), LaneKind::Slow, body).await.err().unwrap();
    assert_eq!(refused.refusal, Refusal::Slow);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_has_become_slow_gives_its_slot_and_its_place_back() {
    let lanes = lanes(64, 8);
    let mut tasks = JoinSet::new();
    assert_eq!(hang(&lanes, (0..9).map(|_| owner(1, 1)), &mut tasks).await, 8, "its share of the slots");
    sleep(SLOW_FROM).await;
    let mut again = Vec::new();
    for number in 2..10 {
        again.push(admit(&lanes, owner(number, 2)).await.ok().unwrap());
    }
    let mut left = 0;
    while let Some(has_left) = tasks.join_next().await {
        left += usize::from(has_left.unwrap());
    }
    assert_eq!(left, 1, "a webhook has a thirty-second of the 32 long places; the others kept their slots");
}

#[tokio::test(start_paused = true)]
async fn a_silent_webhook_has_four_attempts_at_a_time_and_one_that_answers_late_a_quarter_of_the_slow_lane() {
    for (has_answer, expected) in [(false, 4), (true, 64)] {
        let lanes = with_shares(1024, 256, 0.125, 1.0);
        attempt(&lanes, owner(1, 1), HANGING_ATTEMPT, has_answer).await;
        let mut held = Vec::new();
        let refused = loop {
            match admit(&lanes, owner(1, 1)).await {
                Ok(admission) => held.push(admission),
                Err(refused) => break refused,
            }
        };
        assert_eq!((held.len(), refused), (expected - 1, Refusal::Slow), "the last one is for jobs that were held");
        held.push(admit_again(&lanes, owner(1, 1)).await.ok().unwrap());
        let refused = admit_again(&lanes, owner(1, 1)).await.err().unwrap();
        assert_eq!(refused.release, Some(if has_answer { LATE_RELEASE } else { SILENT_RELEASE }));
        assert!(held.iter().all(Admission::is_slow));
    }
}

/// Otherwise an event for a receiver that is well, and that nobody knows, would wait behind dead ones.
#[tokio::test(start_paused = true)]
async fn silent_webhooks_leave_a_quarter_of_their_slots_to_unknown_ones() {
    let lanes = with_shares(1024, 256, 0.125, 1.0);
    let mut held = Vec::new();
    for number in 1..=28 {
        attempt(&lanes, owner(number, number), HANGING_ATTEMPT, false).await;
    }
    for number in (1..=28).cycle().take(4 * 28) {
        held.extend(admit_again(&lanes, owner(number, number)).await.ok());
    }
    assert_eq!(held.len(), 97, "of 128, until less than a quarter is free");
    assert!(lanes.silent.slots.try_acquire(owner(200, 200), 1).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_quick_attempt_leads_back_to_the_main_lane() {
    let lanes = lanes(64, 16);
    attempt(&lanes, owner(1, 1), HANGING_ATTEMPT, false).await;
    assert!(admit(&lanes, owner(1, 1)).await.ok().unwrap().is_slow());
    attempt(&lanes, owner(1, 1), QUICK_ATTEMPT, true).await;
    assert!(!admit(&lanes, owner(1, 1)).await.ok().unwrap().is_slow());
}

/// A platform of many tenants, whose webhooks nobody knows yet: they do not fill the main lane.
#[tokio::test(start_paused = true)]
async fn while_long_places_are_scarce_only_who_is_trusted_begins_in_the_main_lane() {
    let lanes = lanes(64, 16);
    attempt(&lanes, owner(1, 1), QUICK_ATTEMPT, true).await;
    let mut tasks = JoinSet::new();
    hang(&lanes, (10..40).map(|number| owner(number, number)), &mut tasks).await;
    sleep(SLOW_FROM).await;
    assert!(lanes.long.is_scarce());
    assert!(!admit(&lanes, owner(1, 1)).await.ok().unwrap().is_slow(), "it has answered quickly");
    let unknown = admit(&lanes, owner(2, 2)).await;
    assert!(unknown.ok().is_none_or(|admission| admission.is_slow()), "nobody knows it");
    let mut admitted = Vec::new();
    let refused = loop {
        match admit_again(&lanes, owner(100 + admitted.len() as u128, 100)).await {
            Ok(admission) => admitted.push(admission),
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.release, Some(LATE_RELEASE), "many such must not come again together");
    drop(admitted);
    while tasks.join_next().await.is_some() {}
    assert!(!admit(&lanes, owner(3, 3)).await.ok().unwrap().is_slow());
}

#[tokio::test(start_paused = true)]
async fn a_tenants_attempts_begin_a_few_at_a_time_and_another_tenants_do_not_wait() {
    let lanes = with_shares(1000, 8, 0.5, 1.0);
    let few = usize::try_from(MAX_STARTING_PER_TENANT).unwrap();
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..few {
        let admission = admit(&lanes, owner(1, 1)).await.ok().unwrap();
        tasks.spawn(spend(admission, HANGING_ATTEMPT, false));
        tokio::task::yield_now().await;
    }
    assert_eq!(began, Instant::now());
    admit(&lanes, owner(2, 2)).await.ok().unwrap().begin().await;
    assert_eq!(began, Instant::now(), "another tenant does not wait");
    let mut next = admit(&lanes, owner(1, 1)).await.ok().unwrap();
    assert_eq!(began, Instant::now(), "who is admitted may read the body and open the secret");
    next.begin().await;
    assert_eq!(began.elapsed(), MAX_START_TIME);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_waits_for_memory_holds_up_no_start_of_its_tenant() {
    let lanes = lanes(1000, 8);
    let full = lanes.admit(owner(1, 1), LaneKind::Main, Some(usize::MAX)).await.ok().unwrap();
    let waiting = lanes.admit(owner(1, 1), LaneKind::Main, Some(1024 * 1024));
    tokio::pin!(waiting);
    assert!(waiting.as_mut().now_or_never().is_none());
    let began = Instant::now();
    let other = admit(&lanes, owner(2, 1)).await.ok().unwrap();
    assert_eq!(began, Instant::now(), "another webhook of the tenant does not wait");
    drop((other, full));
    assert!(waiting.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn long_bodies_have_a_quota_of_their_own_with_shares() {
    let lanes = with_shares(1000, 8, 0.5, 1.0);
    let half = Some(6 * 1024 * 1024);
    let refusal =
        async |owner, body| lanes.admit(owner, LaneKind::Main, body).await.err().map(|refused| refused.refusal);
    let first = lanes.admit(owner(1, 1), LaneKind::Main, half).await.ok().unwrap();
    assert_eq!(refusal(owner(1, 1), half).await, Some(Refusal::Webhook));
    assert!(admit(&lanes, owner(1, 1)).await.is_ok(), "a short body needs no permit");
    let second = lanes.admit(owner(2, 2), LaneKind::Main, half).await.ok().unwrap();
    assert_eq!(refusal(owner(3, 3), half).await, Some(Refusal::Bodies));
    drop((first, second));
    assert_eq!(refusal(owner(3, 3), Some(usize::MAX)).await, None, "one that is larger than the quota takes all of it");
}

const SLOW_FROM: Duration = Duration::from_millis(1_001);

#[tokio::test(start_paused = true)]
async fn an_attempt_that_has_become_slow_leaves_its_slot_to_others() {
    let lanes = lanes(8, 8);
    let mut tasks = JoinSet::new();
    assert_eq!(hang(&lanes, [owner(1, 1)], &mut tasks).await, 1);
    sleep(Duration::from_secs(2)).await;
    let admitted = (2..10).map(|other| lanes.admit(owner(other, other), LaneKind::Main, None).now_or_never());
    let admitted: Vec<_> = admitted.collect();
    assert!(admitted.iter().all(|one| matches!(one, Some(Ok(admission)) if !admission.is_slow())));
}
