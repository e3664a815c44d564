//! Lists of the API are read in the order of an index, however many rows a webhook has and the planner believes in.

use std::time::Duration;

use domain::{DeliveryState, EventType};
use end_to_end::{
    database::Session,
    system::{Options, Service, System, TestSystem},
};
use ledger::{
    Actor, DayPart, DeliveryFilter, FailingThresholds, Leader, Ledger, NewRecovery, NewWebhook, Page, Recoverable,
    Refusal, Removal, SealedSecret, Stream, StreamPosition, WebhookHeaders, WebhookLimits, WebhookSettings,
};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::delivery::plans::{first_page, reads};

/// Real rows of one day. Every tenth row belongs to another webhook. The statistics are set to 15 times as many.
const ROWS: u32 = 100_000;
const GROWTH_FACTOR: u32 = 15;

/// Settings of a services' connection (`SESSION` in the ledger's `connect.rs`).
const SESSION: [(&str, &str); 5] = [
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
    ("plan_cache_mode", "force_generic_plan"),
];

/// An id of today for row `i`, in the order of the rows: four ids in three seconds.
const ID: &str = "(lpad(to_hex((extract(epoch FROM date_trunc('day', now(), 'UTC')) * 1000)::bigint + i * 750), 12, '0') \
     || '8' || substr(md5(i::text), 1, 3) || '8' || substr(md5(i::text), 4, 15))::uuid";

/// Fills the tables that lists read, and has the planner believe in many more rows.
async fn fill(system: &System, tenant: Uuid, large: &str) {
    let session = Session::open(&system.database_url).await;
    // Without triggers, which fill another table row by row.
    session.rows("SET session_replication_role = replica").await;
    let of = format!("CASE WHEN i % 10 = 0 THEN md5((i % 1000)::text)::uuid ELSE '{large}' END");
    let state = "CASE i % 4 WHEN 0 THEN 'dropped' ELSE 'succeeded' END";
    let rows = format!("FROM generate_series(1, {ROWS}) AS i");
    for fill in [
        format!(
            "INSERT INTO deliveries (id, webhook_id, event_id, event_type, state) \
             SELECT {ID}, {of}, gen_random_uuid(), 'quote.closed', {state} {rows}"
        ),
        "INSERT INTO unsuccessful_deliveries SELECT id, webhook_id, state, created_at FROM deliveries \
         WHERE state = 'dropped'"
            .to_owned(),
        format!(
            "INSERT INTO history (id, tenant_id, webhook_id, user_id, action, details) \
             SELECT {ID}, '{tenant}', {of}, 'somebody', 'tested', '{{}}' {rows}"
        ),
        format!(
            "INSERT INTO recoveries (id, webhook_id, since, cursor, finished_at) \
             SELECT {ID}, {of}, now(), '{}', now() {rows}",
            Uuid::nil()
        ),
        format!(
            "INSERT INTO notices (id, tenant_id, webhook_id, webhook_name, notice_type, details, leased_until) \
             SELECT {ID}, '{tenant}', {of}, 'A test', 'webhook.changed', '{{}}', NULL {rows}"
        ),
    ] {
        session.rows(&fill).await;
    }
    for table in ["deliveries", "unsuccessful_deliveries", "history", "notices", "recoveries"] {
        session.rows(&format!("ANALYZE {table}")).await;
    }
    let many = "UPDATE pg_class SET reltuples = reltuples * {} WHERE reltuples > 0 AND relkind IN ('r', 'i') \
                AND relname ~ '^(deliveries|unsuccessful_deliveries|history|notices|recoveries)'";
    session.rows(&many.replace("{}", &GROWTH_FACTOR.to_string())).await;
}

