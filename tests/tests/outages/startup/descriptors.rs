//! A dispatcher that may open too few descriptors lowers its slots.

use end_to_end::{
    events::Event,
    processes::Process,
    receiver::always,
    system::{Options, Subscriber, TestSystem, metric, wait_ready},
    wait::SOON,
};

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
