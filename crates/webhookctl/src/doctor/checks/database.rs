//! Area `database`: the server.

use std::time::Duration;

use ledger::{ConnectionsSeen, ServerCondition};

use super::{
    super::{
        finding::{Finding, grouped, lasting, many},
        observed::{Database, DatabaseSeen, Observed, SettingsSeen},
    },
    unseen,
};

/// The oldest version that the service supports.
const MIN_VERSION: i32 = 150_000;
/// The clocks of two well-kept machines differ by less.
const MAX_NORMAL_OFFSET: time::Duration = time::Duration::seconds(5);
/// Receivers refuse a signature whose time is 300 s off.
const MAX_OFFSET: time::Duration = time::Duration::seconds(240);
/// Ages of transaction ids, as the alerts have them. Of the first, 1,000 transactions a second leave 19 days; of the second, 7.
const OLD_IDS: i64 = 500_000_000;
const STALE_IDS: i64 = 1_500_000_000;
/// The age of the last archived WAL file, as the alert has it.
const MAX_ARCHIVE_AGE: time::Duration = time::Duration::HOUR;
/// The names of their connections.
const SERVICE_NAMES: [&str; 3] = ["api-service", "event-ingest", "dispatcher"];
/// A transaction that is older keeps the server from clearing up.
const MAX_TRANSACTION_SECONDS: f64 = 600.0;

pub(super) fn check(observed: &Observed) -> Vec<Finding> {
    let fault = match &observed.database {
        Database::Seen(seen) => return of_server(seen, &observed.settings),
        Database::Unknown => {
            return vec![Finding::note("database.connection", "not looked at: database.url cannot be used")];
        }
        Database::Unavailable(why) => Finding::error(
            "database.connection",
            why,
            "start PostgreSQL, or correct database.url (WEBHOOKS__DATABASE__URL). The services wait for it, and lose nothing",
        ),
        Database::ReadOnly => Finding::error(
            "database.writes",
            "the server is read-only: a standby, or a demoted primary",
            "promote it, or let database.url (WEBHOOKS__DATABASE__URL) name the primary, or all hosts; the services then continue automatically",
        ),
    };
    let rest = "not looked at: schema, partitions, keys, api-service, leader, what is overdue";
    vec![fault, Finding::note("database.rest", rest)]
}

fn of_server(seen: &DatabaseSeen, settings: &SettingsSeen) -> Vec<Finding> {
    let mut findings = match &seen.server {
        Ok(server) => {
            let has = size(server.bytes);
            let disk = format!("this database has {has}; free disk: `df` on its host, as PostgreSQL does not show it");
            let mut findings = vec![
                version(server),
                Finding::ok("database.writes", "accepts writes"),
                durability(server),
                standby(server),
                archive(server),
                connections(server, seen, settings.max_connections),
                locks(server, seen, settings),
                ids(server),
            ];
            findings.extend(transactions(server));
            findings.push(Finding::note("database.disk", disk));
            findings
        }
        Err(why) => vec![unseen("database.version", why)],
    };
    let (offset, took) = seen.clock;
    findings.push(clock(offset, took));
    findings
}

fn version(server: &ServerCondition) -> Finding {
    let version = server.version.split(' ').next().unwrap_or_default();
    match server.version_number {
        MIN_VERSION.. => Finding::ok("database.version", format!("PostgreSQL {version}")),
        _ => Finding::error(
            "database.version",
            format!("PostgreSQL {version} is older than 15"),
            "upgrade it to 15 or later",
        ),
    }
}

fn durability(server: &ServerCondition) -> Finding {
    let id = "database.durability";
    if !server.is_durable {
        let remedy = "set fsync = on and full_page_writes = on in postgresql.conf, and reload it";
        return Finding::error(id, "fsync or full_page_writes is off: a power cut can destroy everything", remedy);
    }
    match server.synchronous_commit.as_str() {
        "off" => Finding::error(
            id,
            "synchronous_commit is off: a crash loses what was acknowledged",
            "set synchronous_commit = on in postgresql.conf, or for the user or the database, and reload it",
        ),
        commit => Finding::ok(id, format!("a commit is on the disk (synchronous_commit = {commit})")),
    }
}