/// The type and a value of each parameter, by the text before it. Ids are the last one, so that no day is left out.
fn parameters(text: &str) -> Vec<(&'static str, &'static str)> {
    const ID: (&str, &str) = ("uuid", "'ffffffff-ffff-ffff-ffff-ffffffffffff'");
    const IDS: (&str, &str) = ("uuid[]", "'{ffffffff-ffff-ffff-ffff-ffffffffffff}'");
    const NUMBER: (&str, &str) = ("bigint", "51");
    const WORD: (&str, &str) = ("text", "'dropped'");
    const WORDS: (&str, &str) = ("text[]", "'{dropped}'");
    let before = [
        ("number = ", NUMBER),
        ("LIMIT ", NUMBER),
        ("delivery_id AS id, ", WORDS),
        ("ARRAY[", ID),
        ("w.id = ANY (", IDS),
        ("found.id, (", WORDS),
        ("AND (", WORDS),
        ("state = ANY (", WORDS),
        ("state = ", WORD),
        ("event_type = ", WORD),
        ("is_test = ", ("boolean", "true")),
        ("place, s.* FROM unnest(", IDS),
        ("unnest(", WORDS),
        ("unnest($1, ", IDS),
        ("id < ", ID),
        ("id >= ", ("uuid", "'00000000-0000-0000-0000-000000000000'")),
        ("id > ", ID),
        ("\"id\" < ", ID),
        ("\"tenant_id\" = ", ID),
        ("\"webhook_id\" = ANY(", IDS),
        ("\"notice_type\" = ANY(", WORDS),
    ];
    let mut parameters = Vec::new();
    loop {
        let parameter = format!("${}", parameters.len() + 1);
        let is_it = |at: &usize| !text[at + parameter.len()..].starts_with(|next: char| next.is_ascii_digit());
        let Some(at) = text.match_indices(&parameter).map(|(at, _)| at).find(is_it) else { return parameters };
        let known = before.iter().find(|(end, _)| text[..at].ends_with(end));
        parameters.push(known.unwrap_or_else(|| panic!("the type of {parameter} is unknown in {text}")).1);
    }
}

/// The generic plan of the statement that a call sends last.
async fn plan(system: &System, call: impl AsyncFnOnce(&Ledger)) -> String {
    let name: &'static str = Box::leak(format!("plan-{}", Uuid::new_v4().simple()).into_boxed_str());
    let ledger = system.ledger_as(name, 1);
    call(&ledger).await;
    // The ledger may look for this session's mark from another one.
    let last = format!(
        "SELECT query FROM pg_stat_activity WHERE application_name = '{name}' AND query NOT LIKE '%webhooks.session%'"
    );
    let text: String = system.sql(&last).await[0].get(0);
    // Comments name parameters too.
    let text = text.lines().filter_map(|line| line.split("--").next()).collect::<Vec<_>>().join("\n");
    drop(ledger);
    let session = Session::open(&system.database_url).await;
    for (setting, value) in SESSION {
        session.rows(&format!("SET {setting} = {value}")).await;
    }
    let (types, values): (Vec<_>, Vec<_>) = parameters(&text).into_iter().unzip();
    session.rows(&format!("PREPARE list ({}) AS {text}", types.join(", "))).await;
    let rows = session.rows(&format!("EXPLAIN EXECUTE list({})", values.join(", "))).await;
    let lines: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    format!("{text}\n{}", lines.join("\n"))
}

