//! The alerts: each has a runbook, and is seen firing and silent.

use std::{collections::BTreeSet, process::Command};

use end_to_end::{servers::repository, tools::Tool};
use serde_json::Value;

use crate::telemetry::page::described;

const ALERTS: &str = include_str!("../../../../deploy/prometheus/alerts.yml");
const TESTS: &str = include_str!("../../../../deploy/prometheus/alerts.test.yml");
pub(crate) const RUNBOOKS: &str = include_str!("../../../../deploy/runbooks.md");

/// What is asked of an alert, by name.
struct Rule {
    alert: String,
    expr: String,
    severity: String,
    summary: String,
    runbook_url: String,
}

fn rules() -> Vec<Rule> {
    let file: Value = serde_saphyr::from_str(ALERTS).unwrap();
    let groups = file["groups"].as_array().unwrap();
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).map(|rule| {
        let text = |path: &str| rule.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        Rule {
            alert: text("/alert"),
            expr: text("/expr"),
            severity: text("/labels/severity"),
            summary: text("/annotations/summary"),
            runbook_url: text("/annotations/runbook_url"),
        }
    });
    rules.collect()
}

/// The counters of one label's value for which the alerts ask, such as `name_total{reason="sealed"}`.
pub(crate) fn counters_asked_for() -> BTreeSet<String> {
    let selectors = rules().into_iter().flat_map(|rule| {
        let parts: Vec<_> = rule.expr.split("_total{").map(str::to_owned).collect();
        parts
            .windows(2)
            .filter_map(|pair| {
                let name = pair[0].rsplit(|c: char| !c.is_ascii_lowercase() && c != '_').next()?;
                let (labels, _) = pair[1].split_once('}')?;
                (!labels.contains('~')).then(|| format!("{name}_total{{{labels}}}"))
            })
            .collect::<Vec<_>>()
    });
    selectors.collect()
}

#[test]
fn every_alert_has_a_severity_a_summary_and_a_runbook() {
    let runbooks: BTreeSet<_> = RUNBOOKS.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let rules = rules();
    for Rule { alert, severity, summary, runbook_url, .. } in &rules {
        assert!(["page", "ticket", "none"].contains(&severity.as_str()), "{alert}");
        assert!(summary.len() > 10, "{alert}");
        let anchor = runbook_url.rsplit_once('#').unwrap().1;
        assert_eq!(anchor, alert.to_lowercase());
    }
    assert_eq!(rules.iter().map(|rule| rule.alert.as_str()).collect::<BTreeSet<_>>(), runbooks);
}

#[test]
fn alerts_ask_for_metrics_that_exist() {
    let described: BTreeSet<_> = described().into_keys().collect();
    let ends = ["_total", "_bucket", "_sum", "_count", "_info", ""];
    for Rule { alert, expr, .. } in rules() {
        let words = expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("webhooks_")) {
            let is_known = ends.iter().any(|end| name.strip_suffix(end).is_some_and(|name| described.contains(name)));
            assert!(is_known, "{alert} asks for {name}");
        }
    }
}

#[test]
fn every_alert_is_tested_firing_and_silent() {
    for Rule { alert, .. } in rules() {
        let tests: Vec<_> =
            TESTS.split("  - name: ").filter(|test| test.contains(&format!("alertname: {alert}\n"))).collect();
        let (silent, firing): (Vec<&str>, Vec<&str>) =
            tests.into_iter().partition(|test| test.contains("exp_alerts: []"));
        assert!(!firing.is_empty(), "{alert} is never seen firing");
        assert!(!silent.is_empty() || alert == "WebhooksWatchdog", "{alert} is never seen silent");
    }
}

#[test]
fn the_rules_pass_their_tests() {
    if !Tool::Prometheus.is_used() {
        return;
    }
    let folder = repository().join("deploy/prometheus");
    for arguments in
        [["check", "rules", "alerts.yml"], ["test", "rules", "alerts.test.yml"], ["check", "config", "hosts.yml"]]
    {
        let output = Command::new("promtool").args(arguments).current_dir(&folder).output().unwrap();
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
        assert!(output.status.success(), "{said}");
    }
}