fn standby(server: &ServerCondition) -> Finding {
    let id = "database.standby";
    let ServerCondition { standbys, synchronous, hidden, .. } = *server;
    let may_see = "GRANT pg_monitor to the user of database.url";
    match (server.synchronous_names.is_empty(), standbys, synchronous) {
        (true, 0, _) => Finding::note(id, "no standby is connected: a lost disk loses the ledger since its backup"),
        (true, ..) => Finding::warning(
            id,
            format!("{} connected, none synchronous: a failover loses the latest commits", many(standbys, "standby")),
            "set synchronous_standby_names on the primary (operators' pages: In production)",
        ),
        (false, 1.., 0) if hidden > 0 => Finding::note(
            id,
            format!("{} connected; {may_see}, to see whether they confirm", many(standbys, "standby")),
        ),
        (false, _, 0) => Finding::error(
            id,
            "no synchronous standby is connected: every commit waits for one",
            "start the standby, or clear synchronous_standby_names and reload until the standby is available again",
        ),
        _ => Finding::ok(id, format!("{} confirm commits", many(synchronous, "synchronous standby"))),
    }
}

/// Returns whether a restore would end less than an hour before a loss.
fn archive(server: &ServerCondition) -> Finding {
    let id = "database.archive";
    let age = server.archive_age.map(time::Duration::seconds_f64);
    let silence = age.map_or_else(|| "ever".to_owned(), |age| format!("for {}", lasting(age)));
    if server.archive_mode == "off" {
        let text = "archive_mode is off: a lost disk, or a wrong statement, loses everything since the last copy";
        let remedy = "archive the WAL beside a base backup (operators' pages: Backup and restore); archive_mode = on needs a restart of PostgreSQL";
        return Finding::warning(id, text, remedy);
    }
    if server.archive_fails {
        let remedy = "PostgreSQL's log shows the error of archive_command; WAL that is not archived fills the disk (operators' pages: WebhooksArchiveFails)";
        return Finding::warning(id, format!("archiving WAL fails: no file was archived {silence}"), remedy);
    }
    match age {
        Some(age) if age <= MAX_ARCHIVE_AGE => {
            Finding::ok(id, format!("WAL is archived: the last file {} ago", lasting(age)))
        }
        _ => Finding::warning(
            id,
            format!("no WAL file was archived {silence}: a restore would lose what came later"),
            "set archive_timeout = 300 and reload; if it is set, PostgreSQL's log says why nothing is archived",
        ),
    }
}

/// The connections of the services that run.
struct Services {
    processes: i64,
    open: i64,
    /// Open connections whose commits wait for a synchronous standby.
    committing: i64,
    /// The connections that they may open.
    most: i64,
    /// The limit for their user by the rule of `deploy/production.md`, for a process of each service at least.
    limit: i64,
}

impl Services {
    fn of(seen: &DatabaseSeen, pool: usize) -> Self {
        let pool = i64::try_from(pool).unwrap_or(i64::MAX);
        let (mut processes, mut open, mut committing, mut ingests) = (0, 0, 0, 0);
        for ours in seen.connections.iter().flatten().filter(|one| SERVICE_NAMES.contains(&one.name.as_str())) {
            open += ours.connections;
            committing += ours.committing;
            processes += processes_of(ours, pool);
            ingests += i64::from(ours.name == "event-ingest");
        }
        // An ingest has one more, to lead.
        let most = |processes: i64, ingests: i64| processes.saturating_mul(pool).saturating_add(ingests);
        let limit = most(processes.max(3), ingests.max(1)).saturating_mul(2).saturating_add(10);
        Self { processes, open, committing, most: most(processes, ingests), limit }
    }
}

