//! Errors that waiting does not mend: the process ends at once and says which setting is wrong.

use std::{collections::HashMap, net::TcpListener};

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

/// What a process says when all settings are good but one.
async fn refusal_of(process: &str, name: &str, value: &str) -> String {
    let mut variables = good();
    variables.insert(name.to_owned(), value.to_owned());
    refusal(process, &variables, &[]).await
}

fn assert_says(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "{word:?} is missing in: {said}");
    }
    assert!(said.lines().count() == 1, "one line is enough: {said}");
}

#[tokio::test]
async fn a_sensitive_value_that_cannot_be_used_is_not_shown() {
    let short = format!("test:{}", "ab".repeat(31));
    for process in ["dispatcher", "api-service"] {
        for keys in [short.as_str(), "test:zz", "correct-horse"] {
            let said = refusal_of(process, "WEBHOOKS__SECRETS__KEYS", keys).await;
            assert_says(&said, &[process, "secrets.keys (WEBHOOKS__SECRETS__KEYS)"]);
            assert!(!said.contains(keys) && !said.contains("abab") && !said.contains("zz"), "{said}");
        }
    }
    for process in ALL {
        for (name, url) in [
            ("DATABASE__URL", "postgres://somebody:correct-horse@127.0.0.1:port/none"),
            ("DATABASE__URL", "correct-horse"),
            ("DATABASE__URL", "mysql://somebody:correct-horse@127.0.0.1/none"),
            ("BROKER__URL", "amqp://somebody:correct-horse@127.0.0.1:port/%2f"),
            ("BROKER__URL", "http://somebody:correct-horse@127.0.0.1/"),
            ("BROKER__URL", "correct-horse"),
        ] {
            let variable = format!("WEBHOOKS__{name}");
            let said = refusal_of(process, &variable, url).await;
            let key = name.replace("__", ".").to_lowercase();
            assert_says(&said, &[process, &format!("{key} ({variable})")]);
            assert!(!said.contains("horse"), "{said}");
        }
    }
}

#[tokio::test]
async fn a_collector_that_cannot_be_one_is_named_and_its_headers_are_not_shown() {
    for process in ALL {
        let said = refusal_of(process, "WEBHOOKS__TRACES__ENDPOINT", "collector:4318").await;
        assert_says(&said, &[process, "traces.endpoint (WEBHOOKS__TRACES__ENDPOINT)", "expected http or https"]);
        let mut variables = good();
        variables.insert("WEBHOOKS__TRACES__ENDPOINT".to_owned(), "http://127.0.0.1:1".to_owned());
        variables.insert("WEBHOOKS__TRACES__HEADERS".to_owned(), "correct-horse".to_owned());
        let said = refusal(process, &variables, &[]).await;
        assert_says(&said, &[process, "traces.headers (WEBHOOKS__TRACES__HEADERS)", "header 1 is not name=value"]);
        assert!(!said.contains("horse"), "{said}");
    }
}

#[tokio::test]
async fn a_file_of_authorities_that_cannot_be_read_or_used_is_named() {
    let missing = "/nonexistent/authorities.pem";
    let said = refusal_of("dispatcher", "WEBHOOKS__EGRESS__EXTRA_CA_FILE", missing).await;
    assert_says(&said, &["egress.extra_ca_file (WEBHOOKS__EGRESS__EXTRA_CA_FILE)", missing, "cannot be read"]);
    let no_pem = repository().join("Cargo.toml").display().to_string();
    let said = refusal_of("dispatcher", "WEBHOOKS__EGRESS__EXTRA_CA_FILE", &no_pem).await;
    assert_says(&said, &["egress.extra_ca_file (WEBHOOKS__EGRESS__EXTRA_CA_FILE)"]);
}

