//! Fault points for tests. They exist in debug builds only.

#[cfg(debug_assertions)]
use std::sync::LazyLock;
use std::time::Duration;

/// Aborts the process at an attempt whose URL contains the value of `WEBHOOKS_FAULT_ABORT`. Panics at one whose URL
/// contains that of `WEBHOOKS_FAULT_PANIC`.
#[cfg(debug_assertions)]
pub(crate) fn at_attempt(url: &str) {
    type Text = LazyLock<Option<String>>;
    static ABORT: Text = LazyLock::new(|| std::env::var("WEBHOOKS_FAULT_ABORT").ok());
    static PANIC: Text = LazyLock::new(|| std::env::var("WEBHOOKS_FAULT_PANIC").ok());
    let hits = |text: &Text| text.as_deref().is_some_and(|text| url.contains(text));
    if hits(&ABORT) {
        tracing::error!("WEBHOOKS_FAULT_ABORT: the process ends here");
        std::process::abort();
    }
    assert!(!hits(&PANIC), "WEBHOOKS_FAULT_PANIC");
}

#[cfg(not(debug_assertions))]
pub(crate) const fn at_attempt(_url: &str) {}

/// Shortens a time of the brake: divides it by the value of `WEBHOOKS_FAULT_HASTE`.
#[cfg(debug_assertions)]
pub(crate) fn hastened(time: Duration) -> Duration {
    static HASTE: LazyLock<u32> =
        LazyLock::new(|| std::env::var("WEBHOOKS_FAULT_HASTE").map_or(1, |haste| haste.parse().expect("a number")));
    time / *HASTE
}

#[cfg(not(debug_assertions))]
pub(crate) const fn hastened(time: Duration) -> Duration {
    time
}
