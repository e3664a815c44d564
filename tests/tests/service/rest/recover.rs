//! Recoveries of dropped deliveries.

use std::collections::{HashMap, HashSet};

use end_to_end::{
    api::Api,
    commands::{self, Ran},
    history,
    processes::{Process, with_api_address},
    proxy::Mode,
    receiver::always,
    system::{Options, Service, Subscriber, TestSystem, metric},
    wait::{SOON, until},
};
use futures_util::future::join_all;
use ledger::Actor;
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime, format_description::well_known::Rfc3339};
use uuid::Uuid;

use crate::rest::end_waiting_sessions;

pub(crate) fn ago(time: Duration) -> Value {
    let moment = OffsetDateTime::now_utc() - time;
    json!({"from": moment.format(&Rfc3339).expect("it can be written")})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_made_after_the_request_does_not_keep_a_recovery_from_its_end() {
    let system = TestSystem::prepared(Options::default()).await;
    let webhook = history::webhook_row(&system, Uuid::new_v4(), 12, "'dropped'").await;
    // As if nine of them had come after the request. They lie between those that came before it.
    let nine = "SELECT id FROM deliveries ORDER BY id OFFSET 2 LIMIT 9";
    system.sql(&format!("UPDATE deliveries SET created_at = now() + interval '1 hour' WHERE id IN ({nine})")).await;
    let id = Uuid::now_v7();
    let columns = "id, webhook_id, since, states, cursor";
    let begin = format!("'{id}', '{webhook}', now() - interval '20 days', '{{dropped}}', '{}'", Uuid::nil());
    system.sql(&format!("INSERT INTO recoveries ({columns}) VALUES ({begin})")).await;
    let ledger = system.ledger_as("steps", 1);
    let step = async || {
        let keep = std::time::Duration::from_secs(30 * 86_400);
        let step = ledger.recovery_step(1, std::time::Duration::ZERO, keep, &mut None).await.unwrap();
        step.map(|step| step.deliveries)
    };
    assert_eq!([step().await, step().await, step().await], [Some(1), Some(1), Some(1)]);
    assert_eq!((step().await, step().await), (Some(0), None), "it has ended");
    assert_eq!(system.count(&format!("SELECT resent::bigint FROM recoveries WHERE id = '{id}'")).await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_and_period_are_chosen_and_a_count_says_how_many_a_recovery_sends() {
    // Ten deliveries in a step.
    let options = Options::with([("API__RECOVER_PER_SECOND", "40")]);
    let system = TestSystem::running(options).await;
    let Subscriber { tenant, api, receiver, webhook, .. } = system.subscriber(always(200)).await;
    let other = api.create(&receiver.url("/other"), &["quote.closed"]).await.id;
    history::dropped(&system, tenant, &other, 5).await;
    let states = "CASE i % 3 WHEN 0 THEN 'dropped' WHEN 1 THEN 'skipped' ELSE 'succeeded' END";
    history::made(&system, tenant, &webhook, 60, states).await;
    let log = api.log(&webhook, "limit=200").await;
    // Thirty deliveries: the end of the span is not part of it.
    let (from, to) = (&log["data"][39]["occurred_at"], &log["data"][9]["occurred_at"]);
    let skipped = json!({"from": from, "to": to, "states": ["skipped"]});
    let all = json!({"from": from, "states": ["skipped", "dropped"]});
    let count = async |wanted: &Value| {
        let mut wanted = wanted.clone();
        wanted["count_only"] = json!(true);
        let answer = api.recover(&webhook, &wanted).await;
        assert_eq!((answer.status, &answer.json()["is_exact"]), (200, &json!(true)), "{}", answer.text);
        let counted = answer.json();
        let [count, dropped, skipped] = ["count", "dropped", "skipped"].map(|name| counted[name].as_u64().unwrap());
        assert_eq!(count, dropped + skipped);
        (dropped, skipped)
    };
    for (wanted, expected) in [
        (&skipped, (0, 10)),
        (&all, (13, 14)),
        (&json!({"since": from}), (13, 0)),
        (&json!({"since": from, "until": to}), (10, 0)),
    ] {
        assert_eq!(count(wanted).await, expected, "{wanted}");
    }
    assert_eq!(system.count("SELECT count(*) FROM recoveries").await, 0, "a count begins nothing");
    assert_eq!(system.count("SELECT count(*) FROM history WHERE action = 'recovered'").await, 0);

    for (wanted, resent) in [(&skipped, 10), (&all, 17)] {
        let (dropped, skipped) = count(wanted).await;
        assert_eq!(dropped + skipped, resent);
        let begun = api.recover(&webhook, wanted).await;
        assert_eq!(begun.json()["states"], wanted["states"]);
        let recovery = api.recovered(begun.header("location").unwrap()).await;
        let ends = (&recovery["from"], &recovery["to"], &recovery["resent"]);
        assert_eq!(ends, (from, &wanted["to"], &json!(resent)), "{wanted}");
        assert_eq!(count(wanted).await, (0, 0));
        let entry = system
            .sql("SELECT user_id, details::text FROM history WHERE action = 'recovered' ORDER BY id DESC LIMIT 1")
            .await;
        let details: Value = serde_json::from_str(entry[0].get(1)).unwrap();
        let expected =
            json!({"recovery_id": recovery["id"], "from": from, "to": wanted["to"], "states": wanted["states"]});
        assert_eq!((entry[0].get::<_, &str>(0), details), ("somebody", expected));
    }
    receiver.wait_for(27, SOON).await;
    let ids: HashSet<_> =
        receiver.received().iter().map(|one| one.header("x-service-webhook-id").unwrap().to_owned()).collect();
    let expected = log["data"].as_array().unwrap()[..40].iter().filter(|delivery| delivery["state"] != "succeeded");
    let expected: HashSet<_> = expected.map(|delivery| delivery["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, expected);
    assert_eq!(receiver.received().len(), 27, "nothing of the other webhook");
    let kept = format!("SELECT count(*) FROM deliveries WHERE webhook_id = '{other}' AND state = 'dropped'");
    assert_eq!(system.count(&kept).await, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_stops_at_a_hundred_thousand_and_leaves_out_what_is_too_old() {
    // No ingest: its leader deletes rows of deliveries that do not exist.
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let api = system.admin(Uuid::new_v4()).await;
    let webhook = api.create("https://localhost/", &["quote.closed"]).await.id;
    // The index alone: a count reads no deliveries.
    let add = async |count: usize, state: &str, age: &str| {
        system
                .sql(&format!(
                    "INSERT INTO unsuccessful_deliveries SELECT (lpad(to_hex((extract(epoch FROM now() - {age}) * 1000)::bigint), \
                   12, '0') || '8' || substr(md5(gen_random_uuid()::text), 1, 3) || '8' || \
                   substr(md5(gen_random_uuid()::text), 1, 15))::uuid, '{webhook}', '{state}' \
                 FROM generate_series(1, {count}) AS i"
                ))
                .await;
    };
    let count = async || {
        let wanted = json!({"from": "2020-01-01T00:00:00Z", "states": ["dropped", "skipped"], "count_only": true});
        api.recover(&webhook, &wanted).await.json()
    };
    add(7, "dropped", "interval '40 days'").await;
    add(3, "skipped", "interval '1 second'").await;
    let counted = |dropped: u64, is_exact: bool| json!({"count": dropped + 3, "dropped": dropped, "skipped": 3, "is_exact": is_exact});
    assert_eq!(count().await, counted(0, true));
    add(100_000, "dropped", "i * interval '1 second'").await;
    assert_eq!(count().await, counted(100_000, true));
    add(1, "dropped", "interval '1 second'").await;
    assert_eq!(count().await, counted(100_000, false));
    // None of those that were looked at had this outcome. The recovery looks at the others.
    let span = ["recover", "--from", "2020-01-01T00:00:00Z", "--to", "2100-01-01T00:00:00Z"];
    let of_outcome = [&span[..], &["--outcome", "dns", "--yes"]].concat();
    let Ran { code, out, err } = commands::webhookctl(&system.variables, &of_outcome).await;
    assert!(code == 0 && out.contains("\nat least 0 deliveries of 1 webhook(s) of 1 tenant(s)"), "{out}{err}");
    assert!(out.contains("recoveries begun: 1."), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_types_are_chosen_and_counted() {
    let system = TestSystem::running(Options::default()).await;
    let Subscriber { tenant, api, receiver, webhook, .. } = system.subscriber(always(200)).await;
    history::made(&system, tenant, &webhook, 12, "CASE i % 2 WHEN 0 THEN 'dropped' ELSE 'skipped' END").await;
    let number = "row_number() OVER (ORDER BY id DESC) AS i";
    let change = format!(
        "UPDATE deliveries AS d SET event_type = CASE n.i % 3 WHEN 0 THEN 'quote.accepted' ELSE 'quote.cancelled' END \
         FROM (SELECT id, {number} FROM deliveries) AS n WHERE n.id = d.id AND n.i % 3 < 2"
    );
    system.sql(&change).await;
    system.sql("UPDATE events AS e SET event_type = d.event_type FROM deliveries AS d WHERE d.event_id = e.id").await;
    let wanted = |types: &[&str], count_only: bool| {
        let states = ["dropped", "skipped"];
        json!({"from": "2020-01-01T00:00:00Z", "states": states, "event_types": types, "count_only": count_only})
    };
    for (types, dropped, skipped) in [
        (&["quote.accepted"][..], 2, 2),
        (&["quote.accepted", "quote.cancelled"], 4, 4),
        (&["return_note.created"], 0, 0),
    ] {
        let counted = api.recover(&webhook, &wanted(types, true)).await.json();
        let expected = json!({"count": dropped + skipped, "dropped": dropped, "skipped": skipped, "is_exact": true});
        assert_eq!(counted, expected, "{types:?}");
    }
    let begun = api.recover(&webhook, &wanted(&["quote.accepted"], false)).await;
    let recovery = api.recovered(begun.header("location").unwrap()).await;
    assert_eq!((&recovery["event_types"], &recovery["resent"]), (&json!(["quote.accepted"]), &json!(4)));
    let entry = api.get(&format!("/api/v1/webhooks/{webhook}/history/?limit=1")).await.json();
    assert_eq!(entry["data"][0]["details"]["event_types"], json!(["quote.accepted"]), "{entry}");
    let received = receiver.wait_for(4, SOON).await;
    assert!(received.iter().all(|one| one.header("x-service-event") == Some("quote.accepted")));
    system.until_count("SELECT count(*) FROM deliveries WHERE state = 'succeeded'", 4, SOON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_recovery_ends_after_its_step_and_the_next_one_sends_the_rest() {
    // Five deliveries in a step.
    let options = Options::with([("API__RECOVER_PER_SECOND", "20")]);
    let system = TestSystem::running(options).await;
    let Subscriber { tenant, api, receiver, webhook, .. } = system.subscriber(always(200)).await;
    history::dropped(&system, tenant, &webhook, 200).await;
    let begun = api.recover(&webhook, &ago(Duration::HOUR)).await;
    let location = begun.header("location").unwrap();
    until("a step is taken", SOON, || async { api.get(location).await.json()["resent"].as_u64() >= Some(5) }).await;
    let stopped = api.delete(location).await;
    let recovery = stopped.json();
    assert_eq!((stopped.status, &recovery["state"]), (200, &json!("stopped")), "{}", stopped.text);
    let resent = recovery["resent"].as_u64().unwrap();
    assert!(resent < 200 && recovery["finished_at"].is_string(), "{recovery}");
    assert_eq!(api.delete(location).await.json(), recovery, "a second stop changes nothing");
    let history = api.get(&format!("/api/v1/webhooks/{webhook}/history/")).await.json();
    let actions: Vec<_> = history["data"].as_array().unwrap().iter().map(|entry| &entry["action"]).collect();
    assert_eq!(actions, ["stopped", "recovered", "created"]);
    let details = json!({"recovery_id": recovery["id"], "resent": resent});
    assert_eq!(history["data"][0]["details"], details);
    // What it has sent arrives, and the others wait for another one.
    receiver.wait_for(resent.try_into().unwrap(), SOON).await;
    let next = api.recover(&webhook, &ago(Duration::HOUR)).await;
    assert_eq!(next.status, 202, "{}", next.text);
    let done = api.recovered(next.header("location").unwrap()).await;
    assert_eq!((&done["resent"], api.get(location).await.json()), (&json!(200 - resent), recovery));
    let done_stays = api.delete(next.header("location").unwrap()).await.json();
    assert_eq!(done_stays, done, "one that is done cannot be stopped");
    // The list has both, newest first, in pages.
    let listed = api.whole(&format!("/api/v1/webhooks/{webhook}/recover/"), "limit=1").await;
    assert_eq!(listed.len(), 2);
    assert_eq!((&listed[0], &listed[1]["state"]), (&done, &json!("stopped")));
    receiver.wait_for(200, SOON).await;
}

/// A step has locked the recovery's row until its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_waits_for_the_step_under_way() {
    let system = TestSystem::prepared(Options::default()).await;
    let tenant = Uuid::new_v4();
    let webhook = history::webhook_row(&system, tenant, 3, "'dropped'").await;
    let ledger = system.ledger_as("stop", 1);
    let own = ledger.webhook_known(tenant.into(), webhook.into()).await.unwrap().unwrap();
    let actor = Actor { tenant: tenant.into(), user: "somebody".to_owned() };
    let (id, columns) = (Uuid::now_v7(), "id, webhook_id, since, cursor");
    let begin = format!("'{id}', '{webhook}', now() - interval '1 hour', '{}'", Uuid::nil());
    system.sql(&format!("INSERT INTO recoveries ({columns}) VALUES ({begin})")).await;
    let step = system.database_session("BEGIN; UPDATE recoveries SET resent = resent + 1").await;
    let end = async {
        system.wait_for_locked_out(1).await;
        step.batch_execute("COMMIT").await.unwrap();
    };
    let (stopped, ()) = tokio::join!(ledger.recovery_stop(&actor, own, id), end);
    let stopped = stopped.unwrap().unwrap();
    assert_eq!((stopped.resent, stopped.state()), (1, "stopped"));
    let (pause, keep) = (std::time::Duration::ZERO, std::time::Duration::from_secs(30 * 86_400));
    assert!(ledger.recovery_step(1, pause, keep, &mut None).await.unwrap().is_none(), "no further step");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_beside_a_running_one_is_refused_and_led_to_it() {
    let options = Options::with([("API__RECOVER_PER_SECOND", "20")]);
    let system = TestSystem::running(options).await;
    let Subscriber { tenant, api, receiver, webhook, .. } = system.subscriber(always(200)).await;
    history::dropped(&system, tenant, &webhook, 50).await;
    let since = ago(Duration::HOUR);
    let answers = join_all((0..10).map(|_| api.recover(&webhook, &since))).await;
    let (begun, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 202);
    let [begun] = &*begun else { panic!("{begun:?}") };
    let location = begun.header("location").unwrap();
    let other = api.recover(&webhook, &json!({"from": "2026-01-01T00:00:00Z", "states": ["skipped"]})).await;
    for refused in refused.iter().chain([&other]) {
        assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("recovering")), "{}", refused.text);
        assert_eq!(refused.header("location"), Some(location), "it is the one that is running");
    }
    let count = json!({"from": "2026-01-01T00:00:00Z", "count_only": true});
    assert_eq!(api.recover(&webhook, &count).await.status, 200, "a count is possible meanwhile");
    assert_eq!(api.recovered(location).await["states"], json!(["dropped"]));
    assert_eq!(
        system.count("SELECT count(*) FROM history WHERE action = 'recovered'").await,
        1,
        "a refused one does nothing"
    );
    receiver.wait_for(50, SOON).await;
    system.until_count("SELECT count(*) FROM deliveries WHERE state = 'succeeded' AND attempts = 8", 50, SOON).await;
    assert_eq!(receiver.received().len(), 50);
    let received = receiver.received();
    let (first, last) = (received[0].at, received[49].at);
    assert!(last - first >= Duration::milliseconds(1_800), "about twenty a second: {}", last - first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_whose_step_cannot_be_taken_holds_up_no_other() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let (tenant, api, stuck) = history::webhook(&system, 5, "'dropped'").await;
    let other = api.create("https://localhost/", &["quote.closed"]).await.id;
    history::dropped(&system, tenant, &other, 200).await;
    let lock = format!("BEGIN; SELECT FROM deliveries WHERE webhook_id = '{stuck}' FOR UPDATE");
    let hold = system.database_session(&lock).await;
    let since = ago(Duration::HOUR);
    let begin = async |webhook: &str| api.recover(webhook, &since).await;
    let first = begin(&stuck).await;
    system.wait_for_locked_out(1).await;
    // The first one's step is blocked meanwhile.
    let second = begin(&other).await;
    end_waiting_sessions(&system).await;
    assert_eq!(api.recovered(second.header("location").unwrap()).await["resent"], 200);
    assert_eq!(api.get(first.header("location").unwrap()).await.json()["state"], "running");
    drop(hold);
    // As if the lease of the failed step had ended.
    system.sql("UPDATE recoveries SET leased_until = now()").await;
    assert_eq!(api.recovered(first.header("location").unwrap()).await["resent"], 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recoveries_of_two_tenants_take_turns() {
    let system = TestSystem::prepared(Options::default()).await;
    let (many, one) = (Uuid::new_v4(), Uuid::new_v4());
    for tenant in [many, many, many, one] {
        let webhook = history::webhook_row(&system, tenant, 3, "'dropped'").await;
        let columns = "id, webhook_id, since, cursor";
        let begin = format!("gen_random_uuid(), '{webhook}', now() - interval '1 hour', '{}'", Uuid::nil());
        system.sql(&format!("INSERT INTO recoveries ({columns}) VALUES ({begin})")).await;
    }
    let (ledger, mut turn, mut turns) = (system.ledger_as("steps", 1), None, Vec::new());
    let (pause, keep) = (std::time::Duration::ZERO, std::time::Duration::from_secs(30 * 86_400));
    while ledger.recovery_step(1, pause, keep, &mut turn).await.unwrap().is_some() {
        turns.push(turn.unwrap().as_uuid());
    }
    // Three steps send something, and a fourth one finds nothing.
    let of_one: Vec<usize> = (0..turns.len()).filter(|place| turns[*place] == one).collect();
    assert!(turns.len() == 16 && of_one.len() == 4, "{turns:?}");
    assert!(of_one.windows(2).all(|two| two[1] - two[0] == 2) && of_one[0] <= 1, "{turns:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_waits_while_many_messages_are_ready_in_the_bulk_lane() {
    let system = TestSystem::prepared(Options::default()).await;
    let ops = system.start(Service::Api).await;
    let (exchange, bulk) = (system.names.exchange(), system.names.bulk());
    for _ in 0..21 {
        join_all((0..477).map(|_| system.upstream.publish_to(&exchange, &bulk, b"{}"))).await;
    }
    system.upstream.wait_ready(&bulk, 10_017, SOON).await;
    let mut recoveries = Vec::new();
    for count in [1.0, 2.0] {
        let (_, api, webhook) = history::webhook(&system, 3, "'dropped'").await;
        let begun = api.recover(&webhook, &ago(Duration::HOUR)).await;
        recoveries.push((api, begun.header("location").unwrap().to_owned()));
        // The relay counts recoveries as often as it looks for their steps.
        let counted = async || metric(ops, r#"webhooks_tasks{task="recover"}"#).await == count;
        until("the relay has looked", SOON, counted).await;
    }
    for (api, location) in &recoveries {
        assert_eq!(api.get(location).await.json()["resent"], 0, "it does not wait");
    }
    for _ in 0..18 {
        system.upstream.take(&bulk).await.unwrap();
    }
    for (api, location) in &recoveries {
        assert_eq!(api.recovered(location).await["resent"], 3);
    }
    let is_there = async || system.upstream.ready(&bulk).await > 10_000;
    until("its jobs are in that lane, few as they are", SOON, is_there).await;
    assert_eq!(system.upstream.ready(&system.names.main()).await, 0);
}

/// The process dies at the worst moment: a step is committed, and the broker has not got its jobs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_survives_the_kill_of_its_process() {
    let system = TestSystem::prepared(Options::default()).await;
    let variables = with_api_address(&system).await;
    let (proxy, mut doomed) = Process::start_behind_proxy("api-service", variables).await;
    let Subscriber { tenant, api, receiver, webhook, .. } = system.subscriber(always(200)).await;
    history::dropped(&system, tenant, &webhook, 120).await;

    proxy.set(Mode::Stall);
    let begun = api.recover(&webhook, &ago(Duration::HOUR)).await;
    assert_eq!(begun.status, 202, "{}", begun.text);
    let location = begun.header("location").unwrap();
    until("a step is taken", SOON, || async {
        let recovery = api.get(location).await.json();
        recovery["resent"] == 50
    })
    .await;
    doomed.kill();
    assert_eq!(system.count("SELECT count(*) FROM promised_jobs").await, 50);

    system.start(Service::Dispatcher).await;
    system.start(Service::Api).await;
    let api = Api { address: system.anonymous().await.address, ..api };
    // As if the dead process's leases had ended.
    system.sql("UPDATE promised_jobs SET leased_until = now()").await;
    system.sql("UPDATE recoveries SET leased_until = now()").await;
    assert_eq!(api.recovered(location).await["resent"], 120);
    system.until_count("SELECT count(*) FROM deliveries WHERE state = 'succeeded' AND attempts = 8", 120, SOON).await;
    system.until_count("SELECT count(*) FROM promised_jobs", 0, SOON).await;
    let mut posts: HashMap<String, usize> = HashMap::new();
    for one in receiver.received() {
        *posts.entry(one.header("x-service-webhook-id").unwrap().to_owned()).or_default() += 1;
    }
    assert!(posts.len() == 120 && posts.values().all(|count| *count == 1), "{} ids", posts.len());
}
