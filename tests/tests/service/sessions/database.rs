//! Sessions in the table `admin_sessions`, and the operators' command line.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use end_to_end::{
    api::Api,
    processes::binary,
    system::{Options, Service, System, TestSystem},
    wait::{SOON, until},
};
use ledger::{NewSession, Session};
use serde_json::json;
use time::OffsetDateTime;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::{rest::end_waiting_sessions, sessions::application::with};

const LIST: &str = "/api/v1/webhooks/";

/// Runs `webhookctl session …`.
fn session(system: &System, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(binary("webhookctl"))
        .arg("session")
        .args(arguments)
        .env_clear()
        .envs(&system.variables)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input may have ended already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(output: &[u8]) -> &str {
    std::str::from_utf8(output).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_looked_up_while_all_connections_for_requests_are_held_which_is_not_for_long() {
    let system = TestSystem::serving(Options::default().impatient(), [Service::Api]).await;
    let (_tenant, api) = system.tenant().await;
    let webhook = api.create("https://localhost/", &["quote.closed"]).await.id;
    let hold = system.database_session("BEGIN; LOCK TABLE deliveries IN ACCESS EXCLUSIVE MODE").await;
    let path = format!("{LIST}{webhook}/deliveries/");
    let mut slow: JoinSet<_> = (0..4)
        .map(|_| {
            let (api, path) = (api.clone(), path.clone());
            async move { api.get(&path).await }
        })
        .collect();
    system.wait_for_locked_out(1).await;
    assert_eq!(with(&api, "unknown").get(LIST).await.status, 401);
    while let Some(answer) = slow.join_next().await {
        let answer = answer.unwrap();
        assert_eq!((answer.status, &answer.json()["code"]), (503, &json!("unavailable")), "{}", answer.text);
    }
    assert_eq!(api.get(LIST).await.status, 200, "it goes on");
    drop(hold);
    until("the log is read again", SOON, || async { api.get(&path).await.status == 200 }).await;
}

/// A browser sends two cookies of one name if their paths or domains differ.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_found_behind_a_stale_or_an_empty_cookie_of_its_name() {
    let system = TestSystem::shared().await;
    let tenant = Uuid::new_v4();
    let (admin, user) = (system.admin(tenant).await, system.session(tenant, "user", SOON).await);
    let webhook = admin.create("https://localhost/", &["quote.closed"]).await.id;
    let (good, user) = (admin.session.clone().unwrap(), user.session.unwrap());
    let anonymous = system.anonymous().await;
    let asked = async |cookies: &str| anonymous.send("GET", LIST, &[("cookie", cookies)], "").await;
    for before in ["sessionid=stale", "sessionid=", "sessionid=a; sessionid=b", &format!("sessionid={user}")] {
        let answer = asked(&format!("{before}; sessionid={good}")).await;
        assert_eq!((answer.status, &answer.json()["data"][0]["id"]), (200, &json!(webhook)), "{before}");
    }
    assert_eq!(asked(&format!("sessionid={good}; sessionid=stale")).await.status, 200);
    assert_eq!(asked(&format!("sessionid=a; sessionid=b; sessionid=c; sessionid={good}")).await.status, 401);
    assert_eq!(asked(&format!("sessionid=stale; sessionid={user}")).await.status, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_session_is_not_logged_in_from_then_on() {
    let system = TestSystem::shared().await;
    let api = system.anonymous().await;
    let tenant = Uuid::new_v4().to_string();
    for by_input in [false, true] {
        let created = session(&system, &["create", "--tenant", &tenant], "");
        let id = text(&created.stdout).trim().to_owned();
        let kept = session(&system, &["create", "--tenant", &tenant], "");
        assert_eq!(with(&api, &id).get(LIST).await.status, 200);
        let line = format!("{id}\n");
        let (argument, input) = if by_input { ("-", line.as_str()) } else { (id.as_str(), "") };
        let revoked = session(&system, &["revoke", argument], input);
        assert_eq!((revoked.status.code(), text(&revoked.stdout)), (Some(0), "the session is revoked\n"));
        assert_eq!(with(&api, &id).get(LIST).await.status, 401);
        assert_eq!(with(&api, text(&kept.stdout).trim()).get(LIST).await.status, 200);
        let again = session(&system, &["revoke", argument], input);
        let said = (again.status.code(), text(&again.stdout), text(&again.stderr));
        assert_eq!(said, (Some(1), "", "webhookctl: there is no such session\n"));
    }
    let nothing = session(&system, &["revoke", "-"], "\n");
    assert_eq!(nothing.status.code(), Some(2));
    assert_eq!(text(&nothing.stderr), "webhookctl: the session id is empty\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_sessions_are_refused_and_deleted_in_time() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let live = system.admin(Uuid::new_v4()).await;
    let expired = system.session(Uuid::new_v4(), "admin", Duration::ZERO).await;
    system
        .sql(
            "INSERT INTO admin_sessions (id_sha256, tenant_id, user_id, role, expires_at) \
             SELECT sha256(n::text::bytea), gen_random_uuid(), 'u', 'admin', now() - interval '1 s' \
             FROM generate_series(1, 2500) n",
        )
        .await;
    assert_eq!((live.get(LIST).await.status, expired.get(LIST).await.status), (200, 401));
    assert_eq!(system.count("SELECT count(*) FROM admin_sessions").await, 2502);
    system.start(Service::Ingest).await;
    system.until_count("SELECT count(*) FROM admin_sessions", 1, SOON).await;
    assert_eq!(live.get(LIST).await.status, 200);
}

/// Asks again and again until the session is known to be unknown. Counts the answers that tell to come later.
async fn refused_until_unknown(stranger: Api, crowded: Arc<AtomicUsize>) {
    loop {
        let answer = stranger.get(LIST).await;
        match answer.status {
            401 => return,
            503 if answer.json()["code"] == json!("busy") => {
                assert_eq!(answer.header("retry-after"), Some("5"));
                crowded.fetch_add(1, Ordering::Relaxed);
            }
            // The one whose turn it was.
            503 => {}
            other => panic!("{other}: {}", answer.text),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_unknown_sessions_leaves_connections_to_known_ones() {
    let system = TestSystem::serving(Options::default().impatient(), [Service::Api]).await;
    let known = system.admin(Uuid::new_v4()).await;
    assert_eq!(known.get(LIST).await.status, 200);
    // Of the four connections in tests, session look-ups have two, and unknown sessions one of these.
    let hold = system.database_session("BEGIN; LOCK TABLE admin_sessions IN ACCESS EXCLUSIVE MODE").await;
    let crowded = Arc::new(AtomicUsize::new(0));
    let mut flood = JoinSet::new();
    for number in 0..20 {
        flood.spawn(refused_until_unknown(with(&known, &format!("stranger-{number}")), Arc::clone(&crowded)));
    }
    // A look-up is given up after a second. Its backend may end after the next look-up has begun.
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                   AND wait_event_type = 'Lock' AND clock_timestamp() - query_start < interval '900 ms'";
    until("many are told to come later", SOON, async || {
        assert!(system.count(waiting).await <= 1, "one look-up of a stranger at a time");
        crowded.load(Ordering::Relaxed) >= 100
    })
    .await;
    // Each look-up is given up after a second.
    let found = until("the known one is found", SOON, || async {
        let answer = known.get(LIST).await;
        assert!(matches!(answer.status, 200 | 503), "{}", answer.text);
        assert_ne!(answer.json()["code"], json!("busy"), "no stranger is in its way");
        answer.status == 200
    });
    let release = async {
        system.wait_for_locked_out(2).await;
        drop(hold);
    };
    tokio::join!(found, release);
    flood.join_all().await;
}

/// A restart of the server, or a switch to another one, ends a session so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_connection_the_server_ends_is_unconfirmed_and_one_that_fails_is_not_made() {
    let system = TestSystem::prepared(Options::default()).await;
    let ledger = system.ledger_as("test", 1);
    let begin = |role: &str| {
        let session = Session { tenant: Uuid::new_v4().into(), user: "u".to_owned(), role: role.to_owned() };
        NewSession::begin(session, OffsetDateTime::now_utc() + Duration::from_secs(60)).unwrap().1
    };
    let (code, new) = (begin(Session::LOGIN_CODE), begin(Session::ADMIN));
    ledger.session_create(&code).await.unwrap();
    let hold = system.database_session("BEGIN; SELECT FROM admin_sessions FOR UPDATE").await;
    let cut = async {
        system.wait_for_locked_out(1).await;
        end_waiting_sessions(&system).await;
    };
    let (revoked, ()) = tokio::join!(ledger.session_revoke(&code.hash), cut);
    let error = revoked.unwrap_err();
    assert!(error.is_unavailable() && error.is_unconfirmed(), "{error:?}");
    drop(hold);

    system.sql("ALTER TABLE admin_sessions ADD CONSTRAINT no_admins CHECK (role <> 'admin')").await;
    let error = ledger.session_exchange(&code.hash, &new).await.unwrap_err();
    assert!(!error.is_unavailable() && !error.is_unconfirmed(), "the connection is good: {error:?}");
    system.sql("ALTER TABLE admin_sessions DROP CONSTRAINT no_admins").await;
    assert!(ledger.session_exchange(&code.hash, &new).await.unwrap(), "the code was not used up");
    assert!(!ledger.session_exchange(&code.hash, &begin(Session::ADMIN)).await.unwrap(), "it works once");
}
