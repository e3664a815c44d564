//! A check that did not hold.

use std::{
    any::Any,
    fmt::{Debug, Display},
    time::Duration,
};

use end_to_end::wait::SOON;
use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) what: String,
    pub(crate) expected: String,
    pub(crate) came: String,
    blamed: Blamed,
}

/// The services whose logs may explain a failure.
#[derive(Clone, Copy, Debug)]
enum Blamed {
    Any,
    One(&'static str),
    None,
}

pub(crate) type Checked<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(what: impl Display, expected: impl Display, came: impl Display) -> Self {
        Self { what: what.to_string(), expected: expected.to_string(), came: came.to_string(), blamed: Blamed::Any }
    }

    /// A panic of the harness. Its message is a sentence about what did not hold.
    pub(crate) fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
        Self::new("a step of the demonstration", "no error", text.unwrap_or("a panic without words"))
    }

    pub(crate) fn in_log_of(self, service: &'static str) -> Self {
        Self { blamed: Blamed::One(service), ..self }
    }

    /// Whether the log of this service may explain it.
    pub(crate) fn blames(&self, service: &str) -> bool {
        match self.blamed {
            Blamed::Any => true,
            Blamed::One(blamed) => blamed == service,
            Blamed::None => false,
        }
    }

    /// Somebody interrupted the demonstration: no service is to blame.
    pub(crate) fn interrupted(signal: &str) -> Self {
        Self {
            blamed: Blamed::None,
            ..Self::new("the demonstration", "to run to its end", format!("{signal}: interrupted"))
        }
    }
}

pub(crate) fn same<T: PartialEq + Debug>(what: impl Display, expected: &T, came: &T) -> Checked {
    if expected == came { Ok(()) } else { Err(Failure::new(what, format!("{expected:?}"), format!("{came:?}"))) }
}

/// Looks until the expected value comes. The failure shows the last value.
pub(crate) async fn soon<T, F>(what: impl Display, expected: &T, mut look: impl FnMut() -> F) -> Checked
where
    T: PartialEq + Debug,
    F: Future<Output = T>,
{
    let end = Instant::now() + SOON;
    loop {
        let came = look().await;
        if came == *expected || Instant::now() >= end {
            return same(what, expected, &came);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