/// All filters of the log that differ in their members.
fn filters() -> Vec<DeliveryFilter> {
    let mut filters = Vec::new();
    for state in [None, Some(DeliveryState::Succeeded), Some(DeliveryState::Dropped)] {
        for event_type in [None, Some(EventType::QuoteAccepted)] {
            for is_test in [None, Some(true)] {
                let states = state.into_iter().collect();
                filters.push(DeliveryFilter { states, event_type, is_test, ..DeliveryFilter::default() });
            }
        }
    }
    filters
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_list_and_no_step_of_the_leader_reads_all_that_a_webhook_with_very_many_deliveries_has() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let (tenant, api) = system.tenant().await;
    let large = &api.create("https://localhost/", &["quote.closed"]).await.id;
    let quiet = &api.create("https://localhost/", &["quote.closed"]).await.id;
    // Its tasks read too.
    system.stop(Service::Api).await;
    fill(&system, tenant, large).await;
    let id = large.parse::<Uuid>().unwrap().into();
    let page = Page { after: None, limit: 50 };
    let page_of_log = Page { after: None, limit: 50 };
    let mut plans = Vec::new();
    // A step of unsuccessful states sorts the few rows that it has read of each.
    for filter in filters().into_iter().filter(|filter| filter.states != [DeliveryState::Dropped]) {
        plans.push(plan(&system, async |ledger| first_page(ledger, tenant, large, &filter).await).await);
    }
    let history = async |ledger: &Ledger| {
        assert_eq!(ledger.history_list(tenant.into(), id, page).await.unwrap().unwrap().len(), 50);
    };
    plans.push(plan(&system, history).await);
    let all_history = async |ledger: &Ledger| {
        assert_eq!(ledger.history_of_tenant(tenant.into(), page).await.unwrap().len(), 50);
    };
    let (read, pages) = reads(&system, all_history).await;
    assert!(read <= 1_000 && pages <= 1_000, "{read} rows, {pages} pages");
    let notices = async |ledger: &Ledger| {
        assert_eq!(ledger.notice_list(tenant.into(), id, page).await.unwrap().unwrap().len(), 50);
    };
    plans.push(plan(&system, notices).await);
    let recoveries = async |ledger: &Ledger| {
        let own = ledger.webhook_known(tenant.into(), id).await.unwrap().unwrap();
        assert_eq!(ledger.recovery_list(own, page).await.unwrap().len(), 50);
    };
    plans.push(plan(&system, recoveries).await);
    let recoverable = async |ledger: &Ledger| {
        let (since, day) = (OffsetDateTime::now_utc() - Duration::from_secs(86_400), Duration::from_secs(86_400));
        let states = vec![Recoverable::Dropped];
        let event_types = vec![EventType::QuoteAccepted];
        let wanted = NewRecovery { since, until: None, states, outcomes: Vec::new(), event_types };
        ledger.recoverable_count(tenant.into(), id, &wanted, day).await.unwrap().unwrap();
    };
    plans.push(plan(&system, recoverable).await);
    for plan in plans {
        // A merge of the days' indexes has a "Sort Key" too.
        assert!(!plan.contains("Sort  (cost"), "it sorts: {plan}");
    }
    for webhook in [large, quiet] {
        for filter in filters() {
            let (read, pages) = reads(&system, async |ledger| first_page(ledger, tenant, webhook, &filter).await).await;
            println!("{read} rows and {pages} pages of indexes were read for {filter:?} of {webhook}");
            assert!(read <= 5_000 && pages <= 5_000, "{read} rows, {pages} pages for {filter:?} of {webhook}");
        }
    }
    let both = async |ledger: &Ledger, filter: &DeliveryFilter| {
        let own = ledger.own_webhooks(tenant.into()).await.unwrap();
        ledger.delivery_list((tenant.into(), &own), filter, page_of_log, Duration::ZERO).await.unwrap();
    };
    for filter in filters() {
        let (read, pages) = reads(&system, async |ledger| both(ledger, &filter).await).await;
        assert!(read <= 5_000 && pages <= 5_000, "{read} rows, {pages} pages for {filter:?} of all webhooks");
    }
    leader_steps(&system).await;
}

/// At the limit of deleted webhooks, a registration looks at some of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registration_does_not_look_for_deliveries_of_all_webhooks_that_were_ever_deleted() {
    let system = TestSystem::prepared(Options::default()).await;
    let tenant = Uuid::new_v4();
    let columns = "id, tenant_id, name, url, events, is_active, secret_key_id, secret_sealed, deleted_at";
    let values =
        format!("gen_random_uuid(), '{tenant}', 'A test', '', '{{}}', false, '', '', now() - interval '1 hour'");
    let deleted = format!("INSERT INTO webhooks ({columns}) SELECT {values} FROM generate_series(1, 1000)");
    system.sql(&deleted).await;
    let of_each = format!(
        "INSERT INTO deliveries (id, webhook_id, event_id, event_type, state) \
         SELECT {ID}, id, gen_random_uuid(), 'quote.closed', 'succeeded' \
         FROM (SELECT id, row_number() OVER () AS i FROM webhooks) AS w"
    );
    system.sql(&of_each).await;
    let actor = Actor { tenant: tenant.into(), user: "somebody".to_owned() };
    let new = NewWebhook {
        id: Uuid::now_v7().into(),
        settings: WebhookSettings {
            name: "A test".to_owned(),
            url: "https://localhost/".to_owned(),
            events: vec![EventType::QuoteClosed],
            is_active: true,
            ..WebhookSettings::default()
        },
        secret: SealedSecret { key_id: String::new(), sealed: Vec::new() },
        headers: WebhookHeaders::default(),
    };
    let (_, pages) = reads(&system, async |ledger| {
        let most = WebhookLimits { webhooks: 100, deleted: 1_000 };
        let refused = ledger.webhook_create(&actor, &new, most).await.unwrap();
        assert_eq!(refused, Err(Refusal::TooManyDeleted(most.deleted)));
    })
    .await;
    assert!(pages <= 2_000, "{pages} pages of indexes of deliveries were read");
}

