//! The dashboards: what they ask exists, and with the services at work a real Prometheus has an answer to each question.

use std::collections::{BTreeMap, BTreeSet};

use end_to_end::prometheus::Prometheus;
use serde_json::Value;

use crate::alarms::rules::{RUNBOOKS, assert_exist};

/// By file name, which is the end of the dashboard's uid.
const DASHBOARDS: [(&str, &str); 2] = [
    ("overview", include_str!("../../../../deploy/grafana/dashboards/overview.json")),
    ("deeper", include_str!("../../../../deploy/grafana/dashboards/deeper.json")),
];

/// The example of scaling, whose queries ask for the same metrics.
const KEDA: &str = include_str!("../../../../deploy/helm/examples/keda.yaml");

/// Where the runbooks are published, as in the alerts.
const PUBLISHED: &str = "https://docs.example.com/webhooks/runbooks.md";

fn dashboards() -> Vec<(&'static str, Value)> {
    DASHBOARDS.map(|(name, text)| (name, serde_json::from_str(text).unwrap())).to_vec()
}

fn list<'v>(value: &'v Value, path: &str) -> impl Iterator<Item = &'v Value> {
    value.pointer(path).and_then(Value::as_array).into_iter().flatten()
}

fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// The panels that show something: all but rows.
fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    list(dashboard, "/panels").filter(|panel| panel["type"] != "row")
}

/// What the panels of a dashboard ask, and where.
fn questions(dashboard: &Value) -> Vec<(String, String)> {
    let of_panel = |panel: &Value| {
        let title = text(panel, "/title").to_owned();
        list(panel, "/targets").map(|target| (title.clone(), text(target, "/expr").to_owned())).collect::<Vec<_>>()
    };
    panels(dashboard).flat_map(of_panel).collect()
}

#[test]
fn dashboards_have_what_grafana_and_their_readers_need() {
    let uids: BTreeSet<_> = dashboards().iter().map(|(_, dashboard)| text(dashboard, "/uid").to_owned()).collect();
    for (name, dashboard) in dashboards() {
        assert_eq!(text(&dashboard, "/uid"), format!("webhooks-{name}"));
        assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 39 && dashboard["id"].is_null(), "{name}");
        let variables: Vec<_> = list(&dashboard, "/templating/list").map(|variable| text(variable, "/name")).collect();
        assert!(variables.starts_with(&["datasource", "job"]), "{name}: {variables:?}");
        let mut ids = BTreeSet::new();
        for panel in list(&dashboard, "/panels") {
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{name}: an id twice: {}", panel["id"]);
        }
        for panel in panels(&dashboard) {
            let title = text(panel, "/title");
            assert!(text(panel, "/description").len() > 20, "{name}: {title} has no description");
            assert_eq!(text(panel, "/datasource/uid"), "${datasource}", "{name}: {title}");
            assert!(list(panel, "/targets").all(|target| target["datasource"].is_null()), "{name}: {title}");
            let needs_unit = panel["type"] != "table";
            assert!(
                !needs_unit || !text(panel, "/fieldConfig/defaults/unit").is_empty(),
                "{name}: {title} has no unit"
            );
        }
        let linked = list(&dashboard, "/links").filter_map(|link| text(link, "/url").strip_prefix("/d/"));
        let linked: BTreeSet<_> = linked.map(|rest| rest.split(['/', '?']).next().unwrap().to_owned()).collect();
        let others = uids.iter().filter(|uid| *uid != text(&dashboard, "/uid")).cloned().collect();
        assert_eq!(linked, others, "{name} leads to each of the others");
    }
}

#[test]
fn panels_lead_to_runbooks_that_exist() {
    let runbooks: BTreeSet<_> =
        RUNBOOKS.lines().filter_map(|line| line.strip_prefix("### ")).map(str::to_lowercase).collect();
    for (name, dashboard) in dashboards() {
        for panel in panels(&dashboard) {
            for url in list(panel, "/links").map(|link| text(link, "/url")) {
                let anchor = url.strip_prefix(PUBLISHED).and_then(|rest| rest.strip_prefix('#')).unwrap_or_default();
                assert!(runbooks.contains(anchor), "{name}: {url}");
            }
        }
    }
}

/// Grafana's grid: 24 columns. No two panels lie upon each other.
#[test]
fn panels_have_their_places_and_the_overview_fits_a_screen() {
    for (name, dashboard) in dashboards() {
        let mut taken = BTreeMap::new();
        for panel in list(&dashboard, "/panels") {
            let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
            assert!(x + w <= 24, "{name}: {}", panel["title"]);
            for place in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                let other = taken.insert(place, text(panel, "/title").to_owned());
                assert_eq!(other, None, "{name}: {} lies upon it", panel["title"]);
            }
        }
        let lowest = taken.keys().map(|(_, y)| y + 1).max().unwrap();
        // 26 rows of 38 pixels are what a screen of 1080 leaves to a dashboard.
        assert!(name != "overview" || lowest <= 26, "{name} is {lowest} rows high");
    }
}

#[test]
fn dashboards_and_scaling_ask_for_metrics_that_exist() {
    assert_exist("keda.yaml", KEDA);
    for (place, expr) in dashboards().iter().flat_map(|(_, dashboard)| questions(dashboard)) {
        assert_exist(&place, &expr);
    }
}

/// An expression as Grafana sends it, with every job and instance chosen.
fn filled_in(expr: &str) -> String {
    let mut expr = expr.to_owned();
    for (variable, value) in [("$__rate_interval", "10s"), ("$__range", "30s"), ("$job", ".*"), ("$instance", ".*")] {
        expr = expr.replace(variable, value);
    }
    assert!(!expr.contains('$'), "{expr}: a variable that nobody fills in");
    expr
}

/// The panels without data, if there are any.
pub(super) async fn unanswered(prometheus: &Prometheus) -> Result<(), String> {
    let mut unanswered = Vec::new();
    for (name, dashboard) in dashboards() {
        for (place, expr) in questions(&dashboard) {
            let samples = prometheus.query(&filled_in(&expr)).await;
            if !samples.iter().any(|(_, value)| value.is_finite()) {
                unanswered.push(format!("{name}: {place}: {expr}"));
            }
        }
    }
    if unanswered.is_empty() { Ok(()) } else { Err(format!("no data for\n{}", unanswered.join("\n"))) }
}
