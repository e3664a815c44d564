//! The judgement, from what was seen.

use std::{collections::BTreeMap, time::Duration};

use ::broker::{BrokerError, Names, NodeSeen, Seen};
use ::ledger::{
    AttemptsSeen, ConnectionsSeen, DaysSeen, GenerationSeen, KeyUse, MigrationsSeen, OverdueSeen, RetriesSeen,
    ServerCondition, WorkSeen,
};
use serde_json::{Value, json};
use time::{OffsetDateTime, macros::datetime};

use super::{super::finding::Level, super::observed::*, *};

const NOW: OffsetDateTime = datetime!(2026-03-10 12:00 UTC);
const QUEUES: [&str; 9] = [
    "w.events",
    "w.deliveries",
    "w.deliveries.bulk",
    "w.deliveries.slow",
    "w.events.rejected",
    "w.events.unreadable",
    "w.dead",
    "w.unroutable",
    "w.notices",
];

fn queue(ready: u32, consumers: u32) -> Seen {
    Seen::Present { ready, consumers, differs: None }
}

/// A primary with a synchronous standby.
fn sound_server() -> ServerCondition {
    ServerCondition {
        version: "15.14 (Debian)".to_owned(),
        version_number: 150_014,
        synchronous_names: "one".to_owned(),
        synchronous_commit: "on".to_owned(),
        is_durable: true,
        standbys: 1,
        synchronous: 1,
        hidden: 0,
        connections: 20,
        of_role: 20,
        of_database: 20,
        max_connections: 97,
        role: Some("webhooks".to_owned()),
        role_limit: 60,
        database_limit: -1,
        max_locks: 64,
        lock_holders: 100,
        oldest_database: "postgres".to_owned(),
        ids_age: 200_000_000,
        oldest_table: Some("webhooks".to_owned()),
        table_age: Some(190_000_000),
        freeze_max_age: 200_000_000,
        archive_mode: "on".to_owned(),
        archive_age: Some(300.0),
        archive_fails: false,
        bytes: 12_000_000,
        oldest_transaction: None,
    }
}

/// Everything is well.
fn well() -> Observed {
    let connection = |name: &str, leads| ConnectionsSeen {
        name: name.to_owned(),
        address: Some("10.0.0.5".to_owned()),
        connections: 4,
        committing: 0,
        since: NOW,
        leads,
    };
    let day = |offset| NOW.date() + time::Duration::days(offset);
    let database = DatabaseSeen {
        clock: (time::Duration::milliseconds(3), Duration::from_millis(2)),
        now: NOW,
        server: Ok(sound_server()),
        migrations: Ok(MigrationsSeen::default()),
        days: Ok(DaysSeen { today: day(0), wanted: day(7), made: (-2..=7).map(day).collect() }),
        keys: Some(Ok(KeysSeen {
            configured: vec!["new".to_owned()],
            used: vec![KeyUse { key_id: "new".to_owned(), secrets: 3, of_deleted: 1, unopened: 0 }],
        })),
        connections: Ok(vec![connection("api-service", false), connection("event-ingest", true)]),
        generation: Ok(GenerationSeen { id: Some(uuid::Uuid::nil()), is_rebuilding: false }),
        work: Ok(WorkSeen::default()),
        retries: Ok(RetriesSeen::default()),
        overdue: Ok(OverdueSeen::default()),
        attempts: Ok(vec![attempts(0, "success", 30), attempts(0, "timeout", 20), attempts(1, "success", 1_000)]),
        brakes: Ok(Vec::new()),
    };
    let consumed =
        |name: &str| u32::from(matches!(name, "w.events" | "w.deliveries" | "w.deliveries.bulk" | "w.deliveries.slow"));
    let inside = InsideSeen {
        is_blocked: Some(Ok(false)),
        accepts_larger: Some(Ok(false)),
        exchanges: BTreeMap::from([("webhooks".to_owned(), queue(0, 0))]),
        queues: QUEUES.map(|name| (name.to_owned(), queue(0, consumed(name)))).into(),
        names: Names::new("w", "events"),
        sentinel: Some(("generation".to_owned(), queue(0, 0))),
    };
    let node = NodeSeen { address: "rabbit:5672".to_owned(), fault: None };
    Observed {
        settings: SettingsSeen { keep: Duration::from_secs(86_400 * 30), max_connections: 8, ..Default::default() },
        database: Database::Seen(Box::new(database)),
        broker: Some(BrokerSeen { nodes: vec![node], inside: Some(inside) }),
        cluster: Some(Ok(cluster())),
    }
}

