//! The service at volume: one webhook with 10,000,000 deliveries over 30 days, others with millions that wait, and
//! 10,000 more webhooks. Another tenant gets 200 events a second throughout. What is measured must not slow it.

mod activation;
mod calls;
mod deletion;
mod operation;
mod rebuild;
mod recovery;
mod retention;
mod samples;
mod seed;
mod size;
mod statements;

use std::{
    io,
    time::{Duration, Instant},
};

use end_to_end::api::Api;
use uuid::Uuid;

use crate::{
    bench::Bench,
    environment::Environment,
    load::{Load, SMALL_BODY_BYTES},
    outcome::Outcome,
    report::Figure,
};
use seed::Seeded;
use size::Size;
use statements::Statements;

/// The parts, in the order in which they are measured: `deletion` before the parts that publish jobs.
pub(crate) const PARTS: [&str; 6] = ["calls", "retention", "deletion", "recovery", "activation", "rebuild"];

/// At its default rate a recovery would show nothing but that rate. The part `retention` needs days beyond the default
/// one.
const SETTINGS: [(&str, &str); 2] = [("API__RECOVER_PER_SECOND", "20000"), ("RETENTION__KEEP", "40days")];

/// A full run takes longer than a session's usual hour.
const SESSION_LIFETIME: Duration = Duration::from_secs(6 * 60 * 60);

/// A full ledger with the service at work on it.
struct Volume<'s> {
    environment: &'s Environment<'s>,
    size: Size,
    seeded: Seeded,
    statements: Statements,
    /// The events of the other tenant.
    load: Load,
    /// An administrator of the tenant with the large webhooks.
    admin: Api,
}

pub(crate) fn knows(parts: &[&str]) -> bool {
    parts.iter().all(|part| PARTS.contains(part))
}

/// Fills a ledger with what the parts need, and measures them. Measures all parts when none is named.
pub(crate) async fn measure(bench: &Bench, parts: &[&str], outcome: &mut Outcome) -> io::Result<()> {
    let parts = if parts.is_empty() { &PARTS[..] } else { parts };
    let size = Size::from_environment();
    Environment::with(bench, &SETTINGS, async |environment| {
        let began = Instant::now();
        let seeded = seed::fill(environment, size, parts).await;
        let seconds = began.elapsed().as_secs_f64();
        let volume = Volume::start(environment, size, seeded).await;
        outcome.measure("seed", volume.what_there_is(seconds)).await?;
        for part in PARTS.iter().filter(|part| parts.contains(part)) {
            outcome.measure(part, volume.figures_of(part)).await?;
        }
        Ok(())
    })
    .await
}

impl<'s> Volume<'s> {
    async fn start(environment: &'s Environment<'s>, size: Size, seeded: Seeded) -> Self {
        let statements = Statements::watch(environment).await;
        environment.start_all(1).await;
        environment.start_api().await;
        let admin = environment.system.session(seeded.large, "admin", SESSION_LIFETIME).await;
        let load = environment.events(&[seeded.other], SMALL_BODY_BYTES);
        environment.warm_up(&load, 1).await;
        Self { environment, size, seeded, statements, load, admin }
    }

    async fn what_there_is(&self, seconds: f64) -> Vec<Figure> {
        let bytes = self.environment.count("SELECT pg_database_size(current_database())").await;
        #[expect(clippy::cast_precision_loss, reason = "a size to look at")]
        let gigabytes = bytes as f64 / 1e9;
        println!("  at {} of the full size: {gigabytes:.1} GB, written in {seconds:.0} s", self.size.factor());
        vec![
            Figure::new("volume_factor", self.size.factor(), "of full size"),
            Figure::new("volume_ledger", gigabytes, "GB"),
        ]
    }

    async fn figures_of(&self, part: &str) -> Vec<Figure> {
        match part {
            "calls" => calls::measure(self).await,
            "retention" => retention::measure(self).await,
            "deletion" => deletion::measure(self).await,
            "recovery" => recovery::measure(self).await,
            "activation" => activation::measure(self).await,
            _ => rebuild::measure(self).await,
        }
    }

    fn path(&self, webhook: Uuid) -> String {
        format!("/api/v1/webhooks/{webhook}/")
    }
}
