//! Latencies: from the time at which a message was to be published to its arrival at the receiver.

/// Milliseconds, sorted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies(Vec<f64>);

impl Latencies {
    pub(crate) fn new(mut milliseconds: Vec<f64>) -> Self {
        milliseconds.sort_unstable_by(f64::total_cmp);
        Self(milliseconds)
    }

    /// The latencies of both together.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self::new([self.0, other.0].concat())
    }

    /// Counts each missing one of `expected` as this slow: what never came must not look fast.
    #[must_use]
    pub(crate) fn with_missing(mut self, expected: u64, milliseconds: f64) -> Self {
        let expected = usize::try_from(expected).unwrap_or(usize::MAX).max(self.0.len());
        self.0.resize(expected, milliseconds);
        Self::new(self.0)
    }

    /// The smallest value that at least this part of all (such as 0.99) does not exceed. 0 when there are none.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "small numbers"
    )]
    pub(crate) fn percentile(&self, part: f64) -> f64 {
        let rank = (part * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }
}