/// Attempts of an hour before the latest one.
fn attempts(hours_ago: i64, outcome: &str, attempts: i64) -> AttemptsSeen {
    AttemptsSeen { hour: NOW - time::Duration::hours(hours_ago), outcome: outcome.parse().unwrap(), attempts }
}

/// Three nodes, and a leader on each.
fn cluster() -> ClusterSeen {
    let nodes: Vec<_> = ["a", "b", "c"].map(str::to_owned).into();
    let node = |name: &String| ClusterNode {
        name: name.clone(),
        running: true,
        net_ticktime: Some(json!(12)),
        ..Default::default()
    };
    let members = |(index, name): (usize, &str)| ClusterQueue {
        name: name.to_owned(),
        effective_policy_definition: Some(json!({})),
        leader: Some(nodes[index % 3].clone()),
        members: nodes.clone(),
        online: nodes.clone(),
        ..Default::default()
    };
    let binding =
        Binding { source: "webhooks".to_owned(), destination: "w.events".to_owned(), routing_key: "events".to_owned() };
    ClusterSeen {
        vhost: "/".to_owned(),
        queues: QUEUES.into_iter().enumerate().map(members).collect(),
        bindings: [binding.clone()].into(),
        wanted: [binding].into(),
        nodes: nodes.iter().map(node).collect(),
    }
}

fn database(observed: &mut Observed) -> &mut DatabaseSeen {
    let Database::Seen(seen) = &mut observed.database else { panic!("the database answers") };
    seen
}

fn server(observed: &mut Observed) -> &mut ServerCondition {
    database(observed).server.as_mut().unwrap()
}

fn inside(observed: &mut Observed) -> &mut InsideSeen {
    observed.broker.as_mut().unwrap().inside.as_mut().unwrap()
}

fn set(observed: &mut Observed, name: &str, seen: Seen) {
    inside(observed).queues.insert(name.to_owned(), seen);
}

fn cluster_of(observed: &mut Observed) -> &mut ClusterSeen {
    observed.cluster.as_mut().unwrap().as_mut().unwrap()
}

fn dead(observed: &mut Observed) -> &mut ClusterQueue {
    let mut queues = cluster_of(observed).queues.iter_mut();
    queues.find(|queue| queue.name == "w.dead").unwrap()
}

/// The findings that are not right, after one thing was broken.
fn broken(change: impl FnOnce(&mut Observed)) -> Vec<(&'static str, Level, String)> {
    let mut observed = well();
    change(&mut observed);
    let findings = all(&observed).into_iter().filter(|finding| finding.level > Level::Note);
    findings.map(|Finding { id, level, text, .. }| (id, level, text)).collect()
}

/// Breaks one thing, which has to be the only one that is found.
fn only(id: &str, level: Level, part: &str, change: impl FnOnce(&mut Observed)) {
    let found = broken(change);
    let [(found_id, found_level, text)] = found.as_slice() else { panic!("{id}: {found:?}") };
    assert_eq!((*found_id, *found_level), (id, level), "{text}");
    assert!(text.contains(part), "{part:?} in {text:?}");
}

#[test]
fn nothing_is_wrong_when_all_is_well() {
    assert_eq!(broken(|_| {}), []);
    let findings = all(&well());
    assert!(findings.iter().all(|finding| finding.remedy.is_none()));
}

