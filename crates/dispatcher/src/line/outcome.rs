//! How a job's way through this process ends.

use domain::JobError;

use crate::lane::refusal::Hold;

/// The end of a job: what is published before its message is acknowledged (`Settler::message_of`).
pub(crate) type End = domain::End<DeadReason>;

/// The shutdown's deadline has passed. What was under way stays unacknowledged, and is redelivered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abandoned;

/// A reason to end a job's way before its attempt.
pub(crate) enum Stop {
    End(End),
    /// The ledger has to hold the job until its webhook accepts it.
    Hold(Hold),
    /// This process accepts no jobs, or the shutdown's deadline has passed: its messages go back to their queue.
    GiveBack,
}

impl From<End> for Stop {
    fn from(end: End) -> Self {
        Self::End(end)
    }
}

impl From<Abandoned> for Stop {
    fn from(_: Abandoned) -> Self {
        Self::GiveBack
    }
}

/// A reason to park a message: that of its dead letter.
#[derive(Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum DeadReason {
    /// The message holds no job.
    NoJob(JobError),
    /// The row of its delivery, or its body, cannot be read.
    Unreadable(String),
    /// Its attempt was made and cannot be recorded. It must not be made again.
    Unrecorded(String),
    /// It cannot be held.
    Unheld(String),
    /// The ledger has no such delivery. It may have lost it, and the job may be all that is left; or an operator erased the
    /// tenant early.
    UnknownDelivery,
    /// The job's task panicked.
    Panicked,
    /// The processes that took the job died, again and again.
    Poison {
        /// The number of earlier deliveries of its message by the broker.
        delivery_count: u32,
        /// How often its process died after it was begun.
        deaths: u16,
    },
}

impl DeadReason {
    /// Its name in metrics and in the dead letter.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::NoJob(error) => error.reason(),
            other => other.into(),
        }
    }

    /// Details for the operator.
    pub(crate) fn detail(&self) -> String {
        match self {
            Self::NoJob(error) => error.to_string(),
            Self::Unreadable(fault) | Self::Unheld(fault) => fault.clone(),
            Self::Unrecorded(fault) => format!("its attempt was made, and is not in the log: {fault}"),
            Self::UnknownDelivery => {
                "the ledger has no such delivery: a failover lost it, or `tenant erase --now` deleted it".to_owned()
            }
            Self::Panicked => "its task panicked: the dispatcher's log says where".to_owned(),
            Self::Poison { delivery_count, deaths } => format!(
                "delivered {delivery_count} times before; its dispatcher died {deaths} times after it was begun"
            ),
        }
    }
}
