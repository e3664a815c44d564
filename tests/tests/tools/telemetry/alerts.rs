//! The alerts: each has a runbook, and is seen firing and silent.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::{Child, Command, Stdio},
};

use end_to_end::{servers::repository, tools::Tool};
use serde_json::{Value, json};

use crate::telemetry::page::{described, of_exporters};

const ALERTS: &str = include_str!("../../../../deploy/prometheus/alerts.yml");
/// The alerts on database and broker, by metrics of exporters.
const SERVERS: &str = include_str!("../../../../deploy/prometheus/servers.yml");
/// By file name.
const TESTS: [(&str, &str); 3] = [
    ("alerts.test.yml", include_str!("../../../../deploy/prometheus/alerts.test.yml")),
    ("alerts.days.test.yml", include_str!("../../../../deploy/prometheus/alerts.days.test.yml")),
    ("servers.test.yml", include_str!("../../../../deploy/prometheus/servers.test.yml")),
];
/// The alerts that a Prometheus beside the running services shows firing and silent (`alarms.rs`), and no file above.
const SEEN_BESIDE_SERVICES: [&str; 3] = ["WebhooksNoneReady", "WebhooksNotReady", "WebhooksMetricsAbsent"];
/// The examples of Prometheus.
const PROMETHEUS: [&str; 2] = [
    include_str!("../../../../deploy/prometheus/hosts.yml"),
    include_str!("../../../../deploy/prometheus/prometheus.yml"),
];
const ALERTMANAGER: &str = include_str!("../../../../deploy/prometheus/alertmanager.yml");
pub(crate) const RUNBOOKS: &str = include_str!("../../../../deploy/runbooks.md");

/// The beginning of each selector. The Helm chart writes its namespace there.
const INSTALLATION: &str = r#"namespace="""#;

/// What is asked of an alert, by name.
struct Rule {
    alert: String,
    expr: String,
    severity: String,
    summary: String,
    runbook_url: String,
}

/// All rules of both files, with the names of the recorded series.
fn all_rules() -> (Vec<Rule>, BTreeSet<String>) {
    let of_files = [ALERTS, SERVERS].map(rules_of);
    let (rules, records): (Vec<_>, Vec<_>) = of_files.into_iter().unzip();
    (rules.into_iter().flatten().collect(), records.into_iter().flatten().collect())
}

fn rules_of(file: &str) -> (Vec<Rule>, BTreeSet<String>) {
    let file: Value = serde_saphyr::from_str(file).unwrap();
    let groups = file["groups"].as_array().unwrap();
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
    let records = rules.clone().filter_map(|rule| rule["record"].as_str().map(str::to_owned)).collect();
    let rules = rules.map(|rule| {
        let text = |path: &str| rule.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        Rule {
            alert: text("/alert"),
            expr: text("/expr"),
            severity: text("/labels/severity"),
            summary: text("/annotations/summary"),
            runbook_url: text("/annotations/runbook_url"),
        }
    });
    (rules.collect(), records)
}

/// The alerts.
fn rules() -> Vec<Rule> {
    let mut rules = all_rules().0;
    rules.retain(|rule| !rule.alert.is_empty());
    rules
}

/// The beginnings of names that exporters of database, broker and disks have.
const OF_EXPORTERS: [&str; 5] = ["cnpg_", "pg_", "rabbitmq_", "kubelet_", "node_"];

/// The counters of one label's value for which the alerts ask, such as `name_total{reason="sealed"}`.
pub(crate) fn counters_asked_for() -> BTreeSet<String> {
    let selectors = rules().into_iter().flat_map(|rule| {
        let parts: Vec<_> = rule.expr.split("_total{").map(str::to_owned).collect();
        parts
            .windows(2)
            .filter_map(|pair| {
                let name = pair[0].rsplit(|c: char| !c.is_ascii_lowercase() && c != '_').next()?;
                let (labels, _) = pair[1].split_once('}')?;
                let labels = labels.strip_prefix(INSTALLATION)?.strip_prefix(',')?;
                (!labels.contains('~')).then(|| format!("{name}_total{{{labels}}}"))
            })
            .collect::<Vec<_>>()
    });
    selectors.collect()
}

#[test]
fn every_selector_names_the_installation() {
    for Rule { alert, expr, .. } in all_rules().0 {
        let starts = ["webhooks", "process_start_time_seconds", "up{"].into_iter().chain(OF_EXPORTERS);
        for (begin, _) in starts.flat_map(|start| expr.match_indices(start)) {
            let selector =
                expr[begin..].trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':');
            assert!(selector.starts_with(&format!("{{{INSTALLATION}")), "{alert}: {}", &expr[begin..]);
        }
    }
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
    let (rules, records) = all_rules();
    for Rule { alert, expr, .. } in rules {
        let words = expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
        for name in words.filter(|word| word.starts_with("webhooks")) {
            if records.contains(name) {
                continue;
            }
            let is_known = ends.iter().any(|end| name.strip_suffix(end).is_some_and(|name| described.contains(name)));
            assert!(is_known, "{alert} asks for {name}");
        }
    }
}