#[test]
fn the_database_is_judged() {
    use Level::{Error, Warning};
    only("database.version", Error, "older than 15", |seen| server(seen).version_number = 140_019);
    only("database.archive", Warning, "archive_mode is off", |seen| server(seen).archive_mode = "off".to_owned());
    only("database.archive", Warning, "archiving WAL fails: no file was archived for 5 min", |seen| {
        server(seen).archive_fails = true;
    });
    only("database.archive", Warning, "no WAL file was archived for 2 h", |seen| {
        server(seen).archive_age = Some(7_300.0);
    });
    only("database.durability", Error, "power cut", |seen| server(seen).is_durable = false);
    only("database.durability", Error, "off", |seen| server(seen).synchronous_commit = "off".to_owned());
    only("database.standby", Error, "every commit waits", |seen| server(seen).synchronous = 0);
    only("database.standby", Warning, "none synchronous", |seen| server(seen).synchronous_names.clear());
    only("database.connections", Warning, "88 of 97 connections in use (max_connections", |seen| {
        server(seen).connections = 88;
    });
    only("database.connections", Warning, "20 of 22 connections in use (CONNECTION LIMIT of the user)", |seen| {
        server(seen).role_limit = 22;
    });
    only(
        "database.connections",
        Warning,
        "LIMIT of the database); the 2 service processes that run may open 17",
        |seen| {
            // 8 of the 20 connections are theirs: they may open 9 more.
            server(seen).database_limit = 28;
        },
    );
    assert_eq!(broken(|seen| server(seen).database_limit = 29), []);
    for limit in [-1, 97] {
        only("database.connections", Warning, "no CONNECTION LIMIT of the user is below it", |seen| {
            server(seen).role_limit = limit;
        });
    }
    let remedy = |change: fn(&mut ServerCondition)| {
        let mut observed = well();
        change(server(&mut observed));
        let found = all(&observed).into_iter().find(|finding| finding.id == "database.connections").unwrap();
        (found.level, found.remedy.unwrap_or_default())
    };
    let set = "ALTER ROLE webhooks CONNECTION LIMIT 60";
    assert_eq!(remedy(|server| server.role_limit = -1), (Warning, set.to_owned()));
    let low = remedy(|server| (server.role_limit, server.max_connections) = (-1, 60));
    assert_eq!(low, (Warning, format!("{set}, with max_connections of PostgreSQL above it")));
    assert!(remedy(|server| server.role_limit = 22).1.contains(set));
    let superuser = remedy(|server| (server.role, server.role_limit) = (None, -1));
    assert_eq!(superuser, (Level::Note, String::new()));
    only("database.connections", Warning, "13 service processes that run may open 105", |seen| {
        // Twelve processes of one host.
        database(seen).connections.as_mut().unwrap()[1].connections = 108;
    });
    only("database.transaction_ids", Warning, "1,000,000,000 transactions old (database postgres)", |seen| {
        server(seen).ids_age = 1_000_000_000;
    });
    only("database.transaction_ids", Error, "refuses all writes", |seen| server(seen).ids_age = 1_800_000_000);
    only("database.transactions", Warning, "11 min", |seen| server(seen).oldest_transaction = Some(660.0));
    only("database.clock", Warning, "-6.0 s", |seen| database(seen).clock.0 = time::Duration::seconds(-6));
    only("database.clock", Error, "+241.0 s", |seen| database(seen).clock.0 = time::Duration::seconds(241));
    let read_only = broken(|seen| seen.database = Database::ReadOnly);
    assert_eq!((read_only.len(), read_only[0].0), (1, "database.writes"));
    let unavailable = broken(|seen| seen.database = Database::Unavailable("refused".to_owned()));
    assert_eq!((unavailable.len(), unavailable[0].0, unavailable[0].2.as_str()), (1, "database.connection", "refused"));
}

#[test]
fn connections_that_timed_out_calls_left_are_not_further_processes() {
    let left_over = |seen: &mut Observed| {
        let ingest = &mut database(seen).connections.as_mut().unwrap()[1];
        (ingest.connections, ingest.committing) = (49, 45);
        (server(seen).connections, server(seen).of_role, server(seen).of_database) = (58, 58, 58);
    };
    let text = "58 of 60 connections in use (CONNECTION LIMIT of the user); the 2 service processes that run may open \
                17; the commits of 45 wait";
    only("database.connections", Level::Warning, text, left_over);
    let mut observed = well();
    left_over(&mut observed);
    let found = all(&observed).into_iter().find(|finding| finding.id == "database.connections").unwrap();
    assert!(!found.remedy.unwrap().contains("LIMIT"), "a larger limit would only keep more of them");
}

