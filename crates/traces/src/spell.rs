//! One warning for each spell in which spans are lost or have to wait.

/// How exporting goes. It decides what is worth a line in the log.
#[derive(Debug, Default)]
pub(crate) struct Spell {
    state: State,
    /// How many spans had been dropped when the spell began.
    before: u64,
    /// The same at the latest export.
    latest: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Well,
    /// The collector takes no spans.
    Failing,
    /// It takes them more slowly than they come.
    Slow,
}

/// What to tell the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The collector takes no spans.
    Failing,
    /// Spans were dropped, as it is too slow.
    Slow,
    /// All is well again. So many spans were dropped meanwhile.
    Well(u64),
}

impl Spell {
    /// An export failed. `dropped` is how many spans were ever dropped.
    pub(crate) fn failed(&mut self, dropped: u64) -> Option<Notice> {
        let before = std::mem::replace(&mut self.latest, dropped);
        if self.state == State::Well {
            self.before = before;
        }
        let was = std::mem::replace(&mut self.state, State::Failing);
        (was != State::Failing).then_some(Notice::Failing)
    }

    /// An export succeeded.
    pub(crate) fn succeeded(&mut self, dropped: u64) -> Option<Notice> {
        let before = std::mem::replace(&mut self.latest, dropped);
        let (state, notice) = match (self.state, dropped - before) {
            (State::Well, 0) => (State::Well, None),
            (State::Well, _) => {
                self.before = before;
                (State::Slow, Some(Notice::Slow))
            }
            (State::Slow, 1..) => (State::Slow, None),
            (State::Slow, 0) | (State::Failing, _) => (State::Well, Some(Notice::Well(dropped - self.before))),
        };
        self.state = state;
        notice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_that_is_away_is_said_once_and_its_return_once() {
        let mut spell = Spell::default();
        assert_eq!(spell.succeeded(0), None);
        assert_eq!([spell.failed(0), spell.failed(5), spell.failed(9)], [Some(Notice::Failing), None, None]);
        assert_eq!([spell.succeeded(12), spell.succeeded(12)], [Some(Notice::Well(12)), None]);
        assert_eq!([spell.failed(12), spell.succeeded(13)], [Some(Notice::Failing), Some(Notice::Well(1))]);
    }

    #[test]
    fn a_slow_collector_is_said_once_until_nothing_is_dropped_any_more() {
        let mut spell = Spell::default();
        assert_eq!([spell.succeeded(4), spell.succeeded(7)], [Some(Notice::Slow), None]);
        assert_eq!([spell.succeeded(7), spell.succeeded(7)], [Some(Notice::Well(7)), None]);
        assert_eq!([spell.succeeded(8), spell.failed(8)], [Some(Notice::Slow), Some(Notice::Failing)]);
        assert_eq!(spell.succeeded(9), Some(Notice::Well(2)));
    }
}
