//! A job on the delivery and retry queues (crates/README.md, the picture). It is a reference, never a body, a URL or a
//! secret. A message holds one job or a few.

use serde::{Deserialize, Serialize};

use crate::DeliveryId;

/// The version of a message that holds one job.
const ONE_JOB_VERSION: u16 = 1;
/// The version of a message that holds several. A program that does not know it must not read it as one job.
const SEVERAL_JOBS_VERSION: u16 = 2;

/// "Make attempt number `attempt` of this delivery."
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Job {
    /// Which delivery.
    #[serde(rename = "delivery_id")]
    pub delivery: DeliveryId,
    /// Which attempt, from 1.
    pub attempt: u16,
}

/// Why a message holds no job that this version can do.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// Not the JSON of a job.
    #[error("not a job: {0}")]
    Malformed(#[source] serde_json::Error),
    /// A message of another version of the service.
    #[error("a job of version {0}, this dispatcher knows versions {ONE_JOB_VERSION} and {SEVERAL_JOBS_VERSION}")]
    UnknownVersion(u16),
}

impl JobError {
    /// The reason, as a word from a closed set.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed_job",
            Self::UnknownVersion(_) => "unknown_version",
        }
    }
}

#[derive(Serialize)]
struct One {
    v: u16,
    #[serde(flatten)]
    job: Job,
}

#[derive(Serialize, Deserialize)]
struct Several {
    v: u16,
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Version {
    v: u16,
}

impl Job {
    /// The job of the attempt after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self { attempt: self.attempt + 1, ..self }
    }

    /// The bytes of a message that holds this job.
    pub fn to_bytes(self) -> Vec<u8> {
        bytes(&One { v: ONE_JOB_VERSION, job: self })
    }

    /// The bytes of a message that holds these jobs, at least one.
    pub fn many_to_bytes(jobs: &[Self]) -> Vec<u8> {
        match jobs {
            [job] => job.to_bytes(),
            jobs => bytes(&Several { v: SEVERAL_JOBS_VERSION, jobs: jobs.to_vec() }),
        }
    }

    /// Reads the jobs of a message, at least one, in their order.
    ///
    /// # Errors
    /// [`JobError`] when it holds no job, or is of another version.
    pub fn parse(message: &[u8]) -> Result<Vec<Self>, JobError> {
        let jobs = match read::<Version>(message)?.v {
            ONE_JOB_VERSION => return Ok(vec![read(message)?]),
            SEVERAL_JOBS_VERSION => read::<Several>(message)?.jobs,
            other => return Err(JobError::UnknownVersion(other)),
        };
        if jobs.is_empty() {
            return Err(JobError::Malformed(serde::de::Error::custom("no jobs")));
        }
        Ok(jobs)
    }
}

fn bytes(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).unwrap_or_else(|_| unreachable!("numbers and ids always serialize"))
}

fn read<'m, T: Deserialize<'m>>(message: &'m [u8]) -> Result<T, JobError> {
    serde_json::from_slice(message).map_err(JobError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_read_back_and_another_version_is_told_apart_from_garbage() {
        let [one, two, three] = [7, 8, 9].map(|n| Job { delivery: uuid::Uuid::from_u128(n).into(), attempt: 3 });
        assert_eq!(Job::parse(&one.to_bytes()).unwrap(), [one]);
        assert_eq!(Job::many_to_bytes(&[one]), one.to_bytes());
        assert_eq!(Job::parse(&Job::many_to_bytes(&[one, two, three])).unwrap(), [one, two, three]);
        let with_the_members_of_one = String::from_utf8(one.to_bytes()).unwrap().replace("\"v\":1", "\"v\":3");
        for other in [r#"{"v":3,"other":true}"#, &with_the_members_of_one] {
            let other = Job::parse(other.as_bytes()).unwrap_err();
            assert!(matches!(other, JobError::UnknownVersion(3)), "{other}");
            assert_eq!(other.reason(), "unknown_version");
        }
        for garbage in [
            "",
            "{}",
            "[]",
            r#"{"v":1}"#,
            r#"{"v":2}"#,
            r#"{"v":2,"jobs":[]}"#,
            r#"{"v":2,"jobs":[{}]}"#,
            r#"{"v":1,"delivery_id":"x","attempt":1}"#,
        ] {
            let fault = Job::parse(garbage.as_bytes()).unwrap_err();
            assert!(matches!(fault, JobError::Malformed(_)) && fault.reason() == "malformed_job", "{garbage}");
        }
    }

    #[test]
    fn the_next_job_is_the_next_attempt_of_the_same_delivery() {
        let delivery = uuid::Uuid::from_u128(7).into();
        assert_eq!(Job { delivery, attempt: 3 }.next(), Job { delivery, attempt: 4 });
    }
}