#[test]
fn the_room_for_locks_is_judged_by_the_days_that_are_kept() {
    let year = |seen: &mut Observed| seen.settings.keep = Duration::from_secs(86_400 * 400);
    let text =
        "room for 6,400 locks (max_locks_per_transaction = 64); reads of 411 days by 10 connections may hold 12,330";
    only("database.locks", Level::Warning, text, year);
    let mut observed = well();
    year(&mut observed);
    let finding = all(&observed).into_iter().find(|finding| finding.id == "database.locks").unwrap();
    assert!(finding.remedy.unwrap().starts_with("set max_locks_per_transaction = 128 in postgresql.conf"));
    server(&mut observed).max_locks = 128;
    assert_eq!(all(&observed).iter().filter(|finding| finding.level > Level::Note).count(), 0);
    let text = "reads of 250 days by 10 connections may hold 7,500";
    only("database.locks", Level::Warning, text, |seen| {
        // Old days in which something waits.
        let days = database(seen).days.as_mut().unwrap();
        days.made.extend((0..240).map(|ago| days.today - time::Duration::days(40 + ago)));
    });
    let mut observed = well();
    (observed.settings.keep, observed.settings.max_connections) = (Duration::ZERO, 0);
    let finding = all(&observed).into_iter().find(|finding| finding.id == "database.locks").unwrap();
    assert_eq!(finding.level, Level::Note);
}

#[test]
fn what_is_in_the_database_is_judged() {
    use Level::{Error, Warning};
    only("schema.version", Error, "1 missing migration from m1", |seen| {
        let seen = database(seen);
        seen.migrations = Ok(MigrationsSeen { missing: vec!["m1".to_owned()], ..Default::default() });
        (seen.work, seen.days) = (Err("no such table".to_owned()), Err("no such table".to_owned()));
    });
    only("schema.version", Error, "another baseline", |seen| {
        let seen = database(seen);
        let (missing, unknown) = (vec!["m1".to_owned()], vec!["m0".to_owned()]);
        seen.migrations = Ok(MigrationsSeen { missing, unknown, has_other_baseline: true, ..Default::default() });
        (seen.work, seen.days) = (Err("no such column".to_owned()), Err("no such column".to_owned()));
    });
    only("schema.version", Warning, "newer", |seen| {
        database(seen).migrations = Ok(MigrationsSeen { unknown: vec!["2027".to_owned()], ..Default::default() });
    });
    let days = |seen: &mut Observed, keep: std::ops::RangeInclusive<i64>| {
        let days = database(seen).days.as_mut().unwrap();
        let today = days.today;
        days.made.retain(|day| keep.contains(&(*day - today).whole_days()));
    };
    only("partitions.ahead", Error, "2026-03-11 has none", |seen| days(seen, -2..=0));
    only("partitions.ahead", Warning, "from 2026-03-13 on", |seen| days(seen, -2..=2));
    let keys = |seen: &mut Observed| match &mut database(seen).keys {
        Some(Ok(keys)) => std::mem::take(keys),
        _ => panic!("there are keys"),
    };
    let put = |seen: &mut Observed, keys| database(seen).keys = Some(Ok(keys));
    only("keys.open", Error, "\"new\" is not configured, and sealed 2 secrets", |seen| {
        let used = keys(seen);
        put(seen, KeysSeen { configured: vec!["other".to_owned()], ..used });
    });
    for (unopened, part) in [(3, "other digits"), (1, "1 of the latest")] {
        only("keys.open", Error, part, |seen| {
            let mut used = keys(seen);
            used.used[0].unopened = unopened;
            put(seen, used);
        });
    }
}

#[test]
fn the_broker_and_its_queues_are_judged() {
    use Level::{Error, Warning};
    only("broker.blocked", Error, "an alarm", |seen| {
        inside(seen).is_blocked = Some(Ok(true));
        inside(seen).accepts_larger = Some(Err("no answer".to_owned()));
    });
    only("broker.message_size", Warning, "more than 1 MiB", |seen| inside(seen).accepts_larger = Some(Ok(true)));
    only("broker.message_size", Warning, "not seen: no answer", |seen| {
        inside(seen).accepts_larger = Some(Err("no answer".to_owned()));
    });
    only("broker.version", Error, "3.9.29", |seen| {
        let rabbit = json!({"name": "rabbit", "version": "3.9.29"});
        cluster_of(seen).nodes[0].applications = vec![rabbit];
    });
    only("broker.connection", Warning, "other:5672: no answer within 4s", |seen| {
        let fault = Some(BrokerError::Timeout(Duration::from_secs(4)));
        let other = NodeSeen { address: "other:5672".to_owned(), fault };
        seen.broker.as_mut().unwrap().nodes.push(other);
    });
    only("queues.present", Error, "the queue w.notices is missing", |seen| set(seen, "w.notices", Seen::Missing));
    only("queues.present", Error, "the exchange webhooks is missing", |seen| {
        inside(seen).exchanges.insert("webhooks".to_owned(), Seen::Missing);
    });
    only("queues.arguments", Error, "inequivalent arg", |seen| {
        let differs = Some("PRECONDITION_FAILED - inequivalent arg".to_owned());
        set(seen, "w.dead", Seen::Present { ready: 0, consumers: 0, differs });
    });
    only("queues.answer", Error, "1 queue did not answer, such as w.dead: no answer", |seen| {
        set(seen, "w.dead", Seen::Unknown(BrokerError::Timeout(Duration::from_secs(4))));
    });
    only("queues.dead", Error, "1 dead letter", |seen| set(seen, "w.dead", queue(1, 0)));
    only("queues.rejected", Warning, "2 events were rejected", |seen| set(seen, "w.events.rejected", queue(2, 0)));
    only("queues.unreadable", Error, "parked 1 event", |seen| set(seen, "w.events.unreadable", queue(1, 0)));
    only("queues.unroutable", Error, "3 messages", |seen| set(seen, "w.unroutable", queue(3, 0)));
    only("queues.notices", Warning, "0 consumers", |seen| set(seen, "w.notices", queue(1_001, 0)));
    let none = broken(|seen| inside(seen).queues.values_mut().for_each(|queue| *queue = Seen::Missing));
    assert_eq!((none.len(), none[0].0), (1, "queues.present"), "{none:?}");
}

