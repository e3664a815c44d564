//! The table at the end of a storm.

use std::{
    fmt::{self, Write as _},
    path::PathBuf,
};

use super::{
    audit::{Audit, Kind},
    gaps::Gap,
    plan::Options,
};

/// How many examples of each kind are shown.
const MAX_EXAMPLES: usize = 8;

/// The result of a storm.
#[derive(Clone, Debug)]
pub struct Report {
    /// The options of the storm.
    pub options: Options,
    /// The number of injected faults.
    pub faults: usize,
    /// The longest gaps of deliveries, by kind of ordeal.
    pub gaps: Vec<Gap>,
    /// What the auditor found.
    pub audit: Audit,
    /// The folder of the logs, if anything was wrong.
    pub logs: Option<PathBuf>,
}

impl Report {
    /// Whether nothing was wrong.
    pub fn is_good(&self) -> bool {
        self.audit.findings.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.audit.counts;
        let mut line = |what: &str, number: usize, note: &str| writeln!(f, "  {what:<44}{number:>8}  {note}");
        line("faults", self.faults, "")?;
        line("events published and confirmed", counts.published, "")?;
        line("  of these published again without a confirm", counts.published_again, "with the same event_id")?;
        line("deliveries expected", counts.expected, "")?;
        line("deliveries that may be, or not", counts.perhaps, "the webhook was changed at that time")?;
        line("deliveries in the ledger", counts.stored, "")?;
        line("  delivered", counts.delivered, "")?;
        line("  dropped by schedule", counts.dropped, "")?;
        line("  cancelled with their webhook", counts.cancelled, "")?;
        line("  skipped during a pause", counts.skipped, "")?;
        line("tests and resends by administrators", counts.asked_for, "")?;
        line("POSTs in all", counts.posts, "")?;
        line("attempts recorded", counts.attempts, "those that met no HTTP receiver included")?;
        line("POSTs that are not in the log", counts.unlogged, "a fault came between POST and record")?;
        line("POSTs repeated after a success", counts.repeated, "with the same id")?;
        for gap in &self.gaps {
            write!(
                f,
                "  longest gap: {:<45}{:>6.1} s",
                format!("{} ({}x)", gap.kind, gap.times),
                gap.longest.as_secs_f64()
            )?;
            match gap.goal {
                Some(goal) if gap.is_missed() => writeln!(f, "  <-- missed: the goal is {goal:?}")?,
                Some(goal) => writeln!(f, "  goal {goal:?}")?,
                None => writeln!(f)?,
            }
        }
        let mut line = |what: &str, number: usize, note: &str| writeln!(f, "  {what:<44}{number:>8}  {note}");
        let by_kind = self.audit.by_kind();
        for (kind, what) in Kind::ALL {
            line(what, by_kind[&kind], if by_kind[&kind] > 0 { "<-- must be 0" } else { "" })?;
        }
        for (kind, what) in Kind::ALL {
            let found: Vec<_> = self.audit.findings.iter().filter(|finding| finding.kind == kind).collect();
            let mut text = String::new();
            for finding in found.iter().take(MAX_EXAMPLES) {
                let _ = write!(text, "\n    {}", finding.example);
            }
            if !text.is_empty() {
                writeln!(f, "{what}:{text}{}", if found.len() > MAX_EXAMPLES { "\n    …" } else { "" })?;
            }
        }
        match &self.logs {
            Some(logs) => writeln!(f, "VIOLATED. SEED={} repeats it. Logs: {}", self.options.seed, logs.display()),
            None => writeln!(f, "Nothing lost, nothing wrong (seed {}).", self.options.seed),
        }
    }
}
