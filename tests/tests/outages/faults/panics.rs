//! Panics of tasks that a service needs.

use end_to_end::{
    processes::Process,
    system::{Options, TestSystem},
};
use futures_util::future::join_all;

use crate::faults::{API, DISPATCHER, INGEST};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_ends_when_a_task_panics_that_it_needs_and_names_the_task() {
    let tasks = [
        (INGEST, "upkeep"),
        (INGEST, "consumer"),
        (INGEST, "publisher"),
        (INGEST, "database clock"),
        (DISPATCHER, "recorder"),
        (DISPATCHER, "holder"),
        (DISPATCHER, "consumer"),
        (DISPATCHER, "queue depths"),
        (API, "publisher"),
        (API, "health"),
    ];
    let system = TestSystem::prepared(Options::default()).await;
    let ends = tasks.map(|(service, task)| {
        let variables = system.with(&[("WEBHOOKS_FAULT_TASK", task)]);
        async move {
            let mut process = Process::spawn(service, &variables);
            let (status, log) = (process.wait().await, process.logged());
            assert_eq!(status.code(), Some(1), "{service}, {task}: {log}");
            assert!(log.contains(&format!("\"{task}\"")), "{service}, {task}: {log}");
            assert!(log.contains("a task panicked that the process needs: the lines above"), "{log}");
        }
    });
    join_all(ends).await;
}
