//! Steps, and how they are told to a reader.

use std::fmt;

use crate::{
    config::{Budget, Config},
    state::{Job, State},
};

/// Who takes a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Actor {
    Ingest,
    Dispatcher(usize),
    Relay(usize),
    Leader,
    Broker,
    Time,
    Administrator,
    Publisher,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It happens sooner or later.
    Usual,
    /// It may happen, and is bounded by the budget.
    Fault,
    Wish,
}

/// A step: named after the function that does it.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) actor: Actor,
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) job: Option<Job>,
    pub(crate) note: &'static str,
}

/// A step with the state after it.
pub(crate) type Next = (Step, State);

/// The steps of a state.
pub(crate) struct Steps<'a> {
    pub(crate) config: &'a Config,
    pub(crate) state: &'a State,
    pub(crate) next: &'a mut Vec<Next>,
}

/// Who does a step, and the function; the job, and what happens.
type By = (Actor, &'static str);
type Said = (Option<Job>, &'static str);

impl Steps<'_> {
    fn add(&mut self, kind: Kind, by: By, said: Said, mut state: State, change: impl FnOnce(&mut State)) {
        change(&mut state);
        state.sort();
        self.next.push((Step { kind, actor: by.0, name: by.1, job: said.0, note: said.1 }, state));
    }

    /// What happens sooner or later.
    pub(crate) fn usual(&mut self, by: By, said: Said, change: impl FnOnce(&mut State)) {
        self.add(Kind::Usual, by, said, *self.state, change);
    }

    /// A fault, if one more may happen.
    pub(crate) fn fault(&mut self, by: By, said: Said, change: impl FnOnce(&mut State)) {
        let mut state = *self.state;
        if spend(&mut state.budget.faults) {
            self.add(Kind::Fault, by, said, state, change);
        }
    }

    /// What may happen besides, as often as a budget says.
    pub(crate) fn wish(&mut self, of: fn(&mut Budget) -> &mut u8, by: By, said: Said, change: impl FnOnce(&mut State)) {
        let mut state = *self.state;
        if spend(of(&mut state.budget)) {
            self.add(Kind::Wish, by, said, state, change);
        }
    }
}

fn spend(budget: &mut u8) -> bool {
    let left = budget.checked_sub(1);
    *budget = left.unwrap_or_default();
    left.is_some()
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Ingest => "event-ingest",
            Self::Dispatcher(0) => "dispatcher A",
            Self::Dispatcher(_) => "dispatcher B",
            Self::Relay(0) => "relay A",
            Self::Relay(_) => "relay B",
            Self::Leader => "leader",
            Self::Broker => "broker",
            Self::Time => "time",
            Self::Administrator => "administrator",
            Self::Publisher => "publisher",
        };
        f.pad(name)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = if self.kind == Kind::Fault { "FAULT: " } else { "" };
        write!(f, "{:<13} {:<30} {fault}{}", self.actor, self.name, self.note)?;
        match self.job {
            Some(Job { delivery, attempt: 0 }) => write!(f, " (delivery {})", delivery + 1),
            Some(Job { delivery, attempt }) => write!(f, " (attempt {attempt} of delivery {})", delivery + 1),
            None => Ok(()),
        }
    }
}
