//! Errors that waiting does not mend: the process ends at once and says which setting is wrong.

use std::collections::HashMap;

use end_to_end::{
    commands::refusal,
    outsider::sql,
    servers::{Servers, repository},
};
use uuid::Uuid;

use crate::startup::ALL;

const PASSWORD: &str = "correct-horse";

/// Settings that are good, as far as a process can tell without servers: none listen there.
fn good() -> HashMap<String, String> {
    let settings = [
        ("DATABASE__URL", format!("postgres://somebody:{PASSWORD}@127.0.0.1:1/none")),
        ("BROKER__URL", format!("amqp://somebody:{PASSWORD}@127.0.0.1:1/%2f")),
        ("OPS__LISTEN", "127.0.0.1:0".to_owned()),
        ("API__LISTEN", "127.0.0.1:0".to_owned()),
        ("SECRETS__KEYS", format!("test:{}", "0".repeat(64))),
    ];
    settings.into_iter().map(|(name, value)| (format!("WEBHOOKS__{name}"), value)).collect()
}

fn assert_says(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "{word:?} is missing in: {said}");
    }
    assert!(said.lines().count() == 1, "one line is enough: {said}");
}

/// Asserts that each of these processes names what is wrong with these settings, and quotes no sensitive value.
async fn assert_refused(processes: &[&str], settings: &[(&str, &str)], words: &[&str]) {
    let mut variables = good();
    variables.extend(settings.iter().map(|(name, value)| (format!("WEBHOOKS__{name}"), (*value).to_owned())));
    for process in processes {
        let said = refusal(process, &variables, &[]).await;
        assert_says(&said, &[&[*process], words].concat());
        assert!(!said.contains("horse") && !said.contains("abab"), "{said}");
    }
}