/// The rows of one step. Each row is looked up in some other tables.
const STEP: u32 = 10_000;

/// Each kind of step of the leader reads its own rows only.
async fn leader_steps(system: &System) {
    let now = OffsetDateTime::now_utc();
    let keep = Duration::from_secs(30 * 86_400);
    // A few deliveries with a due time beside all this history.
    system
        .sql(
            "UPDATE deliveries SET state = 'retrying', next_attempt_at = now() - interval '1 minute' \
                WHERE id IN (SELECT id FROM deliveries WHERE state = 'succeeded' ORDER BY id LIMIT 10)",
        )
        .await;
    // As if it had passed all days: nothing of today would be removed.
    system.sql(&format!("UPDATE broker_generation SET indexed_before = '{}'", Uuid::max())).await;
    let after = |id| StreamPosition { due: OffsetDateTime::UNIX_EPOCH, id };
    let latest = StreamPosition { due: now + keep, id: Uuid::max() };
    for kind in 0..10 {
        let step = async |leader: &mut Leader| match kind {
            0 => drop(leader.waiting_find(Stream::UntriedBackwards, after(Uuid::max()), STEP, now).await.unwrap()),
            1 => drop(leader.overdue_find(Stream::Untried, after(Uuid::nil()), STEP, (None, 0)).await.unwrap()),
            6 => drop(leader.waiting_find(Stream::Due, after(Uuid::nil()), STEP, now).await.unwrap()),
            7 => drop(leader.untried_index(Uuid::nil(), Uuid::max()).await.unwrap()),
            8 => drop(leader.overdue_find(Stream::Due, after(Uuid::nil()), STEP, (Some(now), 10)).await.unwrap()),
            9 => drop(leader.overdue_find(Stream::Due, latest, STEP, (Some(now), 10)).await.unwrap()),
            2 => {
                let (after, again_after) = (Duration::from_secs(3600), vec![Duration::from_secs(86_400)]);
                leader.failing_notify(&FailingThresholds { after, attempts: 10, again_after }).await.unwrap();
                leader.stats_clear().await.unwrap();
            }
            3 => drop(leader.leftovers_clear(now - keep).await.unwrap()),
            _ => {
                let part = if kind == 4 { DayPart::Log } else { DayPart::Bodies };
                assert!(leader.removal_step(&Removal::of(now.date().into(), part)).await.unwrap().rest.is_some());
            }
        };
        let times = if kind == 3 { 24 } else { 1 };
        let (read, pages) = reads(system, async |ledger| {
            let Ok(mut leader) = ledger.candidate().await.unwrap().lead().await.unwrap() else {
                panic!("another leads")
            };
            for _ in 0..times {
                step(&mut leader).await;
            }
        })
        .await;
        println!("{read} rows and {pages} pages of indexes were read by {times} steps of kind {kind} of the leader");
        let most = match kind {
            6 | 8 | 9 => 500,
            // A thousand rows are looked at, and those that wait are locked and updated.
            7 => 10_000,
            _ => i64::from(STEP) * 4 * times,
        };
        assert!(read <= most && pages <= most, "{read} rows, {pages} pages by steps of kind {kind}");
    }
}
