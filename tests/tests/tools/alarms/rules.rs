//! The alerts: each has a runbook, and is seen firing and silent.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
    sync::LazyLock,
};

use end_to_end::{servers::repository, tools::Tool};
use serde_json::{Value, json};

use crate::metrics_page::{described, of_exporters};

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
static ALL: LazyLock<(Vec<Rule>, BTreeSet<String>)> = LazyLock::new(|| {
    let (mut all, of_servers) = (rules_of(ALERTS), rules_of(SERVERS));
    all.0.extend(of_servers.0);
    all.1.extend(of_servers.1);
    all
});

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
fn rules() -> impl Iterator<Item = &'static Rule> {
    ALL.0.iter().filter(|rule| !rule.alert.is_empty())
}

/// The beginnings of names that exporters of database, broker and disks have.
const OF_EXPORTERS: [&str; 5] = ["cnpg_", "pg_", "rabbitmq_", "kubelet_", "node_"];

/// The counters of one label's value for which the alerts ask, such as `name_total{reason="sealed"}`.
pub(crate) fn counters_asked_for() -> BTreeSet<String> {
    let selectors = rules().flat_map(|rule| {
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
    for Rule { alert, expr, .. } in &ALL.0 {
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
    for Rule { alert, severity, summary, runbook_url, .. } in rules() {
        assert!(["page", "ticket", "none"].contains(&severity.as_str()), "{alert}");
        assert!(summary.len() > 10, "{alert}");
        let anchor = runbook_url.rsplit_once('#').unwrap().1;
        assert_eq!(anchor, alert.to_lowercase());
    }
    assert_eq!(rules().map(|rule| rule.alert.as_str()).collect::<BTreeSet<_>>(), runbooks);
}

/// Asserts that every metric for which an expression asks is described or recorded.
pub(crate) fn assert_exist(place: &str, expr: &str) {
    let described = described();
    let ends = ["_total", "_bucket", "_sum", "_count", "_info", ""];
    let words = expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    let is_ours = |word: &&str| ["webhooks_", "webhooks:", "process_"].iter().any(|start| word.starts_with(start));
    for name in words.filter(is_ours) {
        let is_known = ends.iter().any(|end| name.strip_suffix(end).is_some_and(|name| described.contains_key(name)));
        assert!(is_known || ALL.1.contains(name), "{place} asks for {name}");
    }
}

#[test]
fn alerts_ask_for_metrics_that_exist() {
    for Rule { alert, expr, .. } in &ALL.0 {
        assert_exist(alert, expr);
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
    for Rule { alert, .. } in rules().filter(|rule| !SEEN_BESIDE_SERVICES.contains(&rule.alert.as_str())) {
        let tests = TESTS.iter().flat_map(|(_, tests)| tests.split("  - name: "));
        let tests: Vec<_> = tests.filter(|test| test.contains(&format!("alertname: {alert}\n"))).collect();
        let (silent, firing): (Vec<&str>, Vec<&str>) =
            tests.into_iter().partition(|test| test.contains("exp_alerts: []"));
        assert!(!firing.is_empty(), "{alert} is never seen firing");
        assert!(!silent.is_empty() || alert == "WebhooksWatchdog", "{alert} is never seen silent");
    }
}

/// Runs promtool, which must find no fault.
fn promtool(arguments: &[String]) {
    let folder = repository().join("deploy/prometheus");
    let output = Command::new("promtool").args(arguments).current_dir(folder).output().unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(output.status.success(), "{said}");
}

fn is_firing(test: &Value) -> bool {
    let expected = test["alert_rule_test"].as_array().into_iter().flatten();
    expected.flat_map(|expected| expected["exp_alerts"].as_array()).any(|alerts| !alerts.is_empty())
}

/// The tests of a file, each beside another installation: one that is well where the alert fires, and one that is ill where
/// it is silent.
fn beside_another_installation(file: &Value) -> Vec<Value> {
    let all = file["tests"].as_array().unwrap();
    let tests = all.iter().cloned().map(|mut test| {
        let alert = &test["alert_rule_test"][0]["alertname"];
        let opposite = all.iter().find(|other| {
            other["alert_rule_test"][0]["alertname"] == *alert
                && other["interval"] == test["interval"]
                && is_firing(other) != is_firing(&test)
        });
        let others = opposite.and_then(|other| other["input_series"].as_array()).into_iter().flatten();
        let others = others.map(|series| {
            let named = series["series"].as_str().unwrap().replacen('{', "{namespace=\"other\",", 1);
            json!({"series": named, "values": series["values"]})
        });
        test["input_series"].as_array_mut().unwrap().extend(others);
        test
    });
    tests.collect()
}

/// The rules of a file for which a test asks, and those that these need: promtool evaluates all rules of each minute.
fn needed_rules(file: &Value, test: &Value) -> Value {
    let mut file = file.clone();
    let mut asked_for: String = test["alert_rule_test"].to_string();
    for group in file["groups"].as_array_mut().unwrap().iter_mut().rev() {
        let mut rules = std::mem::take(group["rules"].as_array_mut().unwrap());
        // A rule needs only earlier ones.
        rules.reverse();
        rules.retain(|rule| {
            let name = rule["alert"].as_str().map(|name| format!("\"alertname\":\"{name}\""));
            let is_needed = asked_for.contains(&name.unwrap_or_else(|| rule["record"].as_str().unwrap().to_owned()));
            asked_for += rule["expr"].as_str().filter(|_| is_needed).unwrap_or_default();
            is_needed
        });
        rules.reverse();
        group["rules"] = rules.into();
    }
    file
}

#[test]
fn the_rules_pass_their_tests_beside_another_installation() {
    if !Tool::Prometheus.is_used() {
        return;
    }
    promtool(&["check", "rules", "alerts.yml", "servers.yml"].map(str::to_owned));
    promtool(&["check", "config", "hosts.yml"].map(str::to_owned));
    let folder = std::env::temp_dir().join(format!("webhooks-alerts-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let mut arguments = ["test", "rules"].map(str::to_owned).to_vec();
    for (name, tests) in TESTS {
        let mut file: Value = serde_saphyr::from_str(tests).unwrap();
        let rules = if file["rule_files"] == json!(["servers.yml"]) { SERVERS } else { ALERTS };
        let rules: Value = serde_saphyr::from_str(rules).unwrap();
        for (number, test) in beside_another_installation(&file).into_iter().enumerate() {
            let [rules_path, path] = ["rules", "test"].map(|kind| folder.join(format!("{name}.{number}.{kind}.yml")));
            fs::write(&rules_path, needed_rules(&rules, &test).to_string()).unwrap();
            (file["rule_files"], file["tests"]) = (json!([rules_path]), json!([test]));
            fs::write(&path, file.to_string()).unwrap();
            arguments.push(path.display().to_string());
        }
    }
    promtool(&arguments);
    fs::remove_dir_all(folder).unwrap();
}

/// The alerts of one cause, by name and service (of the broker's alarms: memory or disk; of the brake: its reason). The page
/// of the first one is left of them.
const CAUSES: [&[&str]; 12] = [
    &[
        "WebhooksNoneReady api-service",
        "WebhooksNoneReady event-ingest",
        "WebhooksNoneReady dispatcher",
        "WebhooksApiFails",
        "WebhooksEventsWait",
        "WebhooksOldestDueGrowing",
        "WebhooksDeliveriesLate",
    ],
    &[
        "WebhooksNoneReady event-ingest",
        "WebhooksNoneReady dispatcher",
        "WebhooksNothingAttempted",
        "WebhooksNoEvents",
        "WebhooksDeliveriesLate",
    ],
    &[
        "WebhooksMetricsAbsent dispatcher",
        "WebhooksNothingAttempted",
        "WebhooksOldestDueGrowing",
        "WebhooksDeliveriesLate",
    ],
    &["WebhooksMetricsAbsent event-ingest", "WebhooksEventsWait", "WebhooksNoEvents"],
    &["WebhooksNoneReady api-service", "WebhooksApiFails"],
    &["WebhooksBrokerLost", "WebhooksOldestDueGrowing", "WebhooksDeliveriesLate"],
    &["WebhooksNothingSucceeds", "WebhooksOldestDueGrowing", "WebhooksDeliveriesLate"],
    &["WebhooksTooFewSlots", "WebhooksOldestDueGrowing", "WebhooksDeliveriesLate"],
    &["WebhooksNoneReady event-ingest", "WebhooksNoneReady dispatcher", "WebhooksApiFails"],
    &["WebhooksOldestDueGrowing", "WebhooksDeliveriesLate"],
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
    &["WebhooksClockOff", "WebhooksBraked clock", "WebhooksEventsWait"],
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
    let severities: BTreeMap<_, _> = rules().map(|rule| (rule.alert.as_str(), rule.severity.as_str())).collect();
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
    for alerts in CAUSES {
        let first = alerts[0].split_once(' ').map_or(alerts[0], |(name, _)| name);
        assert_eq!(pages_of(alerts), BTreeSet::from([first.to_owned()]), "{alerts:?}");
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
    let names: BTreeSet<_> = rules().map(|rule| rule.alert.clone()).collect();
    for rule in file["inhibit_rules"].as_array().unwrap() {
        assert_eq!(rule["equal"], json!(["cluster", "namespace"]), "{rule}");
        for (label, values) in ["source_matchers", "target_matchers"].iter().flat_map(|side| matchers(rule, side)) {
            assert!(label != "alertname" || values.is_subset(&names), "{values:?}");
        }
    }
}
