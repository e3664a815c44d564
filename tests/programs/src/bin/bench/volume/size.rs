//! The size of everything.

/// The least count. A smaller one shows nothing.
const MIN_COUNT: u64 = 1_000;

pub(super) const HISTORY: u64 = 10_000_000;
pub(super) const WAITING: u64 = 2_000_000;
pub(super) const DROPPED: u64 = 100_000;
pub(super) const HELD: u64 = 1_000_000;
pub(super) const RETRIES: u64 = 1_000_000;
pub(super) const OLD_DAY: u64 = 1_000_000;
pub(super) const OTHER_WEBHOOKS: u64 = 10_000;

/// The counts of this run: the full ones, or a part of them for trying out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size(f64);

impl Size {
    /// Reads the factor from the environment variable `VOLUME`. It is 1 if that is not set.
    pub(super) fn from_environment() -> Self {
        let text = std::env::var("VOLUME").unwrap_or_default();
        let factor = if text.is_empty() { Some(1.0) } else { text.parse().ok() };
        let factor = factor.filter(|factor| (0.0001..=1.0).contains(factor));
        Self(factor.unwrap_or_else(|| panic!("VOLUME is a number from 0.0001 to 1, not {text:?}")))
    }

    pub(super) const fn factor(self) -> f64 {
        self.0
    }

    /// This run's part of a full count.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "counts below 2^53"
    )]
    pub(super) fn of(self, full: u64) -> u64 {
        ((full as f64 * self.0) as u64).max(MIN_COUNT)
    }
}
