//! Why this process accepts no jobs.

/// The reason for which the brake is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumIter, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Reason {
    /// No receiver can be reached.
    NoAnswer,
    /// This machine's clock and the database's differ by more than the brake tolerates.
    Clock,
    /// An operator has set the brake.
    Operator,
}

impl Reason {
    /// Those that a dispatcher finds by itself: the first is the one that it shows.
    pub(crate) const OWN: [Self; 2] = [Self::Clock, Self::NoAnswer];
}
