//! The rotation of the keys that seal signing secrets and webhooks' own headers.
use std::collections::HashMap;

use domain::WebhookId;
use end_to_end::{
    commands::{self, Ran},
    events::Event,
    receiver::{Receiver, always, verify},
    system::{Options, Service, System, TestSystem},
    wait::SOON,
};
use ledger::{SealedSecret, SecretKeys};
use serde_json::json;
use service_kit::Settings;
use signing::SigningSecret;
use uuid::Uuid;

/// The setting `secrets.keys` with a key for each letter.
fn keys(letters: &str) -> String {
    let key = |letter: char| format!("key-{letter}:{}", hex::encode([letter as u8; 32]));
    letters.chars().map(key).collect::<Vec<_>>().join(",")
}

fn settings(system: &System, letters: &str) -> Settings {
    system.settings_with(&[("SECRETS__KEYS", &keys(letters))])
}

async fn webhookctl(system: &System, letters: &str, arguments: &[&str]) -> Ran {
    commands::webhookctl(&system.with(&[("SECRETS__KEYS", &keys(letters))]), arguments).await
}

fn sealed(letters: &str, webhook: Uuid, secret: &str) -> SealedSecret {
    let keys: SecretKeys = keys(letters).parse().unwrap();
    keys.seal(WebhookId::from(webhook), &SigningSecret::from(secret.to_owned())).unwrap()
}

/// Inserts webhooks whose secret is their id.
async fn insert(system: &System, letter: &str, ids: &[Uuid]) {
    let rows = ids.iter().map(|id| {
        let SealedSecret { key_id, sealed } = sealed(letter, *id, &id.to_string());
        format!(
            "('{id}', gen_random_uuid(), 'a', 'https://a.example/', '{{}}', '{key_id}', '\\x{}')",
            hex::encode(sealed)
        )
    });
    let rows = rows.collect::<Vec<_>>().join(", ");
    let columns = "id, tenant_id, name, url, events, secret_key_id, secret_sealed";
    system.sql(&format!("INSERT INTO webhooks ({columns}) VALUES {rows}")).await;
}