/// The number of processes of one service and host, by their connections alone. Connections that calls may have left
/// behind do not count.
fn processes_of(ours: &ConnectionsSeen, pool: i64) -> i64 {
    1 + (ours.connections - ours.committing - 1).max(0) / pool.saturating_add(1)
}

/// The limit that is next to be reached, and what the services that run may need of it. Commits that wait keep
/// connections of calls that timed out, so the user needs a limit below that of the server.
fn connections(server: &ServerCondition, seen: &DatabaseSeen, pool: usize) -> Finding {
    let id = "database.connections";
    let of_server = i64::from(server.max_connections);
    let of_role = i64::from(server.role_limit);
    let limits = [
        (of_server, server.connections, "max_connections, without reserved ones"),
        (of_role, server.of_role, "CONNECTION LIMIT of the user"),
        (i64::from(server.database_limit), server.of_database, "CONNECTION LIMIT of the database"),
    ];
    let next = limits.into_iter().filter(|(limit, ..)| *limit >= 0).min_by_key(|(limit, used, _)| limit - used);
    let Some((limit, used, name)) = next else { return Finding::ok(id, many(server.connections, "connection")) };
    let ours = Services::of(seen, pool);
    let services = match ours.processes {
        0 => String::new(),
        1 => format!("; the service process that runs may open {}", grouped(ours.most)),
        processes => format!("; the {processes} service processes that run may open {}", grouped(ours.most)),
    };
    let text = format!("{} of {} in use ({name}){services}", grouped(used), many(limit, "connection"));
    let above = if ours.limit < of_server { "" } else { ", with max_connections of PostgreSQL above it" };
    let role = server.role.as_deref();
    let set = role.map(|role| format!("ALTER ROLE {role} CONNECTION LIMIT {}{above}", ours.limit));
    let may_exceed = (used - ours.open).max(0).saturating_add(ours.most) > limit;
    if used * 10 > limit * 9 && !may_exceed && ours.committing > 0 {
        let text = format!("{text}; the commits of {} wait for the synchronous standby", grouped(ours.committing));
        let remedy = "start the standby, or clear synchronous_standby_names and reload: then these connections end";
        return Finding::warning(id, text, remedy);
    }
    if used * 10 > limit * 9 || may_exceed {
        let set = set.filter(|_| ours.limit > of_role).map(|set| format!(" (of the user: {set})")).unwrap_or_default();
        let remedy = format!(
            "raise that limit of PostgreSQL{set}, or lower database.max_connections of the services; beyond the limit \
             connections are refused, and the services wait"
        );
        return Finding::warning(id, text, remedy);
    }
    match set {
        None => Finding::note(id, format!("{text}. The user is a superuser: it can have no limit of its own")),
        Some(_) if (0..of_server).contains(&of_role) => Finding::ok(id, text),
        Some(set) => {
            let fault = "no CONNECTION LIMIT of the user is below it, so calls that time out may leave none for others";
            Finding::warning(id, format!("{text}; {fault}"), set)
        }
    }
}

