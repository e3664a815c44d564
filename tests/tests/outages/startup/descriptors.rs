//! A dispatcher that may open too few descriptors lowers its slots. One that has none left makes its attempts a minute later.

use std::{process::Command, time::Duration};

use end_to_end::{
    events::Event,
    name_server::{NameServer, Say},
    processes::Process,
    receiver::{Receiver, always},
    system::{Options, Subscriber, TestSystem, metric, until_metric, wait_ready},
    wait::SOON,
};
use uuid::Uuid;

use crate::startup::waiting::{is_up, logs};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatcher_with_few_descriptors_lowers_its_slots_and_says_what_to_do() {
    let system = TestSystem::running(Options { dispatchers: 0, ..Options::default() }).await;
    let mut variables = system.variables.clone();
    for (name, value) in
        [("DISPATCHER__MAX_IN_FLIGHT", "1024"), ("DISPATCHER__SLOW_IN_FLIGHT", "256"), ("EGRESS__MAX_IDLE", "1024")]
    {
        variables.insert(format!("WEBHOOKS__{name}"), value.to_owned());
    }
    let dispatcher = Process::spawn_with_descriptors("dispatcher", &variables, 2500);
    let words = ["WARN", "open 2500 descriptors, fewer than the 3816", "max_in_flight 1024 it uses 272", "ulimit -Hn"];
    logs(&dispatcher, 1, &words).await;
    is_up(&dispatcher).await;
    wait_ready(dispatcher.ops).await;
    assert_eq!(metric(dispatcher.ops, "process_max_fds").await, 2500.0);
    for (lane, slots) in [("main", 272.0), ("slow", 68.0)] {
        let name = format!("webhooks_slots{{lane=\"{lane}\"}}");
        assert_eq!(metric(dispatcher.ops, &name).await, slots, "{lane}");
    }
    let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    receiver.wait_for(1, SOON).await;
}

fn limit(dispatcher: &Process, descriptors: &str) {
    let (pid, limit) = (dispatcher.pid().to_string(), format!("--nofile={descriptors}:"));
    assert!(Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_without_a_descriptor_is_made_a_minute_later_and_not_counted() {
    let server = NameServer::start(|_, _| Say::Addresses(vec![[127, 0, 0, 1].into()])).await;
    let settings =
        vec![("EGRESS__NAME_SERVERS", server.address().to_string()), ("EGRESS__MAX_IDLE_PER_HOST", "0".to_owned())];
    let options = Options { dispatchers: 0, schedule: "60s,120s", settings, ..Options::default() };
    let system = TestSystem::running(options).await;
    let dispatcher = Process::start("dispatcher", &system.variables).await;
    let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
    let (admin, port) = (system.admin(tenant).await, receiver.addr().port());
    // The look-up of a name takes a descriptor as well.
    for host in ["127.0.0.1", "one.receiver.example"] {
        admin.create(&format!("https://{host}:{port}/"), &["quote.closed"]).await;
    }
    let publish = async || system.upstream.publish(&Event::closed(tenant, 1)).await;
    publish().await;
    receiver.wait_for(2, SOON).await;
    let soft = std::fs::read_to_string(format!("/proc/{}/limits", dispatcher.pid())).unwrap();
    let soft = soft.lines().find(|line| line.starts_with("Max open files")).unwrap().split_whitespace().nth(3).unwrap();
    limit(&dispatcher, "1");
    publish().await;
    let waiting = "SELECT count(*) FROM deliveries WHERE state = 'pending' AND attempts = 0 \
                       AND next_attempt_at BETWEEN now() + interval '30 seconds' AND now() + interval '60 seconds'";
    let retry = system.names.retry(Duration::from_secs(60));
    let wait = async || {
        system.until_count(waiting, 2, SOON).await;
        system.upstream.wait_ready(&retry, 2, SOON).await;
    };
    // As if the minute had passed.
    let come_again = async || {
        system.sql("UPDATE deliveries SET next_attempt_at = now() WHERE state = 'pending'").await;
        for job in system.upstream.take_all(&retry).await {
            system.upstream.publish_to(&system.names.exchange(), &system.names.main(), &job.delivery.data).await;
        }
    };
    wait().await;
    come_again().await;
    wait().await;
    limit(&dispatcher, soft);
    come_again().await;
    receiver.wait_for(4, SOON).await;
    system.until_count("SELECT count(*) FROM deliveries WHERE state = 'succeeded' AND attempts = 1", 4, SOON).await;
    let skipped = r#"webhooks_jobs_skipped_total{reason="no_descriptor"}"#;
    until_metric(dispatcher.ops, skipped, 4.0, SOON).await;
    assert_eq!(metric(dispatcher.ops, "webhooks_brake{").await, 0.0);
    let failed = "SELECT count(*) FROM attempts WHERE outcome <> 'success'";
    assert_eq!(system.count(failed).await, 0);
}
