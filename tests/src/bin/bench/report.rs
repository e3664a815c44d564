//! What was measured, and whether it is good enough.

use std::{fs, io};

use end_to_end::servers::repository;
use serde_json::{Value, json};

/// One measured number.
pub(crate) struct Figure {
    /// Stable, for programs.
    pub(crate) name: &'static str,
    /// The number.
    pub(crate) value: f64,
    /// Of what.
    pub(crate) unit: &'static str,
    /// The most that it may be, if there is a limit.
    pub(crate) at_most: Option<f64>,
}

impl Figure {
    fn is_met(&self) -> Option<bool> {
        self.at_most.map(|most| self.value <= most)
    }

    /// Whether no target is missed.
    pub(crate) fn is_good(&self) -> bool {
        self.is_met() != Some(false)
    }

    fn target(&self) -> Option<String> {
        self.at_most.map(|most| format!("<= {most}"))
    }
}

/// The table for people.
pub(crate) fn print(figures: &[Figure]) {
    println!("{:<36} {:>12} {:<8} {:<8} met", "name", "value", "unit", "target");
    for figure in figures {
        let met = figure.is_met().map_or("", |met| if met { "yes" } else { "NO" });
        let target = figure.target().unwrap_or_default();
        println!("{:<36} {:>12.6} {:<8} {target:<8} {met}", figure.name, figure.value, figure.unit);
    }
}

/// `target/bench/report.json`, for programs: a figure without a target has null for it.
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
