//! Keys by which programs call the API.

use std::time::Duration;

use end_to_end::{
    api::{Answer, Api},
    commands::{done, webhookctl},
    system::{System, TestSystem},
    wait::{SOON, until},
};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    further_api::FurtherApi,
    openapi::Contract,
    sessions::application::{Application, with},
};

const KEYS: &str = "/api/v1/keys/";
const LIST: &str = "/api/v1/webhooks/";

/// A program that calls with a key.
struct Program {
    api: Api,
    authorization: String,
}

impl Program {
    fn with(key: &str, api: &Api) -> Self {
        Self { api: Api { session: None, ..api.clone() }, authorization: format!("Bearer {key}") }
    }

    async fn send(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let headers = [("authorization", self.authorization.as_str()), ("content-type", "application/json")];
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        self.api.send(method, path, &headers, body).await
    }

    async fn status(&self) -> u16 {
        self.send("GET", LIST, None).await.status
    }
}

/// Creates a key. Returns its id and the key.
async fn created(admin: &Api, name: &str) -> (String, String) {
    let answer = admin.post(KEYS, &json!({"name": name})).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let key = answer.json();
    let text = |member: &str| key[member].as_str().unwrap().to_owned();
    (text("id"), text("key"))
}

async fn column(system: &System, column: &str, id: &str) -> Option<String> {
    let rows = system.sql(&format!("SELECT ({column})::text FROM api_keys WHERE id = '{id}'")).await;
    rows.first().and_then(|row| row.get(0))
}