#[tokio::test]
async fn a_value_that_cannot_be_used_is_named_with_its_setting_and_not_shown_if_it_is_sensitive() {
    let short = format!("test:{}", "ab".repeat(31));
    for keys in [short.as_str(), "test:horse", "correct-horse"] {
        let words = ["secrets.keys (WEBHOOKS__SECRETS__KEYS)"];
        assert_refused(&["dispatcher", "api-service"], &[("SECRETS__KEYS", keys)], &words).await;
    }
    for (name, key, url) in [
        ("DATABASE__URL", "database.url", "postgres://somebody:correct-horse@127.0.0.1:port/none"),
        ("DATABASE__URL", "database.url", "correct-horse"),
        ("DATABASE__URL", "database.url", "mysql://somebody:correct-horse@127.0.0.1/none"),
        ("BROKER__URL", "broker.url", "amqp://somebody:correct-horse@127.0.0.1:port/%2f"),
        ("BROKER__URL", "broker.url", "http://somebody:correct-horse@127.0.0.1/"),
        ("BROKER__URL", "broker.url", "correct-horse"),
    ] {
        assert_refused(&ALL, &[(name, url)], &[&format!("{key} (WEBHOOKS__{name})")]).await;
    }
    let named = ["traces.endpoint (WEBHOOKS__TRACES__ENDPOINT)", "expected http or https"];
    assert_refused(&ALL, &[("TRACES__ENDPOINT", "collector:4318")], &named).await;
    let headers = [("TRACES__ENDPOINT", "http://127.0.0.1:1"), ("TRACES__HEADERS", "correct-horse")];
    let named = ["traces.headers (WEBHOOKS__TRACES__HEADERS)", "header 1 is not name=value"];
    assert_refused(&ALL, &headers, &named).await;
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named_with_its_setting() {
    let (missing, no_pem) = ("/nonexistent/file.pem", repository().join("Cargo.toml").display().to_string());
    let database = format!("postgres://somebody:{PASSWORD}@127.0.0.1:1/none");
    for (file, words) in [(missing, "cannot be read"), (no_pem.as_str(), "holds no certificate")] {
        let url = format!("{database}?sslmode=verify-full&sslrootcert={file}");
        let named = ["database.url (WEBHOOKS__DATABASE__URL)", "sslrootcert", file, words];
        assert_refused(&ALL, &[("DATABASE__URL", &url)], &named).await;
        let broker = [("BROKER__URL", "amqps://localhost:1"), ("BROKER__CA_FILE", file)];
        assert_refused(&ALL, &broker, &["broker.ca_file (WEBHOOKS__BROKER__CA_FILE)", file, words]).await;
        let named = ["database.ca_file (WEBHOOKS__DATABASE__CA_FILE)", file, words];
        assert_refused(&ALL, &[("DATABASE__CA_FILE", file)], &named).await;
    }
    let extra = "egress.extra_ca_file (WEBHOOKS__EGRESS__EXTRA_CA_FILE)";
    for (file, words) in [(missing, [missing, "cannot be read"]), (&no_pem, ["hold no certificate", "PEM"])] {
        assert_refused(&["dispatcher"], &[("EGRESS__EXTRA_CA_FILE", file)], &[&[extra], &words[..]].concat()).await;
    }
    for (section, variable, url) in [
        ("database", "DATABASE", "postgres://somebody@127.0.0.1:1/none"),
        ("broker", "BROKER", "amqp://somebody@127.0.0.1:1/%2f"),
    ] {
        let [address, password] = ["URL", "PASSWORD_FILE"].map(|name| format!("{variable}__{name}"));
        let setting = format!("{section}.password_file (WEBHOOKS__{password})");
        let named = [&setting, missing, "cannot be read: No such file"];
        assert_refused(&ALL, &[(&address, url), (&password, missing)], &named).await;
        let twice = format!("{section}.url holds a password: remove it from there");
        assert_refused(&ALL, &[(&password, &no_pem)], &[&setting, &twice]).await;
    }
    let named = ["broker.ca_file (WEBHOOKS__BROKER__CA_FILE)", "amqps://"];
    assert_refused(&ALL, &[("BROKER__CA_FILE", "/a.pem")], &named).await;
    let twice = [("DATABASE__URL", &*format!("{database}?sslmode=prefer")), ("DATABASE__CA_FILE", "/a.pem")];
    let named =
        ["database.ca_file (WEBHOOKS__DATABASE__CA_FILE)", "database.url says sslmode=prefer: remove it from there"];
    assert_refused(&ALL, &twice, &named).await;
}

/// Starts each process at a new database in which these statements were run. Returns the errors.
async fn refusals_at(statements: &[&str]) -> Vec<(&'static str, String)> {
    let servers = Servers::shared();
    let database = format!("e2e_{}", &Uuid::new_v4().simple().to_string()[..12]);
    sql(&servers.database_url, &format!("CREATE DATABASE {database}")).await;
    let (server, _) = servers.database_url.rsplit_once('/').unwrap();
    let url = format!("{server}/{database}");
    for statement in statements {
        sql(&url, statement).await;
    }
    let mut variables = good();
    variables.insert("WEBHOOKS__DATABASE__URL".to_owned(), url);
    variables.insert("WEBHOOKS__LOG__LEVEL".to_owned(), "off".to_owned());
    let said = futures_util::future::join_all(ALL.map(|process| refusal(process, &variables, &[]))).await;
    sql(&servers.database_url, &format!("DROP DATABASE {database} WITH (FORCE)")).await;
    let (login, _) = server.split_once("://").and_then(|(_, rest)| rest.split_once('@')).unwrap();
    let (_, password) = login.split_once(':').unwrap();
    assert!(said.iter().all(|said| !said.contains(password)), "{said:?}");
    ALL.into_iter().zip(said).collect()
}

#[tokio::test]
async fn an_empty_database_and_one_of_another_baseline_are_refused_with_what_to_run() {
    let setting = "database.url (WEBHOOKS__DATABASE__URL)";
    for (process, said) in refusals_at(&[]).await {
        assert_says(&said, &[process, setting, "too old", "`webhookctl migrate`"]);
    }
    let made = [
        "CREATE TABLE __diesel_schema_migrations (version varchar(50) PRIMARY KEY)",
        "INSERT INTO __diesel_schema_migrations VALUES ('20261121000001'), ('20261127000020')",
    ];
    for (process, said) in refusals_at(&made).await {
        let words = ["another baseline", "nothing converts it", "`deploy/local/stack destroy`"];
        assert_says(&said, &[&[process, setting], &words[..]].concat());
    }
}
