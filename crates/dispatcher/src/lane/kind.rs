//! The kinds of lanes, and what a job may be refused in one.

use std::time::Duration;

use broker::Names;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum LaneKind {
    /// For jobs that need no other lane. Retries come back over it.
    Main,
    /// For jobs in great numbers: of a tenant that floods, or published again in bulk.
    Bulk,
    /// For jobs that were refused, above all as their webhook is at its share.
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

    /// How long a job waits for a slot before it is moved, once its webhook or its tenant is known to be slow. Short
    /// outside of the slow lane, so that jobs of a slow webhook do not fill the places: each place lets up to ten leave
    /// a second. In the slow lane it limits how fast the jobs of a busy webhook go round the queue.
    pub(super) const fn patience(self) -> Duration {
        match self {
            Self::Main | Self::Bulk => Duration::from_millis(100),
            Self::Slow => Duration::from_secs(2),
        }
    }

    /// The same while no attempt of the two takes long. Then slots become free, and a burst is soon through, even if
    /// each connection has to be made first. Moving it would cost more than waiting.
    pub(super) const fn longest_patience(self) -> Duration {
        match self {
            Self::Main | Self::Bulk => Duration::from_secs(2),
            Self::Slow => self.patience(),
        }
    }

    /// How many KiB of long bodies may be in memory: 48 bodies of 256 KiB in main and bulk lane together, 16 in the
    /// slow lane. With what is read in batches, this is well below what a process may take.
    pub(super) const fn body_kib(self) -> u32 {
        match self {
            Self::Main | Self::Bulk => 12 * 1024,
            Self::Slow => 4 * 1024,
        }
    }
}

/// Why a job is refused admission: what it did not get in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Refusal {
    /// Its webhook is at its share.
    #[strum(serialize = "webhook_share")]
    Webhook,
    /// Its tenant is at its share.
    #[strum(serialize = "tenant_share")]
    Tenant,
    /// Too many long bodies are in memory.
    #[strum(serialize = "body_bytes")]
    Bodies,
    /// It is a suspect, and it is another suspect's turn.
    #[strum(serialize = "suspect")]
    Suspects,
}