#[tokio::test]
async fn a_file_of_tls_that_cannot_be_used_is_named_with_its_setting() {
    let (missing, no_pem) = ("/nonexistent/file.pem", repository().join("Cargo.toml").display().to_string());
    for process in ALL {
        for (file, words) in [(missing, "cannot be read"), (no_pem.as_str(), "holds no certificate")] {
            let url = format!("postgres://somebody:{PASSWORD}@127.0.0.1:1/none?sslmode=verify-full&sslrootcert={file}");
            let said = refusal_of(process, "WEBHOOKS__DATABASE__URL", &url).await;
            assert_says(&said, &["database.url (WEBHOOKS__DATABASE__URL)", "sslrootcert", file, words]);
            assert!(!said.contains("horse"), "{said}");
            let mut variables = good();
            variables.insert("WEBHOOKS__BROKER__URL".to_owned(), "amqps://localhost:1".to_owned());
            variables.insert("WEBHOOKS__BROKER__CA_FILE".to_owned(), file.to_owned());
            let said = refusal(process, &variables, &[]).await;
            assert_says(&said, &["broker.ca_file (WEBHOOKS__BROKER__CA_FILE)", file, words]);
            let said = refusal_of(process, "WEBHOOKS__DATABASE__CA_FILE", file).await;
            assert_says(&said, &["database.ca_file (WEBHOOKS__DATABASE__CA_FILE)", file, words]);
        }
    }
}

#[tokio::test]
async fn a_password_file_that_cannot_be_used_or_comes_with_a_password_is_named_with_its_setting() {
    let (missing, file) = ("/nonexistent/password", repository().join("Cargo.toml").display().to_string());
    for process in ALL {
        for (section, url) in
            [("database", "postgres://somebody@127.0.0.1:1/none"), ("broker", "amqp://somebody@127.0.0.1:1/%2f")]
        {
            let prefix = format!("WEBHOOKS__{}", section.to_uppercase());
            let setting = format!("{section}.password_file ({prefix}__PASSWORD_FILE)");
            let mut variables = good();
            variables.insert(format!("{prefix}__URL"), url.to_owned());
            variables.insert(format!("{prefix}__PASSWORD_FILE"), missing.to_owned());
            let said = refusal(process, &variables, &[]).await;
            assert_says(&said, &[process, &setting, missing, "cannot be read: No such file"]);
            let said = refusal_of(process, &format!("{prefix}__PASSWORD_FILE"), &file).await;
            assert_says(&said, &[process, &setting, &format!("{section}.url holds a password: remove it from there")]);
            assert!(!said.contains("horse"), "{said}");
        }
    }
}

#[tokio::test]
async fn what_is_asked_of_tls_and_not_possible_is_refused_with_what_is() {
    let url = |mode: &str| format!("postgres://somebody:{PASSWORD}@127.0.0.1:1/none?{mode}");
    for (mode, words) in [
        ("sslmode=verify-ca", "verify-full"),
        ("sslmode=allow", "verify-full"),
        ("sslrootcert=/a.pem", "sslmode=verify-full"),
        ("sslmode=require&sslcert=/a.pem", "sslkey"),
    ] {
        let said = refusal_of("dispatcher", "WEBHOOKS__DATABASE__URL", &url(mode)).await;
        assert_says(&said, &["database.url (WEBHOOKS__DATABASE__URL)", words]);
        assert!(!said.contains("horse"), "{said}");
    }
    let said = refusal_of("dispatcher", "WEBHOOKS__BROKER__CA_FILE", "/a.pem").await;
    assert_says(&said, &["broker.ca_file (WEBHOOKS__BROKER__CA_FILE)", "amqps://"]);
    for (section, variable) in [("broker", "BROKER"), ("database", "DATABASE")] {
        let [certificate, key] = ["CERTIFICATE", "KEY"].map(|name| format!("WEBHOOKS__{variable}__CLIENT_{name}"));
        let said = refusal_of("dispatcher", &certificate, "/a.pem").await;
        assert_says(&said, &[&format!("{section}.client_key ({key})"), "not set"]);
        let said = refusal_of("dispatcher", &key, "/a.pem").await;
        assert_says(&said, &[&format!("{section}.client_certificate ({certificate})"), "not set"]);
    }
}

