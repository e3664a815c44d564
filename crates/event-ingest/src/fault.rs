//! Fault points for tests. They exist in debug builds only.

/// A step of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Read,
    Store,
}

/// Panics at an event whose text contains the value of `WEBHOOKS_FAULT_PANIC`, and then the step: `oops-Read`.
#[cfg(debug_assertions)]
pub(crate) fn at(step: Step, text: &[u8]) {
    let Ok(value) = std::env::var("WEBHOOKS_FAULT_PANIC") else { return };
    let panics = format!("{value}-{step:?}");
    assert!(!text.windows(panics.len()).any(|part| part == panics.as_bytes()), "WEBHOOKS_FAULT_PANIC");
}

#[cfg(not(debug_assertions))]
pub(crate) const fn at(_step: Step, _text: &[u8]) {}