/// The secrets of all webhooks, opened with these keys alone.
async fn opened(system: &System, letters: &str) -> HashMap<Uuid, String> {
    let keys: SecretKeys = keys(letters).parse().unwrap();
    let rows = system.sql("SELECT id::text, secret_key_id, secret_sealed FROM webhooks").await;
    let read = |row: &tokio_postgres::Row| {
        let id: Uuid = row.get::<_, &str>(0).parse().unwrap();
        let secret = SealedSecret { key_id: row.get(1), sealed: row.get(2) };
        (id, keys.open(WebhookId::from(id), &secret).unwrap().expose().to_owned())
    };
    rows.iter().map(read).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_retired_while_the_services_run() {
    let system = TestSystem::prepared(Options::default()).await;
    let receiver = Receiver::start(&system.ca, always(200));
    let tenant = Uuid::new_v4();
    system.start_with(Service::Api, settings(&system, "a")).await;
    let admin = system.admin(tenant).await;
    let webhook = admin.create(&receiver.url("/"), &["quote.closed"]).await;
    let path = format!("/api/v1/webhooks/{}/", webhook.id);
    let first = json!({"headers": {"X-First": "of key a"}});
    assert_eq!(admin.patch(&path, &first).await.status, 200);
    let gone = admin.create(&receiver.url("/gone"), &["quote.closed"]).await;
    admin.delete(&format!("/api/v1/webhooks/{}/", gone.id)).await;
    let many: Vec<Uuid> = (0..450).map(|_| Uuid::new_v4()).collect();
    insert(&system, "a", &many).await;
    system.start(Service::Ingest).await;
    system.start_with(Service::Dispatcher, settings(&system, "ba")).await;

    let Ran { code, out, err } = webhookctl(&system, "ba", &["keys", "list"]).await;
    assert_eq!((code, err.as_str()), (0, ""));
    let line = |out: &str, key: &str| {
        let line = out.lines().find(|line| line.starts_with(key)).unwrap_or_else(|| panic!("{key} in {out}"));
        line.split_whitespace().skip(2).take(2).map(|n| n.parse().unwrap()).collect::<Vec<u32>>()
    };
    assert_eq!((line(&out, "key-a"), line(&out, "key-b")), (vec![453, 1], vec![0, 0]));

    let Ran { code, out, err } = webhookctl(&system, "ba", &["keys", "reseal"]).await;
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.starts_with("resealed 453 secret(s) with the key \"key-b\"\n"), "{out}");
    assert!(out.lines().any(|line| line.starts_with("key-a") && line.ends_with("seals nothing")), "{out}");
    let out = webhookctl(&system, "ba", &["keys", "list"]).await.out;
    assert_eq!((line(&out, "key-a"), line(&out, "key-b")), (vec![0, 0], vec![453, 1]));
    assert!(out.lines().any(|line| line.starts_with("key-a") && line.ends_with("seals nothing")), "{out}");
    assert!(webhookctl(&system, "ba", &["keys", "reseal"]).await.out.starts_with("resealed 0 "));

    system.stop(Service::Dispatcher).await;
    system.start_with(Service::Dispatcher, settings(&system, "b")).await;
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    let received = receiver.wait_for(1, SOON).await;
    assert_eq!(verify(&received[0], &webhook.secret), Ok(()));
    assert_eq!(received[0].header("x-first"), Some("of key a"));
    let secrets = opened(&system, "b").await;
    assert!(many.iter().all(|id| secrets[id] == id.to_string()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_open_stays_is_told_and_exits_with_1() {
    let system = TestSystem::prepared(Options::default()).await;
    let [good, lost, moved] = [1, 2, 3].map(Uuid::from_u128);
    insert(&system, "a", &[good, moved]).await;
    insert(&system, "x", &[lost]).await;
    system.sql(&format!("UPDATE webhooks SET secret_sealed = '\\x00' WHERE id = '{moved}'")).await;
    let Ran { code, out, err } = webhookctl(&system, "ba", &["keys", "reseal"]).await;
    assert_eq!(code, 1);
    assert!(out.contains("resealed 1 secret(s)"), "{out}");
    assert!(
        out.contains(&format!(
            "webhook {moved}, signing secret: the sealed secret does not open with the key \"key-a\""
        )),
        "{out}"
    );
    assert_eq!(err, "webhookctl: 2 secret(s) are not sealed by the key \"key-b\"\n");
    let list = webhookctl(&system, "ba", &["keys", "list"]).await.out;
    assert!(out.ends_with(&list), "{out}{list}");
    for (key, state) in [("key-a", "WRONG DIGITS"), ("key-x", "NOT CONFIGURED")] {
        assert!(list.lines().any(|line| line.starts_with(key) && line.contains(state)), "{list}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_resealed_with_a_first_key_that_does_not_open_what_it_is_said_to_seal() {
    let system = TestSystem::prepared(Options::default()).await;
    let [old, new] = [1, 2].map(Uuid::from_u128);
    insert(&system, "a", &[old]).await;
    insert(&system, "b", &[new]).await;
    // The configured `key-c` has other digits.
    system.sql("UPDATE webhooks SET secret_key_id = 'key-c' WHERE secret_key_id = 'key-b'").await;
    let Ran { code, out, err } = webhookctl(&system, "ca", &["keys", "reseal"]).await;
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("\"key-c\" does not open") && err.contains("Nothing was resealed"), "{err}");
    let out = webhookctl(&system, "ca", &["keys", "list"]).await.out;
    assert!(out.lines().any(|line| line.starts_with("key-c") && line.contains("WRONG DIGITS")), "{out}");
    assert_eq!(system.count("SELECT count(*) FROM webhooks WHERE secret_key_id = 'key-a'").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_changes_meanwhile_is_not_lost() {
    let system = TestSystem::prepared(Options::default()).await;
    let [one, two] = [1, 2].map(Uuid::from_u128);
    insert(&system, "a", &[one, two]).await;
    let SealedSecret { key_id, sealed } = sealed("a", one, "changed meanwhile");
    let change = format!(
        "BEGIN; UPDATE webhooks SET secret_key_id = '{key_id}', secret_sealed = '\\x{}' WHERE id = '{one}'",
        hex::encode(sealed)
    );
    let session = system.database_session(&change).await;
    let reseal = tokio::spawn({
        let system = std::sync::Arc::clone(&system);
        async move { webhookctl(&system, "ba", &["keys", "reseal"]).await }
    });
    system.wait_for_locked_out(1).await;
    session.batch_execute("COMMIT").await.unwrap();
    let Ran { code, out, err } = reseal.await.unwrap();
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let secrets = opened(&system, "b").await;
    assert_eq!((secrets[&one].as_str(), secrets[&two].clone()), ("changed meanwhile", two.to_string()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_headers_after_a_rotation_keeps_the_others_and_seals_all_with_the_new_key() {
    let system = TestSystem::prepared(Options::default()).await;
    let receiver = Receiver::start(&system.ca, always(200));
    system.start_with(Service::Api, settings(&system, "a")).await;
    let tenant = Uuid::new_v4();
    let admin = system.admin(tenant).await;
    let webhook = admin.create(&receiver.url("/"), &["quote.closed"]).await;
    let path = format!("/api/v1/webhooks/{}/", webhook.id);
    let first = json!({"headers": {"X-First": "of key a", "X-Gone": "of key a"}});
    assert_eq!(admin.patch(&path, &first).await.status, 200);
    system.stop(Service::Api).await;
    system.start_with(Service::Api, settings(&system, "ba")).await;
    let admin = system.admin(tenant).await;
    let changed = admin.patch(&path, &json!({"headers": {"X-Second": "of key b", "X-Gone": null}})).await;
    assert_eq!((changed.status, &changed.json()["header_names"]), (200, &json!(["X-First", "X-Second"])));
    let of_key = "SELECT count(*) FROM webhooks WHERE headers_key_id = 'key-b' AND secret_key_id = 'key-a'";
    assert_eq!(system.count(of_key).await, 1);
    // The secret alone is resealed.
    let Ran { code, out, .. } = webhookctl(&system, "ba", &["keys", "reseal"]).await;
    assert!(code == 0 && out.starts_with("resealed 1 secret(s)"), "{out}");
    system.start(Service::Ingest).await;
    system.start_with(Service::Dispatcher, settings(&system, "b")).await;
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    let one = receiver.wait_for(1, SOON).await.remove(0);
    let headers = ["x-first", "x-second", "x-gone"].map(|name| one.header(name));
    assert_eq!(headers, [Some("of key a"), Some("of key b"), None]);
    // Headers that do not open are reported like a secret that does not.
    system.sql("UPDATE webhooks SET headers_key_id = 'key-a'").await;
    let Ran { code, out, err } = webhookctl(&system, "ba", &["keys", "reseal"]).await;
    assert_eq!((code, err.as_str()), (1, "webhookctl: 1 secret(s) are not sealed by the key \"key-b\"\n"), "{out}");
    let why = format!("webhook {}, headers: the sealed secret does not open with the key \"key-a\"", webhook.id);
    assert!(out.contains(&why), "{out}");
    assert!(out.lines().any(|line| line.starts_with("key-a") && line.contains("WRONG DIGITS")), "{out}");
}