#[test]
fn the_services_and_what_waits_are_judged() {
    use Level::{Error, Warning};
    let without = |seen: &mut Observed, name: &str| {
        database(seen).connections.as_mut().unwrap().retain(|connections| connections.name != name);
    };
    only("services.api", Error, "no api-service", |seen| without(seen, "api-service"));
    only("leader.present", Error, "no event-ingest leads", |seen| without(seen, "event-ingest"));
    only("services.ingest", Error, "no event-ingest", |seen| set(seen, "w.events", queue(0, 0)));
    only("services.dispatchers", Error, "no dispatcher", |seen| {
        ["w.deliveries", "w.deliveries.bulk", "w.deliveries.slow"].iter().for_each(|name| set(seen, name, queue(0, 0)));
    });
    let braked = |holder: &str, reason: &str| {
        let (holder, reason) = (holder.to_owned(), reason.to_owned());
        vec![::ledger::Brake { holder, reason, since: NOW - time::Duration::minutes(5) }]
    };
    only("services.brake", Warning, "5 min ago: a test", |seen| {
        database(seen).brakes = Ok(braked("operator", "a test"));
        ["w.deliveries", "w.deliveries.bulk", "w.deliveries.slow"].iter().for_each(|name| set(seen, name, queue(0, 0)));
    });
    only("services.brake", Error, "1 braked dispatcher without jobs, the first for 5 min: no receiver", |seen| {
        database(seen).brakes = Ok(braked("one", "no_answer"));
    });
    only("services.dispatchers", Error, "bulk 0", |seen| set(seen, "w.deliveries.bulk", queue(0, 0)));
    only("services.dispatchers", Warning, "slow 2", |seen| set(seen, "w.deliveries.slow", queue(0, 2)));
    only("leader.broker", Warning, "rebuilt", |seen| {
        database(seen).generation = Ok(GenerationSeen { id: None, is_rebuilding: true });
    });
    only("leader.broker", Error, "lacks generation", |seen| {
        inside(seen).sentinel = Some(("generation".to_owned(), Seen::Missing));
    });
    only("backlog.events", Warning, "1,000 events wait", |seen| set(seen, "w.events", queue(1_000, 1)));
    only("backlog.due", Warning, "main 5,000, bulk 0", |seen| set(seen, "w.deliveries", queue(5_000, 1)));
    let overdue = |seen: &mut Observed, minutes| {
        let oldest_due = Some(NOW - time::Duration::minutes(minutes));
        database(seen).overdue = Ok(OverdueSeen { overdue: 7, oldest_due });
    };
    assert_eq!(broken(|seen| overdue(seen, 5)), [], "a retry may be so late");
    only("backlog.overdue", Warning, "7 deliveries are due", |seen| overdue(seen, 6));
    only("backlog.overdue", Error, "for 16 min", |seen| overdue(seen, 16));
    let work = |seen: &mut Observed, work| database(seen).work = Ok(work);
    only("queues.purged", Error, "parked deliveries by the ledger: 2", |seen| {
        work(seen, WorkSeen { parked: 2, ..Default::default() });
    });
    only("queues.dead", Error, "3 dead letters", |seen| {
        work(seen, WorkSeen { parked: 2, ..Default::default() });
        set(seen, "w.dead", queue(3, 0));
    });
    only("backlog.outbox", Error, "at least 10,000", |seen| {
        work(seen, WorkSeen { outbox_late: WorkSeen::MAX_COUNT, ..Default::default() });
    });
    only("backlog.notices", Error, "2 notices for over", |seen| {
        work(seen, WorkSeen { notices_late: 2, ..Default::default() });
    });
    only("backlog.tasks", Error, "that have stopped: 1", |seen| {
        work(seen, WorkSeen { tasks_late: 1, ..Default::default() });
    });
}