#[tokio::test]
async fn a_file_of_tls_and_an_option_of_the_databases_url_that_contradict_each_other_are_both_named() {
    for process in ALL {
        for (options, option) in [
            ("sslmode=disable", "sslmode=disable"),
            ("sslmode=prefer", "sslmode=prefer"),
            ("sslmode=verify-full&sslrootcert=/b.pem", "sslrootcert"),
            ("sslcert=/b.pem&sslkey=/b.key", "sslcert"),
        ] {
            let mut variables = good();
            let url = format!("postgres://somebody:{PASSWORD}@127.0.0.1:1/none?{options}");
            variables.insert("WEBHOOKS__DATABASE__URL".to_owned(), url);
            variables.insert("WEBHOOKS__DATABASE__CA_FILE".to_owned(), "/a.pem".to_owned());
            let said = refusal(process, &variables, &[]).await;
            let words = format!("database.url says {option}: remove it from there");
            assert_says(&said, &[process, "database.ca_file (WEBHOOKS__DATABASE__CA_FILE)", &words]);
            assert!(!said.contains("horse"), "{said}");
        }
    }
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for process in ALL {
        let said = refusal_of(process, "WEBHOOKS__OPS__LISTEN", &address).await;
        assert_says(&said, &[process, "ops.listen (WEBHOOKS__OPS__LISTEN)", &address, "in use"]);
    }
    let said = refusal_of("api-service", "WEBHOOKS__API__LISTEN", &address).await;
    assert_says(&said, &["api.listen (WEBHOOKS__API__LISTEN)", &address, "in use"]);
}

#[tokio::test]
async fn a_settings_file_that_is_missing_or_malformed_is_named_and_not_quoted() {
    let folder = std::env::temp_dir().join(format!("e2e-settings-{}", Uuid::new_v4().simple()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("settings.toml");
    let path = file.display().to_string();
    for process in ALL {
        let said = refusal_of(process, "WEBHOOKS_CONFIG", &path).await;
        assert_says(&said, &[process, &path, "WEBHOOKS_CONFIG", "cannot be read"]);
    }
    for (text, words) in [
        ("[database]\nurl = \"postgres://somebody:correct-horse@\n", ["WEBHOOKS_CONFIG", "line 2"]),
        ("[retry]\nshedule = \"1s\"\n", ["retry.shedule", "unknown"]),
    ] {
        std::fs::write(&file, text).unwrap();
        for process in ALL {
            let said = refusal_of(process, "WEBHOOKS_CONFIG", &path).await;
            assert_says(&said, &[&[process], &words[..]].concat());
            assert!(!said.contains("horse"), "{said}");
        }
        std::fs::remove_file(&file).unwrap();
    }
    std::fs::remove_dir_all(&folder).unwrap();
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
async fn an_empty_database_is_answered_by_what_to_run() {
    for (process, said) in refusals_at(&[]).await {
        assert_says(&said, &[process, "database.url (WEBHOOKS__DATABASE__URL)", "too old", "`webhookctl migrate`"]);
    }
}

#[tokio::test]
async fn a_database_that_a_build_with_another_baseline_made_is_refused_with_what_to_run() {
    let made = [
        "CREATE TABLE __diesel_schema_migrations (version varchar(50) PRIMARY KEY)",
        "INSERT INTO __diesel_schema_migrations VALUES ('20261121000001'), ('20261127000020')",
    ];
    for (process, said) in refusals_at(&made).await {
        let setting = "database.url (WEBHOOKS__DATABASE__URL)";
        assert_says(
            &said,
            &[process, setting, "another baseline", "nothing converts it", "`deploy/local/stack destroy`"],
        );
    }
}