/// The notices about a tenant's keys, in their order: type, user and name of the key.
async fn notices(system: &System, tenant: Uuid) -> Vec<(String, String, String)> {
    let notices = format!(
        "SELECT notice_type, details->>'user', details->>'key_name' FROM notices \
         WHERE tenant_id = '{tenant}' AND webhook_id IS NULL AND webhook_name IS NULL ORDER BY id"
    );
    system.sql(&notices).await.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_manages_webhooks_by_its_key_until_it_is_revoked() {
    let system = TestSystem::shared().await;
    let (tenant, admin) = system.tenant().await;
    let (id, key) = created(&admin, "ERP sync").await;
    assert!(key.strip_prefix("wk_").is_some_and(|digits| digits.len() == 64), "{key}");
    let hash = hex::encode(digest(&SHA256, key.as_bytes()));
    assert_eq!(column(&system, "encode(key_sha256, 'hex')", &id).await, Some(hash));
    let program = Program::with(&key, &admin);
    let new = json!({"name": "Orders", "url": "https://localhost/", "events": ["quote.closed"]});
    let webhook = program.send("POST", LIST, Some(new)).await.json();
    let path = format!("{LIST}{}/", webhook["id"].as_str().unwrap());
    let paused = program.send("PATCH", &path, Some(json!({"is_active": false}))).await;
    assert_eq!((paused.status, &paused.json()["is_active"]), (200, &json!(false)));
    assert_eq!(program.send("GET", LIST, None).await.json()["data"].as_array().unwrap().len(), 1);
    assert_eq!(program.send("DELETE", &path, None).await.status, 204);
    let actor = format!("key \"ERP sync\" ({id})");
    let history = admin.get(&format!("{path}history/")).await.json();
    let users: Vec<_> = history["data"].as_array().unwrap().iter().map(|entry| &entry["user"]).collect();
    assert_eq!(users, [&json!(actor); 3]);

    let today = OffsetDateTime::now_utc().date().to_string();
    let is_noted = async || column(&system, "last_used_on", &id).await.is_some_and(|day| day >= today);
    until("the use is noted", SOON, is_noted).await;
    let listed = admin.get(KEYS).await.json();
    let expected = json!({"id": id, "name": "ERP sync", "expires_at": null, "created_by": "somebody"});
    let entry = &listed["data"][0];
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&entry[name], value, "{name}");
    }
    assert!(
        entry["last_used_on"].as_str().unwrap() >= today.as_str() && !listed.to_string().contains("wk_"),
        "{listed}"
    );
    assert_eq!(admin.delete(&format!("{KEYS}{id}/")).await.status, 204);
    assert_eq!(program.status().await, 401);
    assert_eq!(admin.get(KEYS).await.json()["data"], json!([]));
    let of = |notice: &str| (notice.to_owned(), "somebody".to_owned(), "ERP sync".to_owned());
    assert_eq!(notices(&system, tenant).await, [of("key.created"), of("key.revoked")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_use_is_written_once_a_day_and_a_refused_request_is_no_use() {
    let system = TestSystem::shared().await;
    let (_, admin) = system.tenant().await;
    let (id, key) = created(&admin, "ERP sync").await;
    let program = Program::with(&key, &admin);
    system.sql(&format!("UPDATE api_keys SET last_used_on = '2026-01-01' WHERE id = '{id}'")).await;
    let is_noted = async || column(&system, "last_used_on", &id).await.is_some_and(|day| day != "2026-01-01");
    assert_eq!(program.status().await, 200);
    until("the use is noted", SOON, is_noted).await;
    let version = column(&system, "xmin", &id).await;
    for _ in 0..3 {
        assert_eq!(program.status().await, 200);
    }
    // Another key's first use is noted after these.
    let (other, its_key) = created(&admin, "Other").await;
    assert_eq!(Program::with(&its_key, &admin).status().await, 200);
    until("the other use is noted", SOON, async || column(&system, "last_used_on", &other).await.is_some()).await;
    assert_eq!(column(&system, "xmin", &id).await, version);
    let past = "last_used_on = NULL, expires_at = now() - interval '1 second'";
    system.sql(&format!("UPDATE api_keys SET {past} WHERE id = '{id}'")).await;
    assert_eq!(program.status().await, 401);
    assert_eq!(column(&system, "last_used_on", &id).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_and_revoked_keys_are_answered_like_unknown_ones() {
    let system = TestSystem::shared().await;
    let (_, admin) = system.tenant().await;
    let (expired, revoked) = (created(&admin, "Twice").await, created(&admin, "Twice").await);
    let past = "expires_at = now() - interval '1 second'";
    system.sql(&format!("UPDATE api_keys SET {past} WHERE id = '{}'", expired.0)).await;
    assert_eq!(admin.delete(&format!("{KEYS}{}/", revoked.0)).await.status, 204);
    let unknown = format!("wk_{}", "0".repeat(64));
    let (contract, mut answers) = (Contract::committed(), Vec::new());
    for key in [&expired.1, &revoked.1, &unknown] {
        let answer = Program::with(key, &admin).send("GET", LIST, None).await;
        contract.check("listWebhooks", 401, &answer);
        let mut problem = answer.json();
        problem["request_id"] = Value::Null;
        answers.push((problem, answer.header("www-authenticate").map(str::to_owned)));
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!(answers[0].1.as_deref(), Some("Bearer realm=\"webhooks\""));
    let listed = admin.get(KEYS).await.json();
    assert_eq!(listed["data"][0]["id"], json!(expired.0), "an expired key is listed: {listed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_has_twenty_keys_and_pages_of_them() {
    let system = TestSystem::shared().await;
    let (tenant, admin) = system.tenant().await;
    let rows = "SELECT gen_random_uuid(), $t, n::text, sha256($t::text::bytea || n::text::bytea), 'u' FROM generate_series(1, 19) n";
    let columns = "id, tenant_id, name, key_sha256, created_by";
    system.sql(&format!("INSERT INTO api_keys ({columns}) {}", rows.replace("$t", &format!("'{tenant}'::uuid")))).await;
    let new = json!({"name": "One more"});
    let answers = tokio::join!(admin.post(KEYS, &new), admin.post(KEYS, &new));
    let mut statuses = [answers.0.status, answers.1.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409], "the count stays true");
    let refused = admin.post(KEYS, &new).await;
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("too_many_keys")));
    assert_eq!(admin.whole(KEYS, "limit=7").await.len(), 20);
    let (_, other) = system.tenant().await;
    assert_eq!(other.post(KEYS, &new).await.status, 201, "each tenant has its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_business_application_is_not_asked_about_a_key() {
    let (system, application) = (TestSystem::shared().await, Application::start().await);
    let settings = [("API__SESSIONS", "introspection"), ("API__INTROSPECTION_URL", &application.url())];
    let api = FurtherApi::start(&system, &settings, &system.anonymous().await).await;
    let id = application.login(Uuid::new_v4(), "admin", Duration::from_secs(3600));
    let admin = with(&api, &id);
    let (key_id, key) = created(&admin, "ERP sync").await;
    let asked = application.asked().len();
    let program = Program::with(&key, &admin);
    assert_eq!((program.status().await, Program::with("wk_0", &admin).status().await), (200, 401));
    assert_eq!(application.asked().len(), asked);
    let headers = [("authorization", "Bearer wk_0")];
    assert_eq!(admin.send("GET", LIST, &headers, "").await.status, 401, "the cookie beside it does not count");
    assert_eq!(application.asked().len(), asked);
    assert_eq!(admin.delete(&format!("{KEYS}{key_id}/")).await.status, 204);
    assert_eq!(program.status().await, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_create_list_and_revoke_keys() {
    let system = TestSystem::shared().await;
    let (tenant, admin) = system.tenant().await;
    let id = tenant.to_string();
    let run = async |arguments: &[&str]| done(&system.variables, &[&["key"], arguments].concat()).await;
    let create = ["create", "--tenant", &id, "--name", "ERP sync"];
    let [lasting, short] = [run(&create).await, run(&[&create[..], &["--ttl", "90d"]].concat()).await];
    for key in [&lasting, &short] {
        assert_eq!(Program::with(key.trim(), &admin).status().await, 200, "{key}");
    }
    let list = run(&["list", "--tenant", &id]).await;
    let lines: Vec<_> = list.lines().skip(1).collect();
    assert!(lines.len() == 2 && lines.iter().all(|line| line.ends_with("  ERP sync")), "{list}");
    assert!(lines[0].contains("never") && !list.contains("wk_"), "{list}");
    let first = lines[0].split(' ').next().unwrap();
    assert_eq!(run(&["revoke", "--tenant", &id, first]).await, "the key is revoked\n");
    assert_eq!(Program::with(lasting.trim(), &admin).status().await, 401);
    let elsewhere = Uuid::new_v4().to_string();
    for (arguments, code, said) in [
        (&["revoke", "--tenant", &id, first][..], 1, "the tenant has no such key"),
        (&["revoke", "--tenant", &elsewhere, lines[1].split(' ').next().unwrap()], 1, "no such key"),
        (&["revoke", "--tenant", &id], 2, "<ID>"),
        (&["create", "--tenant", &id, "--name", " "], 2, "the name is blank"),
        (&["create", "--tenant", &id, "--name", "a", "--ttl", "0s"], 2, "longer than zero"),
    ] {
        let ran = webhookctl(&system.variables, &[&["key"], arguments].concat()).await;
        assert!(ran.code == code && ran.out.is_empty() && ran.err.contains(said), "{arguments:?}: {ran:?}");
    }
    assert_eq!(run(&["revoke", "--tenant", &id, "--all"]).await, "1 key(s) are revoked\n");
    assert_eq!(Program::with(short.trim(), &admin).status().await, 401);
    let types: Vec<_> = notices(&system, tenant).await.into_iter().map(|(notice, user, _)| (notice, user)).collect();
    let of = |notice: &str| (notice.to_owned(), "operator".to_owned());
    assert_eq!(types, [of("key.created"), of("key.created"), of("key.revoked"), of("key.revoked")]);
}