#[test]
fn the_share_of_failing_attempts_is_judged() {
    let seen = |seen: &mut Observed, rows: &[(i64, &str, i64)]| {
        let rows = rows.iter().map(|(ago, outcome, count)| attempts(*ago, outcome, *count));
        database(seen).attempts = Ok(rows.collect());
    };
    let is_well = |rows: &[(i64, &str, i64)]| assert_eq!(broken(|observed| seen(observed, rows)), []);
    let is_wrong = |part: &str, rows: &[(i64, &str, i64)]| {
        only("attempts.failing", Level::Warning, part, |observed| seen(observed, rows));
    };
    let most = "21 of 40 attempts failed since 12:00 UTC (the day before: 10 %): connect 12, dns 9";
    let failing = [(0, "success", 19), (0, "dns", 9), (0, "connect", 12)];
    is_wrong(most, &[failing.as_slice(), &[(1, "success", 90), (24, "status", 10)]].concat());
    is_well(&[failing.as_slice(), &[(1, "success", 10), (24, "status", 10)]].concat());
    is_wrong("21 of 40 attempts failed since 12:00 UTC: connect 12", &failing);
    is_well(&[(0, "success", 20), (0, "dns", 20)]);
    // Nothing succeeds, and nothing did.
    is_wrong("20 of 20 attempts failed since 12:00 UTC (the day before: 100 %)", &[(0, "dns", 20), (9, "dns", 5)]);
    // This hour has few attempts.
    is_wrong(
        "30 of 30 attempts failed since 11:00 UTC (the day before: 0 %)",
        &[(0, "timeout", 19), (1, "timeout", 11), (2, "success", 1)],
    );
    is_well(&[(0, "timeout", 10), (1, "timeout", 9), (2, "success", 1)]);
    is_well(&[(2, "success", 1)]);
    is_well(&[]);
}

#[test]
fn the_cluster_is_judged() {
    use Level::{Error, Warning};
    fn nodes(seen: &mut Observed) -> &mut [ClusterNode] {
        &mut cluster_of(seen).nodes
    }
    fn queues(seen: &mut Observed) -> &mut [ClusterQueue] {
        &mut cluster_of(seen).queues
    }
    only("cluster.nodes", Error, "not running: c", |seen| {
        nodes(seen)[2] = ClusterNode { name: "c".to_owned(), ..Default::default() }
    });
    only("cluster.nodes", Warning, "http://mq/: it answers 401", |seen| {
        seen.cluster = Some(Err("http://mq/: it answers 401".to_owned()));
    });
    assert_eq!(broken(|seen| seen.cluster = None), []);
    only("cluster.versions", Warning, "a 3.13.7, b 4.0.5", |seen| {
        for (node, version) in nodes(seen).iter_mut().zip(["3.13.7", "4.0.5"]) {
            node.applications = vec![json!({"name": "rabbit", "version": version})];
        }
    });
    only("cluster.alarms", Error, "memory of a, b", |seen| {
        nodes(seen)[..2].iter_mut().for_each(|node| node.mem_alarm = true);
    });
    only("cluster.alarms", Error, "disk of c", |seen| nodes(seen)[2].disk_free_alarm = true);
    only("cluster.partitions", Error, "a does not see b", |seen| nodes(seen)[0].partitions = vec!["b".to_owned()]);
    only("cluster.members", Warning, "fewer than 3 members on w.dead", |seen| {
        let queue = dead(seen);
        queue.members.truncate(2);
        queue.online.truncate(2);
    });
    only("cluster.members", Warning, "a member of w.dead is unavailable", |seen| dead(seen).online.truncate(2));
    only("cluster.members", Error, "majority of members: w.dead", |seen| dead(seen).online.truncate(1));
    only("cluster.members", Error, "majority of members: w.dead", |seen| dead(seen).leader = Some(String::new()));
    only("cluster.leaders", Warning, "all leaders are on a", |seen| {
        queues(seen).iter_mut().for_each(|queue| queue.leader = Some("a".to_owned()));
    });
    only("cluster.waits", Warning, "after 60 s", |seen| nodes(seen)[1].net_ticktime = Some(json!(60)));
    only("cluster.bindings", Error, "webhooks to w.events by \"events\"", |seen| cluster_of(seen).bindings.clear());
}

