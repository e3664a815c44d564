//! Steps, and how they are told to a reader.

use std::fmt;

use crate::prelude::*;

/// The function that takes a step, and the job.
pub(crate) type Of = (&'static str, Option<Job>);

/// A step of a state.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    actor: &'static str,
    pub(crate) of: Of,
    /// What the budget bounds. `None`: it happens sooner or later.
    pub(crate) may: Option<May>,
    note: &'static str,
}

/// Whether the answer to a call comes. The call has its effect in any case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Comes,
    IsLost,
}

/// The steps of a state, each with the state after it.
pub(crate) struct Steps<'a> {
    pub(crate) config: &'a Config,
    pub(crate) state: &'a State,
    pub(crate) next: &'a mut Vec<(Step, State)>,
    /// The actor of the next steps.
    pub(crate) actor: &'static str,
}

impl Steps<'_> {
    /// The same, by this actor.
    pub(crate) fn by(&mut self, actor: &'static str) -> &mut Self {
        self.actor = actor;
        self
    }

    fn add(&mut self, of: Of, may: Option<May>, note: &'static str) -> &mut State {
        self.next.push((Step { actor: self.actor, of, may, note }, *self.state));
        let last = self.next.len() - 1;
        &mut self.next[last].1
    }

    /// A step that happens sooner or later. The caller changes the state.
    pub(crate) fn usual(&mut self, of: Of, note: &'static str) -> &mut State {
        self.add(of, None, note)
    }

    /// A step that may happen besides, as often as the budget says.
    pub(crate) fn may(&mut self, may: May, of: Of, note: &'static str, change: impl FnOnce(&mut State)) {
        if let Some(left) = self.state.budget[may as usize].checked_sub(1) {
            let after = self.add(of, Some(may), note);
            after.budget[may as usize] = left;
            change(after);
        }
    }

    /// A call whose answer comes, or is lost.
    pub(crate) fn call(&mut self, of: Of, [note, lost]: [&'static str; 2], change: impl Fn(&mut State, Answer)) {
        change(self.usual(of, note), Answer::Comes);
        self.may(May::Fault, of, lost, |state| change(state, Answer::IsLost));
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fault, (name, job)) = (if self.may == Some(May::Fault) { "FAULT: " } else { "" }, self.of);
        write!(f, "{:<13} {name:<30} {fault}{}", self.actor, self.note)?;
        match job {
            Some(Job { delivery, attempt: 0 }) => write!(f, " (delivery {})", delivery + 1),
            Some(Job { delivery, attempt }) => write!(f, " (attempt {attempt} of delivery {})", delivery + 1),
            None => Ok(()),
        }
    }
}
