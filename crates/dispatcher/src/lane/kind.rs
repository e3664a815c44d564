//! The kinds of lanes, and what a job may be refused.

use broker::Names;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum LaneKind {
    /// For jobs that need no other lane. Retries come back over it.
    Main,
    /// For jobs in great numbers: of a tenant that floods, or published again in bulk.
    Bulk,
    /// For jobs that were held.
    Slow,
}

impl LaneKind {
    pub(crate) const ALL: [Self; 3] = [Self::Main, Self::Bulk, Self::Slow];

    pub(crate) fn queue(self, names: &Names) -> String {
        match self {
            Self::Main => names.main(),
            Self::Bulk => names.bulk(),
            Self::Slow => names.slow(),
        }
    }
}

/// Why a job of an active webhook is held: what it did not get. `Slots`, `Places` and `Bodies` are what this dispatcher as a
/// whole has too little of: an alert asks for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Refusal {
    /// Its webhook is slow, and what is for slow ones is taken.
    Slow,
    /// Its webhook is at its share.
    #[strum(serialize = "webhook_share")]
    Webhook,
    /// Its tenant is at its share.
    #[strum(serialize = "tenant_share")]
    Tenant,
    /// All slots of the main lane are taken.
    Slots,
    /// The same, and few places to wait in are free.
    Places,
    /// Too many long bodies of the main lane are in memory.
    #[strum(serialize = "body_bytes")]
    Bodies,
    /// It is a suspect, and it is another suspect's turn.
    #[strum(serialize = "suspect")]
    Suspects,
}