#[test]
fn bindings_that_no_service_declares_are_named() {
    let binding = |(source, destination, routing_key): (&str, &str, &str)| Binding {
        source: source.to_owned(),
        destination: destination.to_owned(),
        routing_key: routing_key.to_owned(),
    };
    let mut observed = well();
    let others = [
        ("", "w.events", "w.events"),
        ("other.events", "w.events", "#"),
        ("events", "audit", "#"),
        ("w.notices", "crm", "webhook.*"),
    ];
    cluster_of(&mut observed).bindings.extend(others.map(binding));
    let found = all(&observed).into_iter().filter(|finding| finding.id == "cluster.other_bindings");
    let found: Vec<_> = found.map(|Finding { level, text, .. }| (level, text)).collect();
    let [(Level::Warning, of_ours), (Level::Note, of_events)] = found.as_slice() else { panic!("{found:?}") };
    assert!(of_ours.starts_with("1 binding ") && of_ours.contains("other.events to w.events by \"#\""), "{of_ours}");
    assert!(of_events.starts_with("1 binding ") && of_events.contains("events to audit by \"#\""), "{of_events}");
}

#[test]
fn without_statistics_policies_are_not_called_right() {
    let mut observed = well();
    cluster_of(&mut observed).nodes.iter_mut().for_each(|node| node.net_ticktime = None);
    cluster_of(&mut observed).queues.iter_mut().for_each(|queue| queue.effective_policy_definition = None);
    let findings = all(&observed);
    let level = |id: &str| findings.iter().find(|finding| finding.id == id).map(|finding| finding.level);
    assert_eq!((level("cluster.statistics"), level("cluster.policies")), (Some(Level::Note), None));
    assert_eq!(level("cluster.members"), Some(Level::Ok));
}

#[test]
fn a_policy_is_judged_by_what_it_does_to_our_queues() {
    use Level::{Error, Warning};
    fn under(seen: &mut Observed, definition: Value) -> &mut ClusterQueue {
        let queue = dead(seen);
        (queue.policy, queue.effective_policy_definition) = (Some("p".to_owned()), Some(definition));
        queue
    }
    let sets = |definition: Value| broken(|seen| _ = under(seen, definition));
    only("cluster.policies", Error, "message-ttl = 1000 on w.dead by policy p: the queue can lose", |seen| {
        under(seen, json!({"message-ttl": 1_000}));
    });
    only("cluster.policies", Warning, "overflow = drop-head", |seen| _ = under(seen, json!({"overflow": "drop-head"})));
    only("cluster.policies", Error, "max-length = 5 on w.dead by policy p and operator policy o", |seen| {
        under(seen, json!({"max-length": 5})).operator_policy = Some("o".to_owned());
    });
    only("cluster.policies", Error, "expires = 5 on w.dead by operator policy o", |seen| {
        let queue = under(seen, json!({"expires": 5}));
        (queue.policy, queue.operator_policy) = (None, Some("o".to_owned()));
    });
    only("cluster.policies", Error, "delivery-limit = 20", |seen| _ = under(seen, json!({"delivery-limit": 20})));
    assert_eq!(sets(json!({"delivery-limit": 1_000})), []);
    assert_eq!(sets(json!({"queue-leader-locator": "balanced"})), []);
    assert_eq!(sets(json!([])), []);
    let remedy = |seen: &Observed| all(seen).into_iter().find_map(|finding| finding.remedy);
    let mut observed = well();
    under(&mut observed, json!({"expires": 5})).operator_policy = Some("o".to_owned());
    let expected = "rabbitmqctl clear_policy -p / p and clear_operator_policy -p / o, or set it again with a pattern that does not match our queues";
    assert_eq!(remedy(&observed).as_deref(), Some(expected));
}
