//! What was measured, and whether it is good enough.

use std::{fs, io};

use end_to_end::servers::repository;
use serde_json::{Value, json};

pub(crate) struct Figure {
    /// Stable, for programs.
    name: String,
    value: f64,
    unit: &'static str,
    target: Option<Target>,
}

#[derive(Clone, Copy)]
enum Target {
    AtMost(f64),
    AtLeast(f64),
}

impl Figure {
    /// A number without a target.
    pub(crate) fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { name: name.into(), value, unit, target: None }
    }

    /// The value must not be larger.
    pub(crate) fn at_most(self, most: f64) -> Self {
        Self { target: Some(Target::AtMost(most)), ..self }
    }

    /// The value must not be smaller.
    pub(crate) fn at_least(self, least: f64) -> Self {
        Self { target: Some(Target::AtLeast(least)), ..self }
    }

    fn is_met(&self) -> Option<bool> {
        match self.target? {
            Target::AtMost(most) => Some(self.value <= most),
            Target::AtLeast(least) => Some(self.value >= least),
        }
    }

    /// Whether no target is missed.
    pub(crate) fn is_good(&self) -> bool {
        self.is_met() != Some(false)
    }

    fn target(&self) -> Option<String> {
        match self.target? {
            Target::AtMost(most) => Some(format!("<= {most}")),
            Target::AtLeast(least) => Some(format!(">= {least}")),
        }
    }

    /// The value, with as many digits as are worth reading.
    fn value(&self) -> String {
        let digits = match self.value.abs() {
            large if large >= 100.0 => 0,
            middle if middle >= 1.0 => 2,
            _ => 4,
        };
        format!("{:.digits$}", self.value)
    }
}

/// Prints the table for people.
pub(crate) fn print(figures: &[Figure]) {
    println!("{:<56} {:>10} {:<14} {:<8} met", "name", "value", "unit", "target");
    for figure in figures {
        let met = figure.is_met().map_or("", |met| if met { "yes" } else { "NO" });
        let target = figure.target().unwrap_or_default();
        println!("{:<56} {:>10} {:<14} {target:<8} {met}", figure.name, figure.value(), figure.unit);
    }
}

/// Writes `target/bench/report.json` for programs. A figure without a target has null for it.
pub(crate) fn write(figures: &[Figure]) -> io::Result<()> {
    let entry = |figure: &Figure| {
        json!({"name": figure.name, "value": figure.value, "unit": figure.unit,
               "target": figure.target(), "met": figure.is_met()})
    };
    let folder = repository().join("target/bench");
    fs::create_dir_all(&folder)?;
    let report: Value = figures.iter().map(entry).collect();
    fs::write(folder.join("report.json"), format!("{report:#}\n"))
}
