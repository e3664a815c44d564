//! A job on the delivery and retry queues: a reference, never a body, a URL or a secret (DESIGN 1). A message holds one, or
//! a few.

use serde::{Deserialize, Serialize};

use crate::DeliveryId;

const VERSION: u16 = 1;

/// "Make attempt number `attempt` of this delivery."
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    /// Which delivery.
    pub delivery: DeliveryId,
    /// Which attempt, from 1.
    pub attempt: u16,
}

/// Why a message is not a job that this version can do.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// Not the JSON of a job.
    #[error("not a job: {0}")]
    Malformed(#[source] serde_json::Error),
    /// Made by another version of the service.
    #[error("a job of version {0}, this dispatcher knows version {VERSION}")]
    UnknownVersion(u16),
}

impl JobError {
    /// The fault as a word from a closed set.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed_job",
            Self::UnknownVersion(_) => "unknown_version",
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Wire {
    v: u16,
    delivery_id: DeliveryId,
    attempt: u16,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    others: Vec<Reference>,
}

#[derive(Serialize, Deserialize)]
struct Reference {
    delivery_id: DeliveryId,
    attempt: u16,
}

#[derive(Deserialize)]
struct Version {
    v: u16,
}

impl Job {
    /// The bytes of a message that holds this job alone.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        self.with(&[])
    }

    /// The bytes of a message that holds this job and others.
    #[must_use]
    pub fn with(self, others: &[Self]) -> Vec<u8> {
        let others = others.iter().map(|job| Reference { delivery_id: job.delivery, attempt: job.attempt }).collect();
        let wire = Wire { v: VERSION, delivery_id: self.delivery, attempt: self.attempt, others };
        serde_json::to_vec(&wire).unwrap_or_else(|_| unreachable!("numbers and ids always serialize"))
    }

    /// Reads the jobs of a message: one at least, in their order.
    ///
    /// # Errors
    /// [`JobError`] when it holds no job, or those of another version.
    pub fn parse(message: &[u8]) -> Result<Vec<Self>, JobError> {
        let Version { v } = serde_json::from_slice(message).map_err(JobError::Malformed)?;
        if v != VERSION {
            return Err(JobError::UnknownVersion(v));
        }
        let Wire { delivery_id, attempt, others, .. } = serde_json::from_slice(message).map_err(JobError::Malformed)?;
        let mut jobs = vec![Self { delivery: delivery_id, attempt }];
        jobs.extend(others.into_iter().map(|other| Self { delivery: other.delivery_id, attempt: other.attempt }));
        Ok(jobs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_read_back_and_another_version_is_told_apart_from_garbage() {
        let [one, two, three] = [7, 8, 9].map(|n| Job { delivery: uuid::Uuid::from_u128(n).into(), attempt: 3 });
        assert_eq!(Job::parse(&one.to_bytes()).unwrap(), [one]);
        assert_eq!(Job::parse(&one.with(&[two, three])).unwrap(), [one, two, three]);
        assert!(matches!(Job::parse(br#"{"v":2,"other":true}"#), Err(JobError::UnknownVersion(2))));
        for garbage in ["", "{}", "[]", r#"{"v":1}"#, r#"{"v":1,"delivery_id":"x","attempt":1}"#] {
            assert!(matches!(Job::parse(garbage.as_bytes()), Err(JobError::Malformed(_))), "{garbage}");
        }
    }
}