#[test]
fn the_page_of_metrics_says_which_exporter_has_what_the_alerts_on_servers_ask_for() {
    let asked_for: BTreeSet<_> = rules_of(SERVERS)
        .0
        .iter()
        .flat_map(|rule| rule.expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        .filter(|word| OF_EXPORTERS.iter().any(|start| word.starts_with(start)))
        .map(str::to_owned)
        .collect();
    assert_eq!(asked_for, of_exporters().into_iter().map(str::to_owned).collect());
}

#[test]
fn every_alert_is_tested_firing_and_silent() {
    for Rule { alert, .. } in rules().into_iter().filter(|rule| !SEEN_BESIDE_SERVICES.contains(&rule.alert.as_str())) {
        let tests = TESTS.iter().flat_map(|(_, tests)| tests.split("  - name: "));
        let tests: Vec<_> = tests.filter(|test| test.contains(&format!("alertname: {alert}\n"))).collect();
        let (silent, firing): (Vec<&str>, Vec<&str>) =
            tests.into_iter().partition(|test| test.contains("exp_alerts: []"));
        assert!(!firing.is_empty(), "{alert} is never seen firing");
        assert!(!silent.is_empty() || alert == "WebhooksWatchdog", "{alert} is never seen silent");
    }
}

fn promtool(arguments: &[&str]) -> Child {
    let folder = repository().join("deploy/prometheus");
    let piped = Stdio::piped;
    Command::new("promtool").args(arguments).current_dir(folder).stdout(piped()).stderr(piped()).spawn().unwrap()
}

fn assert_passes(promtool: Child) {
    let output = promtool.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(output.status.success(), "{said}");
}

fn is_firing(test: &Value) -> bool {
    let expected = test["alert_rule_test"].as_array().into_iter().flatten();
    expected.flat_map(|expected| expected["exp_alerts"].as_array()).any(|alerts| !alerts.is_empty())
}

/// Adds another installation to each test: one that is well where the alert fires, and one that is ill where it is silent.
fn with_another_installation(tests: &str) -> Value {
    let mut file: Value = serde_saphyr::from_str(tests).unwrap();
    let all = file["tests"].as_array().unwrap().clone();
    for test in file["tests"].as_array_mut().unwrap() {
        let alert = &test["alert_rule_test"][0]["alertname"];
        let opposite = all.iter().find(|other| {
            other["alert_rule_test"][0]["alertname"] == *alert
                && other["interval"] == test["interval"]
                && is_firing(other) != is_firing(test)
        });
        let others = opposite.and_then(|other| other["input_series"].as_array()).into_iter().flatten();
        let others = others.map(|series| {
            let named = series["series"].as_str().unwrap().replacen('{', "{namespace=\"other\",", 1);
            json!({"series": named, "values": series["values"]})
        });
        test["input_series"].as_array_mut().unwrap().extend(others);
    }
    let rules = file["rule_files"][0].as_str().unwrap();
    file["rule_files"] = json!([repository().join("deploy/prometheus").join(rules)]);
    file
}

#[test]
fn the_rules_pass_their_tests_beside_another_installation() {
    if !Tool::Prometheus.is_used() {
        return;
    }
    assert_passes(promtool(&["check", "rules", "alerts.yml", "servers.yml"]));
    assert_passes(promtool(&["check", "config", "hosts.yml"]));
    let folder = std::env::temp_dir().join(format!("webhooks-alerts-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let running = TESTS.map(|(name, tests)| {
        let path = folder.join(name);
        fs::write(&path, with_another_installation(tests).to_string()).unwrap();
        promtool(&["test", "rules", path.to_str().unwrap()])
    });
    running.into_iter().for_each(assert_passes);
    fs::remove_dir_all(folder).unwrap();
}

/// The alerts of one cause, by name and service (of the broker's alarms: memory or disk; of the brake: its reason), and the page that is left of them.
const CAUSES: [(&[&str], &str); 12] = [
    (
        &[
            "WebhooksNoneReady api-service",
            "WebhooksNoneReady event-ingest",
            "WebhooksNoneReady dispatcher",
            "WebhooksApiFails",
            "WebhooksEventsWait",
            "WebhooksOldestDueGrowing",
            "WebhooksDeliveriesLate",
        ],
        "WebhooksNoneReady",
    ),
    (
        &[
            "WebhooksNoneReady event-ingest",
            "WebhooksNoneReady dispatcher",
            "WebhooksNothingAttempted",
            "WebhooksNoEvents",
            "WebhooksDeliveriesLate",
        ],
        "WebhooksNoneReady",
    ),
    (
        &[
            "WebhooksMetricsAbsent dispatcher",
            "WebhooksNothingAttempted",
            "WebhooksOldestDueGrowing",
            "WebhooksDeliveriesLate",
        ],
        "WebhooksMetricsAbsent",
    ),
    (&["WebhooksMetricsAbsent event-ingest", "WebhooksEventsWait", "WebhooksNoEvents"], "WebhooksMetricsAbsent"),
    (&["WebhooksNoneReady api-service", "WebhooksApiFails"], "WebhooksNoneReady"),
    (&["WebhooksBrokerLost", "WebhooksOldestDueGrowing", "WebhooksDeliveriesLate"], "WebhooksBrokerLost"),
    (&["WebhooksNothingSucceeds", "WebhooksOldestDueGrowing", "WebhooksDeliveriesLate"], "WebhooksNothingSucceeds"),
    (&["WebhooksTooFewSlots", "WebhooksOldestDueGrowing", "WebhooksDeliveriesLate"], "WebhooksTooFewSlots"),
    (&["WebhooksNoneReady event-ingest", "WebhooksNoneReady dispatcher", "WebhooksApiFails"], "WebhooksNoneReady"),
    (&["WebhooksOldestDueGrowing", "WebhooksDeliveriesLate"], "WebhooksOldestDueGrowing"),
    (
        &[
            "WebhooksBrokerAlarm memory",
            "WebhooksNoneReady event-ingest",
            "WebhooksNoneReady dispatcher",
            "WebhooksApiFails",
            "WebhooksNothingAttempted",
            "WebhooksEventsWait",
            "WebhooksNoEvents",
            "WebhooksDeliveriesLate",
        ],
        "WebhooksBrokerAlarm",
    ),
    (&["WebhooksClockOff", "WebhooksBraked clock", "WebhooksEventsWait"], "WebhooksClockOff"),
];

/// A condition of the example of Alertmanager: a label, and the values that it may have.
fn matchers(rule: &Value, side: &str) -> Vec<(String, BTreeSet<String>)> {
    let matchers = rule[side].as_array().unwrap().iter().map(|matcher| {
        let (label, values) = matcher.as_str().unwrap().split_once('=').unwrap();
        let values = values.trim_start_matches('~').trim_matches('"').split('|').map(str::to_owned).collect();
        (label.to_owned(), values)
    });
    matchers.collect()
}

/// The names of the pages that are left of alerts, by name and service, once the example of Alertmanager has inhibited
/// the others.
pub(crate) fn pages_of<'a>(alerts: &[&'a str]) -> BTreeSet<String> {
    let severities: BTreeMap<_, _> = rules().into_iter().map(|rule| (rule.alert, rule.severity)).collect();
    let file: Value = serde_saphyr::from_str(ALERTMANAGER).unwrap();
    let split = |alert: &'a str| alert.split_once(' ').unwrap_or((alert, ""));
    let fits = |rule: &Value, side: &str, alert: &'a str| {
        let (name, service) = split(alert);
        matchers(rule, side).iter().all(|(label, values)| match label.as_str() {
            "alertname" => values.contains(name),
            "service" | "alarm" | "reason" => values.contains(service),
            label => panic!("{label} is no label of these alerts"),
        })
    };
    let is_inhibited = |alert: &'a str| {
        let rules = file["inhibit_rules"].as_array().unwrap();
        rules.iter().any(|rule| {
            fits(rule, "target_matchers", alert)
                && alerts.iter().any(|source| *source != alert && fits(rule, "source_matchers", source))
        })
    };
    let pages = alerts.iter().copied().filter(|&alert| severities[split(alert).0] == "page" && !is_inhibited(alert));
    pages.map(|alert| split(alert).0.to_owned()).collect()
}

