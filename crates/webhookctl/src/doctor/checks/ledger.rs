//! Areas `schema`, `partitions` and `keys`: what is in the database.

use ledger::{DaysSeen, KeyUse, MigrationsSeen};

use super::{
    super::{
        finding::{Finding, many},
        observed::{DatabaseSeen, KeysSeen, Observed},
    },
    judged, unseen,
};

pub(super) fn check(observed: &Observed) -> Vec<Finding> {
    let Some(seen) = observed.database() else { return Vec::new() };
    let schema = match &seen.migrations {
        Ok(migrations) => schema(migrations),
        Err(why) => unseen("schema.version", why),
    };
    let mut findings = vec![schema];
    let days = (&seen.days, seen);
    findings.extend(judged("partitions.ahead", days, |days| vec![partitions(days)]));
    if let Some(used) = &seen.keys {
        findings.extend(judged("keys.open", (used, seen), keys));
    }
    findings
}

/// Whether tables may be missing.
pub(super) fn is_old(seen: &DatabaseSeen) -> bool {
    seen.migrations.as_ref().is_ok_and(|migrations| !migrations.missing.is_empty())
}

fn schema(MigrationsSeen { missing, unknown, last, has_other_baseline, .. }: &MigrationsSeen) -> Finding {
    let id = "schema.version";
    match (missing.as_slice(), unknown.as_slice()) {
        _ if *has_other_baseline => Finding::error(
            id,
            "made by a build with another baseline of the schema, and nothing converts it: no service starts",
            "begin with an empty database: webhookctl migrate; in development: deploy/local/stack destroy, then make up",
        ),
        ([], []) => Finding::ok(
            id,
            last.as_ref().map_or_else(|| "current".to_owned(), |last| format!("current: the last migration is {last}")),
        ),
        ([first, ..], _) => Finding::error(
            id,
            format!("too old: {} from {first} on: no service starts", many(missing.len(), "missing migration")),
            "webhookctl migrate",
        ),
        (_, [.., last]) => Finding::warning(
            id,
            format!("newer than this webhookctl: it has {last}"),
            "use the webhookctl of the services' version (webhookctl --version); the lines below may be wrong",
        ),
    }
}

fn partitions(days: &DaysSeen) -> Finding {
    let DaysSeen { today, wanted, made } = days;
    let missing: Vec<_> = std::iter::successors(Some(*today), |day| day.next_day())
        .take_while(|day| day <= wanted)
        .filter(|day| !made.contains(day))
        .collect();
    let remedy =
        "run webhookctl migrate now; a leading event-ingest creates partitions ahead of time: check that one runs";
    match missing.as_slice() {
        [] => Finding::ok("partitions.ahead", format!("every day until {wanted} has its partitions")),
        // Events may be a day ahead.
        [first, ..] if (*first - *today).whole_days() <= 1 => {
            Finding::error("partitions.ahead", format!("{first} has none: its first event has to make them"), remedy)
        }
        [first, ..] => {
            Finding::warning("partitions.ahead", format!("none are made from {first} on (until {wanted})"), remedy)
        }
    }
}

fn keys(seen: &KeysSeen) -> Vec<Finding> {
    let id = "keys.open";
    let mut findings = Vec::new();
    let remedy = "webhookctl keys list; then add the right key to secrets.keys (WEBHOOKS__SECRETS__KEYS) of api-service and \
                  dispatchers. Their deliveries wait";
    let mut wrong = |text| findings.push(Finding::error(id, text, remedy));
    for used in &seen.used {
        let KeyUse { key_id, secrets, of_deleted, unopened } = used;
        let live = secrets - of_deleted;
        if !seen.configured.contains(key_id) {
            if live > 0 {
                wrong(format!("the key {key_id:?} is not configured, and sealed {}", many(live, "secret")));
            }
        } else if used.is_wrong() {
            wrong(format!("the key {key_id:?} has other digits than the one that sealed {}", many(live, "secret")));
        } else if *unopened > 0 {
            wrong(format!("{unopened} of the latest secrets of the key {key_id:?} do not open"));
        }
    }
    if findings.is_empty() {
        let all: u64 = seen.used.iter().map(|used| used.secrets).sum();
        findings.push(Finding::ok(id, format!("{} sealed, all by keys that are configured", many(all, "secret"))));
    }
    findings
}
