//! How a job's way through this process ends.

use domain::{Job, JobError, WebhookId};
use ledger::Held;
use time::OffsetDateTime;
use tokio::sync::OwnedSemaphorePermit;

use crate::{abandoned::Abandoned, lane::Refused};

/// What is to be done with a job and its messages.
pub(crate) enum End {
    /// Nothing is left to do. Its duplicates are done with it.
    Done,
    /// The job of the next attempt is published, due then. Its duplicates are done with it.
    Retry(OffsetDateTime),
    /// The message is not needed. A duplicate is judged by itself: it may have been published after the ledger was
    /// read.
    NotNeeded,
    /// The job is published once more, due then. A duplicate is judged by itself: it may be the copy just published.
    Later(OffsetDateTime),
    /// The same, for an attempt that failed by a fault of ours: it counts as one more delivery of the job by the broker.
    Uncharged(OffsetDateTime),
    /// This process accepts no jobs: the message goes back to its queue.
    GiveBack,
    /// The ledger has to hold the job until its webhook accepts it.
    Hold(Hold),
    /// The ledger does not have its delivery.
    Unknown,
    /// It is parked for an operator, with its duplicates.
    Dead(DeadReason),
    /// It is looked up and judged once more.
    JudgeAgain,
    Abandoned,
}

impl From<Abandoned> for End {
    fn from(_: Abandoned) -> Self {
        Self::Abandoned
    }
}

/// A job that is to be held.
#[derive(Clone, Copy)]
pub(crate) struct Hold {
    pub(crate) job: Job,
    pub(crate) webhook: WebhookId,
    pub(crate) why: WhyHeld,
}

/// Why a job is held.
#[derive(Clone, Copy)]
pub(crate) enum WhyHeld {
    /// Its webhook is paused.
    Paused,
    /// It was refused admission.
    Refused(Refused),
}

impl Hold {
    /// `handed_out`: the number of earlier deliveries of the job by the broker.
    pub(crate) const fn held(&self, handed_out: u32, is_again: bool) -> Held {
        let waking = match self.why {
            WhyHeld::Paused => None,
            WhyHeld::Refused(Refused { waking, .. }) => Some(waking),
        };
        Held { webhook: self.webhook, delivery: self.job.delivery, handed_out, is_again, waking }
    }
}

/// Why a job is not attempted, or not now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum NotAttempted {
    /// It is under way already.
    Duplicate,
    /// The ledger does not expect this attempt.
    Stale,
    /// The ledger expects this attempt later.
    Early,
    /// This attempt is recorded, and its retry may not have been published.
    #[strum(serialize = "follow_up")]
    PublishRetry,
    /// Its webhook is deleted.
    Cancelled,
    /// Its webhook's secret does not open.
    Sealed,
    /// Retention has deleted its delivery.
    Expired,
    /// Its delivery was erased with its tenant.
    Erased,
    /// Its message was lost with its connection: the broker delivers the message again.
    MessageLost,
    /// This process accepts no jobs.
    Braked,
    /// Its attempt failed by a fault of ours, and is made once more.
    Uncharged,
}

/// Why a message is parked: the reason of a dead letter.
#[derive(Debug)]
pub(crate) enum DeadReason {
    /// The message holds no job.
    NoJob(JobError),
    /// The row of its delivery, or its body, cannot be read.
    Unreadable(String),
    /// Its attempt was made and cannot be recorded. It must not be made again.
    Unrecorded(String),
    /// It cannot be held.
    Unheld(String),
    /// The ledger has no such delivery. It may have lost it, and the job may be all that is left.
    UnknownDelivery,
    /// The job's task panicked.
    Panicked,
    /// The processes that took the job died, again and again.
    Poison {
        /// How often its message was handed out before.
        handed_out_before: u32,
        /// How often its process died after it was begun.
        deaths: u16,
        /// Its turn to begin. The next suspect, which may end this process, begins once this one is parked.
        _turn: Option<OwnedSemaphorePermit>,
    },
}

impl DeadReason {
    /// Its name in metrics and in the dead letter.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            Self::NoJob(error) => error.reason(),
            Self::Unreadable(_) => "unreadable",
            Self::Unrecorded(_) => "unrecorded",
            Self::Unheld(_) => "unheld",
            Self::UnknownDelivery => "unknown_delivery",
            Self::Panicked => "panicked",
            Self::Poison { .. } => "poison",
        }
    }

    /// Details for the operator.
    pub(crate) fn detail(&self) -> String {
        match self {
            Self::NoJob(error) => error.to_string(),
            Self::Unreadable(fault) | Self::Unheld(fault) => fault.clone(),
            Self::Unrecorded(fault) => format!("its attempt was made, and is not in the log: {fault}"),
            Self::UnknownDelivery => {
                "the ledger has no such delivery: it may have lost it, as in a failover".to_owned()
            }
            Self::Panicked => "its task panicked: the dispatcher's log says where".to_owned(),
            Self::Poison { handed_out_before, deaths, .. } => format!(
                "handed out {handed_out_before} times before; its dispatcher died {deaths} times after it was begun"
            ),
        }
    }
}
