//! Every call of the REST API, on the large webhooks and on others, while the other tenant gets its events.

mod coverage;
mod lists;
mod reads;
mod writes;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use bytes::Bytes;
use end_to_end::api::Api;
use serde_json::Value;
use tokio::time::timeout;

use super::{
    Volume,
    operation::{MAX_CALL_MILLIS, MAX_STATEMENT_SECONDS},
};
use crate::{kept::Kept, latencies::Latencies, latency::percentiles, report::Figure};

/// The calls of each kind. Fewer if they exceed `KIND_BUDGET`: then they are too slow anyway.
const CALLS_PER_KIND: usize = 100;
const KIND_BUDGET: Duration = Duration::from_secs(5);
/// How long an answer may take. One that does not come in time counts as this slow.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long all calls may take. What has not begun by then is left out, which is a failure.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// One request, and its operation in `openapi.json`.
struct Call {
    method: &'static str,
    template: &'static str,
    path: String,
    body: Option<Value>,
    /// The statuses of which each is right.
    expected: &'static [u16],
}

struct Calls {
    /// Milliseconds, by group and variant. A group is as slow as its slowest variant: a slow variant has time for few
    /// calls, which would vanish among the many of the others.
    groups: BTreeMap<String, BTreeMap<String, Vec<f64>>>,
    /// Methods and templates of the calls.
    made: BTreeSet<(&'static str, &'static str)>,
    failed: u32,
    left_out: u32,
    until: Instant,
}

/// The times of every group, and the failures.
pub(super) async fn measure(volume: &Volume<'_>) -> Vec<Figure> {
    let variants = lists::variants(volume).await;
    let mark = volume.statements.mark();
    let until = Instant::now() + TOTAL_TIMEOUT;
    let mut calls = Calls { groups: BTreeMap::new(), made: BTreeSet::new(), failed: 0, left_out: 0, until };
    let (other, ()) = volume
        .beside(async {
            lists::measure(&mut calls, volume, &variants).await;
            let recovery = writes::measure(&mut calls, volume).await;
            reads::measure(&mut calls, volume, &recovery).await;
        })
        .await;
    let mut figures = calls.figures();
    figures.extend(percentiles("volume_calls_other_during", &other));
    let longest = volume.statements.longest_since(mark);
    figures.push(Figure::new("volume_calls_longest_statement", longest, "seconds").at_most(MAX_STATEMENT_SECONDS));
    figures
}

impl Call {
    const fn get(template: &'static str, path: String) -> Self {
        Self { method: "GET", template, path, body: None, expected: &[200] }
    }
}

impl Calls {
    /// Makes the calls and adds their times to a variant of a group. Returns the bodies of the answers.
    async fn repeat(
        &mut self,
        (group, variant): (&str, &str),
        admin: &Api,
        calls: impl IntoIterator<Item = Call>,
    ) -> Vec<Bytes> {
        let mut kept = Kept::open(admin).await;
        let (began, mut answers) = (Instant::now(), Vec::new());
        for call in calls.into_iter().take(CALLS_PER_KIND) {
            if Instant::now() > self.until {
                self.left_out += 1;
                break;
            }
            if began.elapsed() > KIND_BUDGET {
                break;
            }
            self.made.insert((call.method, call.template));
            let asked = Instant::now();
            let answer = timeout(ANSWER_TIMEOUT, kept.ask(call.method, &call.path, call.body.as_ref())).await;
            let status = answer.as_ref().map_or(0, |answer| answer.status);
            if !call.expected.contains(&status) {
                self.failed += 1;
                println!("  {} {} was answered by {status} after {:?}", call.method, call.path, asked.elapsed());
            }
            let took = answer.as_ref().map_or(ANSWER_TIMEOUT, |answer| answer.took);
            let variants = self.groups.entry(group.to_owned()).or_default();
            variants.entry(variant.to_owned()).or_default().push(took.as_secs_f64() * 1000.0);
            match answer {
                Ok(answer) => answers.push(answer.body),
                Err(_) => kept = Kept::open(admin).await,
            }
        }
        answers
    }

    fn figures(self) -> Vec<Figure> {
        let mut figures = Vec::new();
        for (group, variants) in self.groups {
            let calls: usize = variants.values().map(Vec::len).sum();
            let variants = variants.into_iter().map(|(variant, times)| (variant, Latencies::new(times)));
            let p99 = |times: &Latencies| times.percentile(0.99);
            let slowest = variants.max_by(|(_, one), (_, other)| p99(one).total_cmp(&p99(other)));
            let (variant, times) = slowest.expect("a group has a call");
            let [p50, p99, most] = [0.5, 0.99, 1.0].map(|part| times.percentile(part));
            println!(
                "  {group}: {calls} calls; slowest: {p50:.1} ms, p99 {p99:.1} ms, {most:.1} ms at most, {variant}"
            );
            figures.push(Figure::new(format!("volume_{group}_p99"), p99, "ms").at_most(MAX_CALL_MILLIS));
        }
        let forgotten = coverage::forgotten(&self.made);
        for (method, path) in &forgotten {
            println!("  not measured: {method} {path}");
        }
        let forgotten = f64::from(u32::try_from(forgotten.len()).unwrap_or(u32::MAX));
        figures.push(Figure::new("volume_calls_failed", self.failed.into(), "calls").at_most(0.0));
        figures.push(Figure::new("volume_calls_left_out", self.left_out.into(), "kinds").at_most(0.0));
        figures.push(Figure::new("volume_calls_not_measured", forgotten, "operations").at_most(0.0));
        figures
    }
}