#[test]
fn one_cause_makes_one_page() {
    for (alerts, page) in CAUSES {
        assert_eq!(pages_of(alerts), BTreeSet::from([page.to_owned()]), "{alerts:?}");
    }
    let two = ["WebhooksEventsWait", "WebhooksDeliveriesLate"];
    assert_eq!(pages_of(&two), two.map(str::to_owned).into(), "waiting events are not accepted yet, and not late");
    for two in [
        ["WebhooksDiskFull", "WebhooksBrokerAlarm memory"],
        ["WebhooksDiskFull", "WebhooksBrokerAlarm disk"],
        ["WebhooksBraked no_answer", "WebhooksNothingSucceeds"],
        ["WebhooksDiskFull", "WebhooksNoneReady api-service"],
        ["WebhooksBrokerAlarm memory", "WebhooksNoneReady api-service"],
        ["WebhooksBraked no_answer", "WebhooksClockOff"],
    ] {
        assert_eq!(pages_of(&two).len(), 2, "{two:?} have two causes");
    }
    let file: Value = serde_saphyr::from_str(ALERTMANAGER).unwrap();
    assert_eq!(file["route"]["group_by"], json!(["cluster", "namespace", "alertname"]));
    for prometheus in PROMETHEUS {
        let file: Value = serde_saphyr::from_str(prometheus).unwrap();
        assert!(file["global"]["external_labels"]["cluster"].is_string(), "the label of `equal` is on each alert");
    }
    let names: BTreeSet<_> = rules().into_iter().map(|rule| rule.alert).collect();
    for rule in file["inhibit_rules"].as_array().unwrap() {
        assert_eq!(rule["equal"], json!(["cluster", "namespace"]), "{rule}");
        for (label, values) in ["source_matchers", "target_matchers"].iter().flat_map(|side| matchers(rule, side)) {
            assert!(label != "alertname" || values.is_subset(&names), "{values:?}");
        }
    }
}
