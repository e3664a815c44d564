//! A real Prometheus that scrapes what a test starts, with the operators' alerts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use url::form_urlencoded::byte_serialize;

use crate::{
    api::{Answer, Api},
    processes::free_address,
    servers::repository,
    system::metric,
    tools::Tool,
    wait::{SOON, eventually, until},
};

/// Time runs so much faster for the rules: a minute of theirs is a second.
pub const TIME_FACTOR: u32 = 60;

/// The deadline for what the rules take minutes to see.
const RULES_TIMEOUT: Duration = Duration::from_secs(120);

/// A process of an unoptimized build, beside starting servers and a browser, may take half a second to answer.
const CONFIGURATION: &str = "
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 500ms}
rule_files: [alerts.yml]
scrape_configs:
  - job_name: webhooks
    file_sd_configs: [{files: [targets.json], refresh_interval: 1s}]
";

/// A running Prometheus. It is killed when dropped.
pub struct Prometheus {
    child: Child,
    folder: PathBuf,
    api: Api,
    targets: Mutex<Vec<Value>>,
}

/// A series: its labels, and its value now.
pub type Sample = (BTreeMap<String, String>, f64);

impl Prometheus {
    /// Starts one and waits until it answers. No alert waits longer than `longest` minutes of the rules. `None` if `SKIP`
    /// leaves Prometheus out.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start(longest: u32) -> Option<Self> {
        if !Tool::Prometheus.is_used() {
            return None;
        }
        let listen = free_address();
        let folder = std::env::temp_dir().join(format!("webhooks-prometheus-{}-{}", std::process::id(), listen.port()));
        fs::create_dir_all(&folder).expect("a folder can be made");
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("a file can be written");
        let rules = fs::read_to_string(repository().join("deploy/prometheus/alerts.yml")).expect("there are rules");
        write("prometheus.yml", CONFIGURATION);
        write("alerts.yml", &hurried(&rules, longest));
        write("targets.json", "[]");
        let log = fs::File::create(folder.join("log")).expect("a file can be made");
        let child = Command::new("prometheus")
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data", "--query.lookback-delta=5s"])
            .arg(format!("--web.listen-address={listen}"))
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("Prometheus runs");
        let api = Api { address: listen, session: None };
        let prometheus = Self { child, folder, api, targets: Mutex::default() };
        eventually("Prometheus is ready", SOON, || async {
            let answer = prometheus.api.try_send("GET", "/-/ready", &[], "").await.ok()?;
            (answer.status == 200).then_some(())
        })
        .await;
        Some(prometheus)
    }

    /// Scrapes a process from now on.
    ///
    /// # Panics
    /// When its folder cannot be written to.
    pub fn scrape(&self, process: &str, ops: SocketAddr) {
        self.set_targets(|targets| targets.push(json!({"targets": [ops.to_string()], "labels": {"job": process}})));
    }

    /// Scrapes a process no more.
    ///
    /// # Panics
    /// When its folder cannot be written to.
    pub fn forget(&self, ops: SocketAddr) {
        self.set_targets(|targets| targets.retain(|target| target["targets"][0] != ops.to_string().as_str()));
    }

    fn set_targets(&self, change: impl FnOnce(&mut Vec<Value>)) {
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut targets);
        let (new, path) = (self.folder.join("targets.new"), self.folder.join("targets.json"));
        fs::write(&new, Value::from(targets.clone()).to_string()).expect("a file can be written");
        fs::rename(new, path).expect("a file can be replaced");
    }

    /// What an expression says now.
    ///
    /// # Panics
    /// When Prometheus refuses it.
    pub async fn query(&self, expr: &str) -> Vec<Sample> {
        let answer = self.ask(expr).await;
        assert_eq!(answer.status, 200, "{expr}: {}", answer.text);
        let data = answer.json()["data"].clone();
        assert_eq!(data["resultType"], "vector", "{expr}");
        let sample = |sample: &Value| {
            let labels = sample["metric"].as_object().expect("it has labels").iter();
            let labels = labels.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()));
            let value = sample["value"][1].as_str().and_then(|value| value.parse().ok());
            (labels.collect(), value.expect("it is a number"))
        };
        data["result"].as_array().into_iter().flatten().map(sample).collect()
    }

    async fn ask(&self, expr: &str) -> Answer {
        let encoded: String = byte_serialize(expr.as_bytes()).collect();
        self.api.get(&format!("/api/v1/query?query={encoded}")).await
    }

    /// Waits until an expression has a result: with a comparison, until that holds.
    pub async fn wait_for(&self, expr: &str) {
        until(expr, RULES_TIMEOUT, || async { !self.query(expr).await.is_empty() }).await;
    }

    /// The alerts that fire now, by name, and the service that they are about.
    ///
    /// # Panics
    /// When Prometheus does not answer.
    pub async fn firing(&self) -> BTreeSet<String> {
        let answer = self.api.get("/api/v1/alerts").await.json();
        let alerts = answer["data"]["alerts"].as_array().expect("it lists alerts").iter();
        let firing = alerts.filter(|alert| alert["state"] == "firing").map(|alert| &alert["labels"]);
        firing.map(|labels| named(labels["alertname"].as_str(), labels["service"].as_str())).collect()
    }

    /// The alerts that have fired at any time since then.
    pub async fn fired(&self, since: Instant) -> BTreeSet<String> {
        let window = since.elapsed().as_millis().max(1);
        let firing = format!("count_over_time(ALERTS{{alertstate='firing'}}[{window}ms])");
        let alerts = self.query(&format!("count by (alertname, service) ({firing})")).await;
        let label = |labels: &BTreeMap<String, String>, name| labels.get(name).cloned();
        let name_of =
            |(labels, _): &Sample| named(label(labels, "alertname").as_deref(), label(labels, "service").as_deref());
        alerts.iter().map(name_of).collect()
    }

    /// For a failure's text: the samples of alerts since then, of processes that could not be scraped, and of slow scrapes.
    pub async fn history(&self, since: Instant) -> String {
        let window = since.elapsed().as_secs() + 10;
        let mut text = String::new();
        for series in ["ALERTS{alertname!='WebhooksWatchdog'}", "up == 0", "scrape_duration_seconds > 0.3"] {
            let answer = self.ask(&format!("({series})[{window}s:1s]")).await;
            text = format!("{text}{series}: {}\n", answer.text);
        }
        text
    }

    /// How many evaluations of rules have failed.
    pub async fn failed_evaluations(&self) -> f64 {
        metric(self.api.address, "prometheus_rule_evaluation_failures_total").await
    }

    /// Waits until the rules have been evaluated for so long, in their own time.
    pub async fn watch_for(&self, minutes: u32) {
        let evaluations = "sum(count_over_time(ALERTS{alertname='WebhooksWatchdog'}[1h])) > ";
        let so_far = self.query(&format!("{evaluations} 0")).await.first().map_or(0.0, |(_, count)| *count);
        let enough = so_far + f64::from(2 * minutes);
        self.wait_for(&format!("{evaluations} {enough}")).await;
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("Prometheus said:\n{}", fs::read_to_string(self.folder.join("log")).unwrap_or_default());
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn named(alert: Option<&str>, service: Option<&str>) -> String {
    [alert, service].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// The rules with every time shortened, and with the limits in seconds that no test can wait for: a delivery is old
/// after 5 s, and a first attempt late after 10 s. No alert waits longer than `longest` minutes.
fn hurried(rules: &str, longest: u32) -> String {
    let mut text = String::new();
    for line in rules.lines() {
        let line = match line.trim_start().split_once(": ") {
            Some((name @ ("for" | "interval"), duration)) => {
                let indent = &line[..line.len() - line.trim_start().len()];
                let most = if name == "for" { longest } else { u32::MAX };
                format!("{indent}{name}: {}", shortened(duration, most))
            }
            _ => with_offset(&in_brackets(line)),
        };
        text = text + &line + "\n";
    }
    for (limit, soon) in [
        (
            "webhooks_reconcile_oldest_overdue_seconds{namespace=\"\"}) > 300",
            "webhooks_reconcile_oldest_overdue_seconds{namespace=\"\"}) > 5",
        ),
        ("le=\"30.0\"", "le=\"10.0\""),
        // The tests' server has no archive.
        (
            "webhooks_database_archive_age_seconds{namespace=\"\"}) > 3600",
            "webhooks_database_archive_age_seconds{namespace=\"\"}) > 1e9",
        ),
    ] {
        assert!(text.contains(limit), "the rules do not say {limit}");
        text = text.replace(limit, soon);
    }
    text
}

/// Shortens the windows of an expression: `[5m]`, `[10m:1m]`.
fn in_brackets(line: &str) -> String {
    let mut parts = line.split('[');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (window, rest) = part.split_once(']').expect("a bracket ends");
        let window: Vec<_> = window.split(':').map(|part| shortened(part, u32::MAX)).collect();
        text = format!("{text}[{}]{rest}", window.join(":"));
    }
    text
}

/// Shortens the offset of an expression: `[1h] offset 7d)`.
fn with_offset(line: &str) -> String {
    let Some((before, rest)) = line.split_once(" offset ") else { return line.to_owned() };
    let end = rest.find(')').unwrap_or(rest.len());
    format!("{before} offset {}{}", shortened(&rest[..end], u32::MAX), with_offset(&rest[end..]))
}

fn shortened(duration: &str, longest: u32) -> String {
    let (number, unit) = duration.split_at(duration.len() - 1);
    let minutes = match unit {
        "d" => 24 * 60,
        "h" => 60,
        "m" => 1,
        _ => panic!("{duration} is in days, hours or minutes"),
    };
    let number: u32 = number.parse().expect("a duration has a number");
    format!("{}ms", longest.min(number * minutes) * 60_000 / TIME_FACTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_of_the_rules_is_a_second() {
        let rules = r#"  - name: a
    interval: 2m
      - alert: A
        expr: rate(a[1h]) > deriv(b[10m:1m]) or c[1h] offset 7d)
        for: 5m
      - alert: B
        for: 2h
        expr: le="30.0" max(webhooks_reconcile_oldest_overdue_seconds{namespace=""}) > 300
        expr: max(webhooks_database_archive_age_seconds{namespace=""}) > 3600
"#;
        let hurried_rules = r#"  - name: a
    interval: 2000ms
      - alert: A
        expr: rate(a[60000ms]) > deriv(b[10000ms:1000ms]) or c[60000ms] offset 10080000ms)
        for: 5000ms
      - alert: B
        for: 60000ms
        expr: le="10.0" max(webhooks_reconcile_oldest_overdue_seconds{namespace=""}) > 5
        expr: max(webhooks_database_archive_age_seconds{namespace=""}) > 1e9
"#;
        assert_eq!(hurried(rules, 60), hurried_rules);
    }
}
