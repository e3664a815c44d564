//! All the ways in which settings can be wrong, and which source wins.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use service_kit::settings::{LogFormat, SessionBackEnd};
use service_kit::{Settings, SettingsError};

const DATABASE: (&str, &str) = ("WEBHOOKS__DATABASE__URL", "postgres://app:hunter2@db/webhooks");
const BROKER: (&str, &str) = ("WEBHOOKS__BROKER__URL", "amqp://app:hunter2@mq/%2f");

fn env(more: &[(&str, &str)]) -> HashMap<String, String> {
    let all = [DATABASE, BROKER].into_iter().chain(more.iter().copied());
    all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn load(more: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    Settings::from_sources(None, env(more))
}

fn refusal(name: &str, value: &str) -> String {
    load(&[(name, value)]).expect_err(name).to_string()
}

/// A settings file that is removed when the test ends.
struct SettingsFile(PathBuf);

impl SettingsFile {
    fn new(text: &str) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("service-kit-{}-{}.toml", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::write(&path, text).unwrap();
        Self(path)
    }

    fn load(&self, more: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        Settings::from_sources(Some(&self.0), env(more))
    }
}

impl Drop for SettingsFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn two_urls_are_enough() {
    let settings = load(&[]).unwrap();
    assert_eq!((settings.database.url.expose(), settings.broker.url.expose()), (DATABASE.1, BROKER.1));
    assert_eq!((&settings.database.password_file, &settings.broker.password_file), (&None, &None));
    assert!(settings.broker.tls_files().unwrap().is_empty() && settings.database.tls_files().unwrap().is_empty());
    assert_eq!((settings.broker.management_url, settings.ops.listen), (None, None));
    assert_eq!(settings.egress.canary().unwrap(), None);
    assert_eq!(settings.retry.schedule, domain::RetrySchedule::default());
}

#[test]
fn history_is_kept_for_two_days_at_least() {
    assert!(load(&[("WEBHOOKS__RETENTION__KEEP", "2days")]).is_ok());
    for setting in ["KEEP", "BODIES"] {
        assert!(refusal(&format!("WEBHOOKS__RETENTION__{setting}"), "47h").contains("at least 2days"), "{setting}");
    }
    assert!(refusal("WEBHOOKS__RETENTION__KEEP", "101years").contains("at most 100years"));
    assert!(refusal("WEBHOOKS__RECONCILE__INTERVAL", "0s").contains("longer than zero"));
}

#[test]
fn bodies_are_kept_no_longer_than_the_log() {
    let days = |days: u64| Duration::from_secs(days * 24 * 60 * 60);
    for (bodies, expected) in [("7days", 7), ("30days", 30), ("31days", 30)] {
        let settings = load(&[("WEBHOOKS__RETENTION__BODIES", bodies)]).unwrap();
        let kept = settings.retention.kept();
        assert_eq!((kept.log, kept.bodies), (days(30), days(expected)), "{bodies}");
    }
}

/// One setting of each kind. The others are read in the same ways, by the names of their fields.
#[test]
fn every_kind_of_setting_can_come_from_the_environment() {
    let settings = load(&[
        ("WEBHOOKS__DATABASE__PASSWORD_FILE", "/run/database"),
        ("WEBHOOKS__BROKER__PREFIX", "test-7.a_b"),
        ("WEBHOOKS__API__LISTEN", "[::1]:0"),
        ("WEBHOOKS__API__SESSIONS", "introspection"),
        ("WEBHOOKS__API__INTROSPECTION_URL", "http://app.internal:8000/session?for=webhooks"),
        ("WEBHOOKS__API__INTROSPECTION_CACHE", "0s"),
        ("WEBHOOKS__OPS__LISTEN", "0.0.0.0:9100"),
        ("WEBHOOKS__SIGNING__STANDARD_WEBHOOKS", "false"),
        ("WEBHOOKS__RETRY__SCHEDULE", "500ms, 2s"),
        ("WEBHOOKS__EGRESS__DENIED_NETWORKS", "127.0.1.0/24"),
        ("WEBHOOKS__EGRESS__ALLOWED_NETWORKS", "127.0.0.0/8, fd00::/8"),
        ("WEBHOOKS__EGRESS__ALLOWED_PORTS", "443, 10000-20000"),
        ("WEBHOOKS__EGRESS__DENIED_HOST_SUFFIXES", "internal.example, .Corp.example"),
        ("WEBHOOKS__EGRESS__NAME_SERVERS", "127.0.0.1:53, [::1]:5353"),
        ("WEBHOOKS__EGRESS__CANARY_URL", "https://127.0.0.1/"),
        ("WEBHOOKS__EGRESS__IDLE_TIMEOUT", "1m 30s"),
        ("WEBHOOKS__EGRESS__MAX_IDLE_PER_HOST", "0"),
        ("WEBHOOKS__DISPATCHER__MAX_IN_FLIGHT", "65535"),
        ("WEBHOOKS__DISPATCHER__TENANT_SHARE", "1"),
        ("WEBHOOKS__LIMITS__EVENT_DATA_BYTES", "14"),
        ("WEBHOOKS__LOG__FORMAT", "json"),
        ("WEBHOOKS__LOG__LEVEL", "warn,egress=trace"),
    ])
    .unwrap();
    assert_eq!(settings.database.password_file, Some("/run/database".into()));
    assert_eq!(settings.broker.prefix, "test-7.a_b");
    assert_eq!(settings.api.listen, "[::1]:0".parse().unwrap());
    assert_eq!(settings.api.sessions, SessionBackEnd::Introspection);
    assert_eq!(settings.introspection_url().unwrap().as_str(), "http://app.internal:8000/session?for=webhooks");
    assert_eq!(settings.api.introspection_cache, Duration::ZERO);
    assert_eq!(settings.ops.listen, Some("0.0.0.0:9100".parse().unwrap()));
    assert!(!settings.signing.standard_webhooks);
    assert_eq!(settings.retry.schedule, "500ms,2s".parse().unwrap());
    let networks = ["127.0.0.0/8", "fd00::/8"].map(|network| network.parse().unwrap());
    assert_eq!(settings.egress.allowed_networks, networks);
    assert_eq!(settings.egress.name_servers, ["127.0.0.1:53", "[::1]:5353"].map(|server| server.parse().unwrap()));
    assert_eq!(settings.egress.canary().unwrap().unwrap().as_str(), "https://127.0.0.1/");
    let address_policy = settings.egress.address_policy();
    assert!(address_policy.check_port(8443).is_err() && address_policy.check_host("a.corp.example").is_err());
    assert!(address_policy.check_address("127.0.0.1".parse().unwrap()).is_ok());
    assert!(address_policy.check_address("127.0.1.1".parse().unwrap()).is_err());
    assert_eq!((settings.egress.idle_timeout, settings.egress.max_idle_per_host), (Duration::from_secs(90), 0));
    assert_eq!((settings.dispatcher.max_in_flight, settings.dispatcher.tenant_share), (65_535, 1.0));
    assert_eq!(settings.limits.event_data_bytes, 14);
    assert_eq!((settings.log.format, settings.log.level.as_str()), (LogFormat::Json, "warn,egress=trace"));
}

#[test]
fn the_environment_wins_over_the_file_and_the_file_over_the_defaults() {
    let file = SettingsFile::new("[dispatcher]\nmax_in_flight = 5\nbatch = 6\n[broker]\nurl = 'amqp://file'\n");
    let settings = file.load(&[("WEBHOOKS__DISPATCHER__BATCH", "7")]).unwrap();
    assert_eq!(settings.dispatcher.max_in_flight, 5, "from the file");
    assert_eq!(settings.dispatcher.batch, 7, "from the environment");
    assert_eq!(settings.broker.url.expose(), BROKER.1, "from the environment");
    assert_eq!(settings.ingest.batch, 256, "by default");
}

#[test]
fn a_bad_value_is_refused_with_its_key_and_itself() {
    let cases = [
        ("egress.timeout", "10 parsecs", "duration"),
        ("egress.timeout", "0s", "duration"),
        ("egress.timeout", "", "duration"),
        ("egress.idle_timeout", "0s", "duration"),
        ("broker.confirm_timeout", "0ms", "duration"),
        ("shutdown.deadline", "25", "duration"),
        ("database.max_connections", "0", "number"),
        ("database.max_connections", "yes", "number"),
        ("database.max_connections", "-1", "number"),
        ("dispatcher.max_in_flight", "0", "number"),
        ("dispatcher.max_in_flight", "65536", "number"),
        ("dispatcher.slow_in_flight", "0", "number"),
        ("dispatcher.webhook_share", "0", "fraction"),
        ("dispatcher.webhook_share", "1.01", "fraction"),
        ("dispatcher.tenant_share", "NaN", "fraction"),
        ("dispatcher.batch", "2.5", "number"),
        ("ingest.batch", "many", "number"),
        ("egress.max_idle_per_host", "few", "number"),
        ("limits.name_chars", "0", "number"),
        ("limits.url_chars", "0", "number"),
        ("limits.request_body_bytes", "64k", "number"),
        ("limits.webhooks_per_tenant", "0", "number"),
        ("limits.event_data_bytes", "0", "number"),
        ("broker.prefix", "", "prefix"),
        ("broker.prefix", "web hooks", "prefix"),
        ("broker.prefix", &"x".repeat(65), "prefix"),
        ("broker.events_exchange", "", "exchange"),
        ("api.listen", "localhost", "address"),
        ("api.introspection_timeout", "0s", "duration"),
        ("api.introspection_cache", "10", "duration"),
        ("api.rate_limit_per_minute", "-1", "number"),
        ("api.rate_limit_burst", "0", "number"),
        ("ops.listen", "9090", "address"),
        ("signing.standard_webhooks", "yes", "value"),
        ("traces.sample_ratio", "1.01", "ratio"),
        ("traces.sample_ratio", "NaN", "ratio"),
        ("traces.timeout", "0s", "duration"),
        ("retry.schedule", "5m,60s", "value"),
        ("retry.schedule", "", "value"),
        ("egress.denied_networks", "203.0.112.7", "networks"),
        ("egress.allowed_networks", "10.0.0.0/8,nowhere", "networks"),
        ("egress.allowed_ports", "443,0", "value"),
        ("egress.denied_host_suffixes", "a.example,*.example", "value"),
        ("egress.name_servers", "127.0.0.1", "addresses"),
        ("egress.name_servers", "127.0.0.1:53,ns.example:53", "addresses"),
    ];
    for (key, value, what) in cases {
        let name = format!("WEBHOOKS__{}", key.to_uppercase().replace('.', "__"));
        let beginning = format!("{key} ({name}): invalid {what} {value:?}: ");
        let said = refusal(&name, value);
        assert!(said.strip_prefix(&beginning).is_some_and(|why| !why.is_empty()), "{said}");
    }
}

#[test]
fn files_of_tls_are_those_of_their_section_and_a_certificate_needs_its_key() {
    for section in ["DATABASE", "BROKER"] {
        let [ca, certificate, key] =
            ["CA_FILE", "CLIENT_CERTIFICATE", "CLIENT_KEY"].map(|name| format!("WEBHOOKS__{section}__{name}"));
        let files = |set: &[(&str, &str)]| {
            let settings = load(set).unwrap();
            let (database, broker) = (settings.database.tls_files(), settings.broker.tls_files());
            if section == "DATABASE" { (database, broker.unwrap()) } else { (broker, database.unwrap()) }
        };
        let (set, others) = files(&[(&ca, "/ca.pem"), (&certificate, "/c.pem"), (&key, "/c.key")]);
        let set = set.unwrap();
        let identity = set.identity.unwrap();
        assert_eq!(set.authorities, Some("/ca.pem".into()));
        assert_eq!([identity.certificate, identity.key], ["/c.pem", "/c.key"].map(PathBuf::from));
        assert!(others.is_empty());
        for (alone, missing) in [(&certificate, &key), (&key, &certificate)] {
            let (refused, _) = files(&[(alone, "/a.pem")]);
            let said = refused.unwrap_err().to_string();
            assert!(said.ends_with(&format!("({missing}) is not set")), "{said}");
        }
    }
}

#[test]
fn an_unknown_log_format_is_refused_with_those_there_are() {
    let said = refusal("WEBHOOKS__LOG__FORMAT", "xml");
    assert_eq!(said, "log.format (WEBHOOKS__LOG__FORMAT): unknown variant `xml`, expected `text` or `json`");
}

#[test]
fn a_public_url_has_no_path_and_a_log_in_page_needs_one() {
    let variable = "WEBHOOKS__CONSOLE__PUBLIC_URL";
    for bad in
        ["https://hooks.example.com/webhooks", "https://hooks.example.com/webhooks/", "https://hooks.example.com/?a"]
    {
        let said = refusal(variable, bad);
        assert!(said.starts_with(&format!("console.public_url ({variable}): invalid URL: expected only")), "{said}");
    }
    let login = ("WEBHOOKS__CONSOLE__LOGIN_URL", "https://app.example.com/log-in");
    for (set, expected) in [
        (&[][..], Ok(None)),
        (&[(variable, "https://hooks.example.com:8443")], Ok(None)),
        (&[login, (variable, "https://hooks.example.com/")], Ok(Some("https://hooks.example.com/".to_owned()))),
        (
            &[login],
            Err(format!("console.login_url ({}): set console.public_url too, the way back from the log-in", login.0)),
        ),
    ] {
        let console = load(set).unwrap().console;
        let way_back = console.log_in().map(|both| both.map(|(_, public)| public.to_string()));
        assert_eq!(way_back.map_err(|error| error.to_string()), expected);
    }
}

#[test]
fn an_introspection_url_is_of_http_or_https_and_its_credentials_are_not_shown() {
    let key = "api.introspection_url (WEBHOOKS__API__INTROSPECTION_URL)";
    for (value, why) in [
        ("nowhere", "relative URL without a base"),
        ("ftp://app/", "expected http or https"),
        ("http://user:hunter2@app/", "it must not hold a user or a password"),
        ("https://hunter2@app/", "it must not hold a user or a password"),
        ("http://:hunter2@[app/", "invalid IPv6 address"),
    ] {
        assert_eq!(refusal("WEBHOOKS__API__INTROSPECTION_URL", value), format!("{key}: invalid URL: {why}"));
    }
    for unset in [load(&[]), load(&[("WEBHOOKS__API__INTROSPECTION_URL", "")])] {
        assert_eq!(unset.unwrap().introspection_url().unwrap_err().to_string(), format!("{key} is not set"));
    }
    let said = refusal("WEBHOOKS__API__SESSIONS", "cookies");
    let expected = "unknown variant `cookies`, expected `database` or `introspection`";
    assert_eq!(said, format!("api.sessions (WEBHOOKS__API__SESSIONS): {expected}"));
}

#[test]
fn traces_are_off_until_they_have_an_endpoint() {
    let off = load(&[("WEBHOOKS__TRACES__ENDPOINT", ""), ("WEBHOOKS__TRACES__HEADERS", "")]).unwrap().traces;
    assert!(off.endpoint.is_none() && off.headers.is_none());
    let on = load(&[
        ("WEBHOOKS__TRACES__ENDPOINT", "https://collector.example:4318"),
        ("WEBHOOKS__TRACES__HEADERS", "authorization=Bearer%20hunter2"),
        ("WEBHOOKS__TRACES__SAMPLE_RATIO", "0.25"),
        ("WEBHOOKS__TRACES__TIMEOUT", "3s"),
    ])
    .unwrap();
    assert!(!format!("{on:?}").contains("hunter2"));
    assert_eq!(on.traces.endpoint.unwrap().as_str(), "https://collector.example:4318/");
    assert_eq!(on.traces.headers.unwrap().expose(), "authorization=Bearer%20hunter2");
    assert_eq!((on.traces.sample_ratio, on.traces.timeout), (0.25, Duration::from_secs(3)));
    let key = "traces.endpoint (WEBHOOKS__TRACES__ENDPOINT)";
    for (value, why) in [("collector:4318", "expected http or https"), ("collector", "relative URL without a base")] {
        assert_eq!(refusal("WEBHOOKS__TRACES__ENDPOINT", value), format!("{key}: invalid URL: {why}"));
    }
}

#[test]
fn an_unknown_key_is_refused_with_those_there_are() {
    let said = "dispatcher.max_in_fliht (WEBHOOKS__DISPATCHER__MAX_IN_FLIHT): unknown; \
                known here: max_in_flight, slow_in_flight, webhook_share, tenant_share, batch";
    assert_eq!(refusal("WEBHOOKS__DISPATCHER__MAX_IN_FLIHT", "1"), said);
    let file = SettingsFile::new("[dispatcher]\nmax_in_fliht = 1\n");
    assert_eq!(file.load(&[]).unwrap_err().to_string(), said);
}

#[test]
fn an_unknown_section_is_refused_with_those_there_are() {
    let beginning = "dispatchr (WEBHOOKS__DISPATCHR__*): unknown; known here: database, broker, api, ";
    let said = refusal("WEBHOOKS__DISPATCHR__BATCH", "1");
    assert!(said.starts_with(beginning), "{said}");
    for text in ["[dispatchr]\nbatch = 1\n", "dispatchr = 1\n"] {
        let said = SettingsFile::new(text).load(&[]).unwrap_err().to_string();
        assert!(said.starts_with(beginning), "{said}");
    }
}

#[test]
fn a_required_setting_that_is_missing_is_named() {
    for name in [DATABASE.0, BROKER.0] {
        let mut env = env(&[]);
        env.remove(name);
        let error = Settings::from_sources(None, env).unwrap_err();
        assert!(matches!(error, SettingsError::Missing { .. }), "{error:?}");
        let key = name.trim_start_matches("WEBHOOKS__").to_lowercase().replace("__", ".");
        assert_eq!(error.to_string(), format!("{key} ({name}) is not set"));
        assert_eq!(refusal(name, ""), format!("{key} ({name}): must not be empty"));
    }
}

#[test]
fn all_required_settings_that_are_missing_are_named_together_before_other_faults() {
    let of = |more: &[(&str, &str)]| {
        let variables = more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Settings::from_sources(None, variables.collect()).unwrap_err().to_string()
    };
    let both = "broker.url (WEBHOOKS__BROKER__URL) and database.url (WEBHOOKS__DATABASE__URL) are not set";
    assert_eq!(of(&[]), both);
    assert_eq!(of(&[("WEBHOOKS__LOG__FORMAT", "xml")]), both);
    let keys = ["a.one", "a.two", "a.three"].map(SettingsError::missing);
    let keys = keys.into_iter().flat_map(|error| match error {
        SettingsError::Missing { keys } => keys,
        other => panic!("{other}"),
    });
    let three = "a.one (WEBHOOKS__A__ONE), a.two (WEBHOOKS__A__TWO) and a.three (WEBHOOKS__A__THREE) are not set";
    assert_eq!(SettingsError::Missing { keys: keys.collect() }.to_string(), three);
}

#[test]
fn an_empty_variable_unsets_an_optional_setting() {
    for settings in [load(&[]), load(&[("WEBHOOKS__SECRETS__KEYS", "")])] {
        let error = settings.unwrap().secret_keys().unwrap_err();
        assert_eq!(error.to_string(), "secrets.keys (WEBHOOKS__SECRETS__KEYS) is not set");
    }
    let file = SettingsFile::new(
        "ops = { listen = '127.0.0.1:1' }\nsecrets = { keys = 'a:b' }\n\
         [egress]\nextra_ca_file = '/ca.pem'\nallowed_networks = '10.0.0.0/8'\n",
    );
    let set = file.load(&[]).unwrap();
    assert!(set.ops.listen.is_some() && set.egress.extra_ca_file.is_some() && set.secrets.keys.is_some());
    assert_eq!(set.egress.allowed_networks.len(), 1);
    let unset = file
        .load(&[
            ("WEBHOOKS__OPS__LISTEN", ""),
            ("WEBHOOKS__SECRETS__KEYS", ""),
            ("WEBHOOKS__EGRESS__EXTRA_CA_FILE", ""),
            ("WEBHOOKS__EGRESS__ALLOWED_NETWORKS", ""),
        ])
        .unwrap();
    assert!(unset.ops.listen.is_none() && unset.egress.extra_ca_file.is_none() && unset.secrets.keys.is_none());
    assert_eq!(unset.egress.allowed_networks, []);
}

#[test]
fn text_that_looks_like_a_number_stays_text() {
    let settings = load(&[("WEBHOOKS__BROKER__PREFIX", "0042"), ("WEBHOOKS__SECRETS__KEYS", "1e3")]).unwrap();
    assert_eq!(settings.broker.prefix, "0042");
    assert_eq!(settings.secret_keys().unwrap(), "1e3");
}

#[test]
fn a_variable_that_only_looks_like_a_setting_is_refused() {
    let names =
        ["WEBHOOKS__DATABASE", "WEBHOOKS__A__B__C", "WEBHOOKS__broker__prefix", "WEBHOOKS____URL", "WEBHOOKS__"];
    for name in names {
        let said = refusal(name, "hunter2");
        let reason = "a setting is written WEBHOOKS__SECTION__KEY, in upper case";
        assert_eq!(said, format!("environment variable {name}: {reason}"));
    }
}

#[test]
fn other_variables_are_none_of_our_business() {
    let others = ["WEBHOOKS_CONFIG", "WEBHOOKS_SERVICE_HOST", "webhooks__broker__prefix", "PATH"];
    let settings = load(&others.map(|name| (name, "nonsense"))).unwrap();
    assert_eq!(settings.broker.prefix, "webhooks");
}

#[test]
fn a_section_in_the_place_of_a_value_is_refused_and_the_reverse() {
    let nested = SettingsFile::new("[broker.prefix]\nfirst = 'x'\n").load(&[]).unwrap_err().to_string();
    assert_eq!(nested, "broker.prefix (WEBHOOKS__BROKER__PREFIX): expected a value, found a section");
    let list = SettingsFile::new("[retry]\nschedule = ['1s', '2s']\n").load(&[]).unwrap_err().to_string();
    assert!(list.starts_with("retry.schedule (WEBHOOKS__RETRY__SCHEDULE): expected a value, found a list"), "{list}");
    let flat = SettingsFile::new("log = 'json'\n").load(&[]).unwrap_err().to_string();
    assert_eq!(flat, "log (WEBHOOKS__LOG__*): is a section and has no value of its own");
}

#[test]
fn a_settings_file_that_cannot_be_read_is_named() {
    let path = std::env::temp_dir().join("service-kit-no-such-file.toml");
    let error = Settings::from_sources(Some(&path), env(&[])).unwrap_err();
    assert_eq!(error.to_string(), format!("settings file {} (WEBHOOKS_CONFIG) cannot be read", path.display()));
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn a_malformed_settings_file_is_named_with_the_line_and_without_its_text() {
    let file = SettingsFile::new("[database]\nmax_connections = 1\nurl = \"postgres://app:hunter2@db\n");
    let error = file.load(&[]).unwrap_err();
    let beginning = format!("settings file {} (WEBHOOKS_CONFIG): is not valid TOML: line 3: ", file.0.display());
    assert!(error.to_string().strip_prefix(&beginning).is_some_and(|why| !why.is_empty()), "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
}

#[test]
fn a_sensitive_value_is_never_shown() {
    let settings = load(&[("WEBHOOKS__SECRETS__KEYS", "k1:hunter2")]).unwrap();
    let shown = format!("{settings:?} {settings:#?}");
    assert!(shown.contains("<redacted>") && !shown.contains("hunter2"), "{shown}");
    for text in ["[database]\nurl = ['hunter2']\n", "[secrets]\nkeys = { hunter2 = 'hunter2' }\n"] {
        let file = SettingsFile::new(text);
        let error = Settings::from_sources(Some(&file.0), HashMap::new()).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
}

/// Operators read `defaults.toml`, so it must list every key.
#[test]
fn the_list_of_settings_is_complete() {
    let listed = include_str!("../src/settings/defaults.toml");
    let sections: Vec<_> = listed.split("\n[").skip(1).map(|text| text.split_once(']').unwrap()).collect();
    assert_eq!(sections.len(), 18);
    for (section, text) in sections {
        let name = format!("WEBHOOKS__{}__SURPRISE", section.to_uppercase());
        let said = refusal(&name, "1");
        let beginning = format!("{section}.surprise ({name}): unknown; known here: ");
        let known = said.strip_prefix(&beginning).unwrap();
        for key in known.split(", ") {
            let is_listed = |line: &str| line.trim_start_matches("# ").starts_with(&format!("{key} ="));
            assert!(text.lines().any(is_listed), "{section}.{key}");
        }
    }
}