/// A read of all days locks each day's partition of a table, and both of its indexes while it is planned. The connections
/// of api-services, the leader's and an operator's make such reads.
fn locks(server: &ServerCondition, seen: &DatabaseSeen, settings: &SettingsSeen) -> Finding {
    const OF_A_DAY: i64 = 3;
    /// A week ahead, today, and those that are kept beyond `retention.keep` for their schedule, or are about to be dropped.
    const OTHER_DAYS: i64 = 11;
    let id = "database.locks";
    let whole = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let pool = i64::try_from(settings.max_connections).unwrap_or(i64::MAX);
    if settings.keep.is_zero() || pool == 0 {
        return Finding::note(id, "not looked at: retention.keep or database.max_connections cannot be used");
    }
    let days = whole(settings.keep.as_secs().div_ceil(86_400)).saturating_add(OTHER_DAYS);
    let present = seen.days.as_ref().map_or(0, |days| days.made.len());
    let days = days.max(i64::try_from(present).unwrap_or(i64::MAX));
    let services = seen.connections.iter().flatten().filter(|one| one.name == "api-service");
    let services = services.map(|one| processes_of(one, pool)).sum::<i64>().max(1);
    let readers = services.saturating_mul(pool).saturating_add(2);
    let wanted = days.saturating_mul(OF_A_DAY).saturating_mul(readers);
    let holders = i64::from(server.lock_holders).max(1);
    let room = i64::from(server.max_locks).saturating_mul(holders);
    let text = format!(
        "room for {} locks (max_locks_per_transaction = {}); reads of {days} days by {readers} connections may hold {}",
        grouped(room),
        server.max_locks,
        grouped(wanted)
    );
    if wanted <= room {
        return Finding::ok(id, text);
    }
    let set = wanted.saturating_add(holders - 1) / holders;
    let set = set.saturating_add(63) / 64 * 64;
    let remedy = format!(
        "set max_locks_per_transaction = {set} in postgresql.conf, and restart it, or shorten retention.keep; without room, \
         statements fail (out of shared memory): API and console answer 500, the rest tries again"
    );
    Finding::warning(id, text, remedy)
}

/// PostgreSQL refuses writes at an age of 2^31 less 3 million transactions.
fn ids(server: &ServerCondition) -> Finding {
    let id = "database.transaction_ids";
    let ServerCondition { oldest_database, ids_age, freeze_max_age, oldest_table, table_age, .. } = server;
    let (age, begin) = (grouped(*ids_age), grouped(*freeze_max_age));
    let table = oldest_table.as_deref().unwrap_or("unknown");
    let text = format!(
        "the oldest transaction ids are {age} transactions old (database {oldest_database}), in this database {} ({table})",
        grouped(table_age.unwrap_or_default())
    );
    if *ids_age < OLD_IDS {
        return Finding::ok(id, text);
    }
    let text = format!(
        "{text}: autovacuum, which begins at {begin}, is behind. At 2,144 million PostgreSQL refuses all writes"
    );
    let remedy = format!(
        "VACUUM (FREEZE, VERBOSE) in that database (the oldest table of ours: {table}). If the age stays: end old transactions \
         (pg_stat_activity), and drop pg_prepared_xacts and pg_replication_slots that nobody uses"
    );
    if *ids_age < STALE_IDS { Finding::warning(id, text, remedy) } else { Finding::error(id, text, remedy) }
}

fn transactions(server: &ServerCondition) -> Option<Finding> {
    let oldest = server.oldest_transaction.filter(|seconds| *seconds > MAX_TRANSACTION_SECONDS)?;
    let lasts = lasting(time::Duration::seconds_f64(oldest));
    Some(Finding::warning(
        "database.transactions",
        format!("a transaction lasts for {lasts}: until it ends, tables grow"),
        "SELECT pid, application_name, xact_start, query FROM pg_stat_activity ORDER BY xact_start; then pg_terminate_backend(pid)",
    ))
}

fn clock(offset: time::Duration, took: Duration) -> Finding {
    let seconds = offset.as_seconds_f64();
    let text = format!("this machine's clock is {seconds:+.1} s off the database's");
    let remedy = "set both by NTP: `timedatectl` on each host says whether it is";
    if offset.abs() > MAX_OFFSET + took {
        return Finding::error("database.clock", format!("{text}: receivers refuse signatures 300 s off"), remedy);
    }
    if offset.abs() > MAX_NORMAL_OFFSET + took {
        return Finding::warning("database.clock", text, remedy);
    }
    let millis = took.as_millis();
    // Adding a positive zero takes the sign of a negative one.
    let seconds = (seconds * 1_000.0).round() / 1_000.0 + 0.0;
    Finding::ok("database.clock", format!("answers in {millis} ms; this machine's clock is {seconds:+.3} s off"))
}

fn size(bytes: i64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
    let megabytes = bytes as f64 / 1e6;
    if megabytes < 1_000.0 { format!("{megabytes:.0} MB") } else { format!("{:.1} GB", megabytes / 1_000.0) }
}
