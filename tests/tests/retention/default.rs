//! The default partitions.

use end_to_end::system::System;
use ledger::Cleaning;

use crate::{DAY, KEEP, Subscribed, clean, leader, options, partitions, rows, today};

const ODD: &str = "timestamptz '2001-02-03 04:05 UTC'";
const LONG_AGO: &str = "now() - interval '31 days'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_cleaned_in_bites_of_what_came_long_ago_and_does_not_wait() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        subscribed.past(&system, 2_500, "succeeded", ODD, LONG_AGO).await;
        subscribed.past(&system, 7, "pending", &format!("{ODD} + interval '1 day'"), LONG_AGO).await;
        subscribed.past(&system, 5, "dropped", &format!("{ODD} + interval '2 days'"), "now()").await;
        subscribed.past(&system, 3, "dropped", "timestamptz '9999-12-31 UTC'", LONG_AGO).await;
        let mut leader = leader(&system).await;
        let bites = clean(&mut leader, Cleaning::of_default(today() - KEEP)).await;
        assert!(bites.iter().all(|rows| *rows <= 1_000), "{bites:?}");
        assert_eq!(bites.iter().sum::<u64>(), 2 * 2_503, "deliveries, then events");
        for table in ["events", "deliveries", "attempts"] {
            assert_eq!(rows(&system, &format!("{table}_default")).await, 12, "{table}");
        }
        assert!(clean(&mut leader, Cleaning::of_default(today() - KEEP)).await.iter().all(|rows| *rows == 0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_day_that_had_no_partition_move_when_it_gets_one_unless_they_are_too_many() {
    System::prepared(options(), async |system| {
        let subscribed = Subscribed::new(&system).await;
        let (soon, later) = (today() + DAY * 20, today() + DAY * 40);
        let at =
            |days| format!("date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' + interval '{days} days'");
        subscribed.past(&system, 100, "pending", &at(20), "now()").await;
        subscribed.past(&system, 5_001, "succeeded", &at(40), "now()").await;
        let mut leader = leader(&system).await;
        assert_eq!(leader.partitions_ensure(soon.date()).await.unwrap(), 0);
        assert_eq!(partitions(&system, soon.date()).await, 3);
        for table in ["events", "deliveries", "attempts"] {
            let name = format!("{table}_{}", soon.date().to_string().replace('-', ""));
            assert_eq!((rows(&system, &name).await, rows(&system, &format!("{table}_default")).await), (100, 5_001));
        }
        assert_eq!(leader.partitions_ensure(later.date()).await.unwrap(), 0, "it is no fault");
        assert_eq!(partitions(&system, later.date()).await, 0);
        assert_eq!(partitions(&system, (later + DAY).date()).await, 3, "the other days get theirs");
        assert_eq!(rows(&system, "deliveries").await, 5_101);
    })
    .await;
}
