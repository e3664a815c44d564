//! The slow lane is fair among the slow, and no job is lost or doubled on the way.

use std::{collections::HashSet, time::Duration};

use domain::Job;
use end_to_end::{
    history::made,
    system::{Service, System, metric},
    wait::{SOON, eventually},
};
use uuid::Uuid;

use crate::isolation::{LONG, answering_after, events, hanging, now_and_then_slow, options, recorded};

/// Puts the jobs of a webhook's deliveries into the queue of the slow lane.
async fn queue_slow(system: &System, webhook: &str) {
    for row in system.sql(&format!("SELECT id::text FROM deliveries WHERE webhook_id = '{webhook}'")).await {
        let id: Uuid = row.get::<_, &str>(0).parse().unwrap();
        let job = Job { delivery: id.into(), attempt: 8 };
        system.upstream.publish_to(&system.names.exchange(), &system.names.slow(), &job.to_bytes()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_slow_lane_serves_others_long_before_a_hog_is_done() {
    const HOG: usize = 2_000;
    System::prepared(options(64, 256), async |system| {
        system.start(Service::Api).await;
        // The dispatcher declares the queues.
        system.start(Service::Dispatcher).await;
        system.stop(Service::Dispatcher).await;
        let hangs = hanging(&system);
        let others = answering_after(&system, Duration::from_millis(200));
        let tenants = [Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4()];
        let hog = system.admin(tenants[0]).await.create(&hangs.url("/hog"), &["quote.closed"]).await;
        made(&system, tenants[0], &hog.id, HOG, "'pending'").await;
        queue_slow(&system, &hog.id).await;
        for tenant in &tenants[1..] {
            let webhook = system.admin(*tenant).await.create(&others.url("/other"), &["quote.closed"]).await;
            made(&system, *tenant, &webhook.id, 5, "'pending'").await;
            queue_slow(&system, &webhook.id).await;
        }
        let ops = system.start(Service::Dispatcher).await;
        others.wait_for(10, LONG).await;
        assert_eq!(recorded(&system, tenants[0]).await, 0, "no attempt of the hog's has ended");
        assert!(hangs.received().len() <= 256 / 8);
        let back = metric(ops, r#"webhooks_jobs_put_back_in_slow_lane_total{reason="webhook_share"}"#).await;
        println!("the others behind {HOG} jobs were served after {back} were put back");
        assert!(back >= 1_000.0, "{back}");
        let stamped =
            system.count("SELECT count(*) FROM slow_webhooks WHERE stamped_at > now() - interval '60 s'").await;
        assert_eq!(stamped, 3, "whose job was found in the slow lane is stamped");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_job_that_was_moved_ends_in_exactly_one_attempt() {
    const EVENTS: usize = 300;
    // The webhook's share of the slow lane is one slot: the last of fifteen jobs there loses its patience (2 s).
    System::prepared(options(16, 15), async |system| {
        system.start(Service::Api).await;
        system.start(Service::Ingest).await;
        let dispatchers = [system.start(Service::Dispatcher).await, system.start(Service::Dispatcher).await];
        let tenant = Uuid::new_v4();
        let receiver = now_and_then_slow(&system);
        let webhook = system.admin(tenant).await.create(&receiver.url("/hook"), &["quote.closed"]).await;
        system.upstream.publish(&events(tenant, EVENTS)).await;
        receiver.wait_for(EVENTS, LONG).await;
        let done =
            format!("SELECT count(*) FROM deliveries WHERE webhook_id = '{}' AND state = 'succeeded'", webhook.id);
        eventually("all have succeeded", LONG, || async {
            (system.count(&done).await == i64::try_from(EVENTS).unwrap()).then_some(())
        })
        .await;
        eventually("nothing is under way", SOON, || async {
            for ops in dispatchers {
                if metric(ops, "webhooks_attempts_in_flight").await > 0.0 {
                    return None;
                }
            }
            Some(())
        })
        .await;
        assert_eq!(recorded(&system, tenant).await, i64::try_from(EVENTS).unwrap());
        let received = receiver.received();
        let ids: HashSet<_> = received.iter().map(|one| one.header("x-service-webhook-id").unwrap()).collect();
        assert_eq!((received.len(), ids.len()), (EVENTS, EVENTS), "each was sent once");
        let (mut moved, mut back) = (0.0, 0.0);
        for ops in dispatchers {
            moved += metric(ops, "webhooks_jobs_moved_to_slow_lane_total").await;
            back += metric(ops, "webhooks_jobs_put_back_in_slow_lane_total").await;
        }
        println!("{moved} were moved, {back} put back");
        assert!(moved > 20.0 && back > 5.0, "{moved} were moved, {back} put back");
        for queue in [system.names.slow(), system.names.main(), system.names.dead(), system.names.unroutable()] {
            assert_eq!(system.upstream.ready(&queue).await, 0, "{queue}");
        }
    })
    .await;
}
