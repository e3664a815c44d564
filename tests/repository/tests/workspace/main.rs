//! The workspace keeps its shape: which crate depends on which, which crate may name which library, and what the
//! contracts of `proto-schemas` say.
#![expect(clippy::unwrap_used, reason = "all of this file is tests; clippy sees that of the test functions only")]

mod build;
mod circles;
mod pages;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use cargo_metadata::{Dependency, DependencyKind, Metadata, MetadataCommand, Package, PackageId};

/// These packages play the outsiders (broker clients, receivers, operators), so they may depend on everything.
const OUTSIDERS: [&str; 2] = ["end-to-end", "programs"];

/// These tests.
const REPOSITORY: &str = "repository";

/// Returns whether a package is a crate of the product.
fn is_product(package: &Package) -> bool {
    let name = package.name.as_str();
    !OUTSIDERS.contains(&name) && name != REPOSITORY
}

/// The crates of ours that each crate may depend on (crates/README.md, dependencies). No service depends on another.
const ALLOWED: [(&str, &[&str]); 15] = [
    ("domain", &[]),
    ("signing", &[]),
    ("ledger", &["domain", "signing", "tls"]),
    ("broker", &["domain", "tls"]),
    ("tls", &[]),
    ("egress", &["domain", "tls"]),
    ("traces", &["domain", "egress"]),
    ("service-kit", &["broker", "domain", "ledger", "tls", "traces"]),
    ("console", &["domain", "ledger"]),
    ("api-service", &["broker", "console", "domain", "egress", "ledger", "service-kit", "signing", "traces"]),
    ("upkeep", &["broker", "domain", "ledger"]),
    ("event-ingest", &["broker", "domain", "ledger", "service-kit", "traces", "upkeep"]),
    ("dispatcher", &["broker", "domain", "egress", "ledger", "service-kit", "signing", "traces"]),
    ("model", &["domain"]),
    ("webhookctl", &["broker", "domain", "egress", "ledger", "service-kit", "signing", "tls"]),
];

/// Libraries, and the one crate that may name each.
const OWNERS: [(&str, &str); 23] = [
    ("diesel", "ledger"),
    ("diesel-async", "ledger"),
    ("diesel_migrations", "ledger"),
    ("tokio-postgres", "ledger"),
    ("tokio-postgres-rustls", "ledger"),
    ("backon", "broker"),
    ("lapin", "broker"),
    ("async-rs", "broker"),
    ("actix-web", "api-service"),
    ("maud", "console"),
    ("encoding_rs", "egress"),
    ("hickory-resolver", "egress"),
    ("hyper-rustls", "egress"),
    ("opentelemetry", "traces"),
    ("opentelemetry-http", "traces"),
    ("opentelemetry-otlp", "traces"),
    ("opentelemetry_sdk", "traces"),
    ("rustls", "tls"),
    ("rustls-pki-types", "tls"),
    ("rustls-native-certs", "tls"),
    ("rustls-webpki", "tls"),
    ("tokio-rustls", "tls"),
    ("webpki-roots", "tls"),
];

/// One TLS stack (rustls on ring), no C library of PostgreSQL, one library for time.
const BANNED: [&str; 7] = ["openssl-sys", "native-tls", "aws-lc-sys", "aws-lc-rs", "pq-sys", "chrono", "openssl"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads what `cargo build` has resolved here. Never reads the network or writes the lock file.
fn command() -> MetadataCommand {
    let mut command = MetadataCommand::new();
    command.manifest_path(root().join("Cargo.toml")).other_options(vec!["--frozen".to_owned()]);
    command
}

fn ours() -> Metadata {
    command().no_deps().exec().unwrap()
}

fn whole_graph() -> Metadata {
    let version = Command::new(env!("CARGO")).arg("-vV").output().unwrap().stdout;
    let version = String::from_utf8(version).unwrap();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let options = ["--frozen", "--filter-platform", host].map(str::to_owned);
    command().other_options(options).exec().unwrap()
}

/// Dependencies that are compiled into the crate itself. Its tests may use more.
fn shipped(package: &Package) -> impl Iterator<Item = &Dependency> {
    package.dependencies.iter().filter(|dependency| dependency.kind != DependencyKind::Development)
}

#[test]
fn our_crates_depend_on_one_another_as_designed() {
    let allowed: HashMap<_, _> = ALLOWED.into_iter().collect();
    let mut faults = Vec::new();
    for package in ours().packages.iter().filter(|package| is_product(package)) {
        let Some(allowed) = allowed.get(package.name.as_str()) else {
            faults.push(format!("{} is not in the table of this test", package.name));
            continue;
        };
        let edges = package.dependencies.iter().filter(|dependency| dependency.path.is_some());
        let bad = edges.filter(|edge| !allowed.contains(&edge.name.as_str()));
        faults.extend(bad.map(|edge| format!("{} must not depend on {}", package.name, edge.name)));
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn every_foreign_thing_is_named_by_one_crate_only() {
    let mut faults = Vec::new();
    for package in ours().packages.iter().filter(|package| is_product(package)) {
        for dependency in shipped(package) {
            let owner = OWNERS.iter().find(|(thing, _)| *thing == dependency.name).map(|(_, owner)| *owner);
            let diesel = dependency.name.starts_with("diesel").then_some("ledger");
            // The ledger's columns have types of `domain`, which derive diesel's traits for it alone.
            let is_of_columns = package.name.as_str() == "domain" && dependency.name == "diesel" && dependency.optional;
            if let Some(owner) = owner.or(diesel).filter(|owner| *owner != package.name.as_str() && !is_of_columns) {
                faults.push(format!("{} names {}, which is for {owner}", package.name, dependency.name));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn only_egress_has_hypers_client() {
    let mut faults = Vec::new();
    for package in ours().packages.iter().filter(|package| is_product(package) && *package.name != "egress") {
        for dependency in
            shipped(package).filter(|dependency| ["hyper", "hyper-util"].contains(&dependency.name.as_str()))
        {
            let client = dependency.features.iter().any(|feature| feature.starts_with("client") || feature == "full");
            let server = dependency.features.iter().any(|feature| feature == "server");
            if client || !server {
                faults.push(format!("{}: {} {:?}", package.name, dependency.name, dependency.features));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// The text of every Rust file below a folder.
fn code_below(folder: &Path) -> String {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let text = |path: PathBuf| match path.extension() {
        Some(extension) if extension == "rs" => fs::read_to_string(&path).unwrap(),
        _ => code_below(&path),
    };
    entries.map(text).collect()
}

#[test]
fn every_dependency_is_named_in_the_code() {
    let mut unused = Vec::new();
    for package in &ours().packages {
        let folder = package.manifest_path.parent().unwrap();
        let code: String = ["src", "tests", "examples", "../proto-schemas/receivers", "../proto-schemas/publishers"]
            .iter()
            .map(|below| code_below(folder.join(below).as_std_path()))
            .collect();
        for dependency in &package.dependencies {
            let name = dependency.rename.as_ref().unwrap_or(&dependency.name).replace('-', "_");
            let names_it = |(at, _): (usize, &str)| {
                let (before, after) = (&code[..at], &code[at + name.len()..]);
                let is_whole = !before.ends_with(|last: char| last.is_alphanumeric() || last == '_' || last == ':');
                is_whole && ["::", ";", " as "].iter().any(|next| after.starts_with(next))
            };
            if !code.match_indices(&name).any(names_it) {
                unused.push(format!("{}: {}", package.name, dependency.name));
            }
        }
    }
    assert!(unused.is_empty(), "{unused:#?}");
}

/// Every package and the packages that need it.
fn dependants(metadata: &Metadata) -> BTreeMap<&PackageId, Vec<&PackageId>> {
    let mut dependants = BTreeMap::<_, Vec<_>>::new();
    for node in &metadata.resolve.as_ref().unwrap().nodes {
        dependants.entry(&node.id).or_default();
        for dependency in &node.dependencies {
            dependants.entry(dependency).or_default().push(&node.id);
        }
    }
    dependants
}

/// A chain of packages from the banned one up to one of ours.
fn path_to(metadata: &Metadata, banned: &PackageId, dependants: &BTreeMap<&PackageId, Vec<&PackageId>>) -> String {
    let mut paths = vec![vec![banned]];
    let mut seen = BTreeSet::new();
    let mut next = 0;
    while let Some(path) = paths.get(next).cloned() {
        next += 1;
        let Some(last) = path.last().filter(|last| seen.insert(**last)) else { continue };
        if metadata.workspace_members.contains(last) {
            let names: Vec<_> = path.iter().map(|id| metadata[*id].name.as_str()).collect();
            return names.join(" <- ");
        }
        paths.extend(dependants[*last].iter().map(|up| path.iter().copied().chain([*up]).collect()));
    }
    metadata[banned].name.to_string()
}

#[test]
fn nothing_that_we_ban_is_in_the_graph() {
    let metadata = whole_graph();
    let dependants = dependants(&metadata);
    assert!(dependants.len() > 100, "the graph has been read");
    let banned = dependants.keys().filter(|id| BANNED.contains(&metadata[**id].name.as_str()));
    let paths: Vec<_> = banned.map(|id| path_to(&metadata, id, &dependants)).collect();
    assert!(paths.is_empty(), "{paths:#?}; which feature asks for it: cargo tree -e features -i <the first name>");
}

#[test]
fn every_crate_inherits_the_lints_and_its_readme_says_what_it_owns() {
    let mut faults = Vec::new();
    for package in ours().packages {
        let dir = package.manifest_path.parent().unwrap();
        let manifest = fs::read_to_string(&package.manifest_path).unwrap();
        let lints = manifest.split_once("[lints]").map(|(_, rest)| rest.trim_start().starts_with("workspace = true"));
        if lints != Some(true) && !manifest.contains("lints.workspace = true") {
            faults.push(format!("{}: lints.workspace = true is missing", package.name));
        }
        match fs::read_to_string(dir.join("README.md")) {
            Ok(readme) if readme.contains("owns") && readme.contains("never") => {}
            Ok(_) => faults.push(format!("{}: README.md does not say what it owns and must never do", package.name)),
            Err(error) => faults.push(format!("{}: README.md: {error}", package.name)),
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

mod schemas {
    //! The files of `proto-schemas` against what `domain` makes and reads.

    use domain::{Event, EventType, Job, envelope};
    use jsonschema::Validator;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn text(file: &str) -> String {
        fs::read_to_string(root().join("proto-schemas").join(file)).unwrap()
    }

    fn schema(name: &str) -> Value {
        serde_json::from_str(&text(&format!("{name}.schema.json"))).unwrap()
    }

    fn validator(name: &str) -> Validator {
        jsonschema::options().should_validate_formats(true).build(&schema(name)).unwrap()
    }

    fn event(event_type: &str, timestamp: &str) -> Value {
        json!({
            "event_id": "0192f0c1-0000-7000-8000-000000000001",
            "event_type": event_type,
            "tenant_id": "5b0e0000-0000-4000-8000-000000000001",
            "timestamp": timestamp,
            "data": {"total": 1.5, "lines": []},
        })
    }

    fn delivered(event: &Value) -> Value {
        let message = serde_json::to_vec(event).unwrap();
        serde_json::from_slice(&envelope(&Event::parse(&message, 1000).unwrap())).unwrap()
    }

    /// The example with one member replaced, or removed where there is no replacement.
    fn with(example: &Value, member: &str, replacement: Option<Value>) -> Value {
        let mut changed = example.clone();
        let members = changed.as_object_mut().unwrap();
        match replacement {
            Some(value) => members.insert(member.to_owned(), value),
            None => members.remove(member),
        };
        changed
    }

    #[test]
    fn every_schema_is_valid_and_accepts_its_own_examples() {
        for name in ["event", "job", "envelope", "notice"] {
            let schema = schema(name);
            assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
            jsonschema::meta::validate(&schema).unwrap();
            let examples = schema["examples"].as_array().unwrap();
            assert!(!examples.is_empty());
            for example in examples {
                validator(name).validate(example).unwrap();
            }
        }
    }

    #[test]
    fn the_event_types_are_the_seven() {
        let seven: Vec<_> = EventType::ALL.into_iter().map(EventType::as_str).collect();
        for name in ["event", "envelope"] {
            assert_eq!(schema(name)["properties"]["event_type"]["enum"], json!(seven), "{name}");
        }
        for event_type in seven {
            assert!(text("asyncapi.yaml").contains(&format!("- {event_type}\n")), "{event_type}");
        }
    }

    #[test]
    fn the_seven_events_and_their_envelopes_are_accepted() {
        for event_type in EventType::ALL {
            let event = event(event_type.as_str(), "2026-03-01T10:30:00.123456+01:00");
            validator("event").validate(&event).unwrap();
            validator("event").validate(&with(&event, "more", Some(json!(1)))).unwrap();
            validator("envelope").validate(&delivered(&event)).unwrap();
        }
    }

    #[test]
    fn domain_and_the_schema_agree_on_what_is_an_event() {
        let (validator, example) = (validator("event"), event("quote.closed", "2026-03-01T09:30:00Z"));
        let members = ["event_id", "event_type", "tenant_id", "timestamp", "data"];
        let missing = members.map(|name| with(&example, name, None));
        let cases = [
            ("timestamp", json!("2026-03-01T09:30:00.123456789+05:45"), true),
            ("timestamp", json!("2026-03-01t09:30:00z"), true),
            ("timestamp", json!("2024-02-29T23:59:59-12:00"), true),
            ("event_id", json!("0192F0C1-0000-7000-8000-00000000000A"), true),
            ("event_id", json!(uuid::Uuid::nil()), true),
            ("data", json!({}), true),
            ("more", json!([null]), true),
            ("event_id", json!(7), false),
            ("event_id", json!("7"), false),
            ("event_type", json!(["quote.closed"]), false),
            ("event_type", json!("quote.reopened"), false),
            ("event_type", json!("QUOTE.CLOSED"), false),
            ("tenant_id", json!({}), false),
            ("tenant_id", json!("acme"), false),
            ("timestamp", json!(1_772_357_400), false),
            ("timestamp", json!("yesterday"), false),
            ("timestamp", json!("2026-03-01T09:30:00"), false),
            ("timestamp", json!("2026-02-30T09:30:00Z"), false),
            ("timestamp", json!("2026-03-01X09:30:00Z"), false),
            ("timestamp", json!("2026-03-01T09:30:00+0000"), false),
            ("data", json!([1]), false),
            ("data", json!("{}"), false),
            ("data", json!(null), false),
        ];
        let cases = cases.map(|(member, value, is_event)| (with(&example, member, Some(value)), is_event));
        for (event, is_event) in missing.into_iter().chain([json!([])]).map(|event| (event, false)).chain(cases) {
            assert_eq!(validator.is_valid(&event), is_event, "{event}");
            assert_eq!(Event::parse(&serde_json::to_vec(&event).unwrap(), 1000).is_ok(), is_event, "{event}");
        }
    }

    #[test]
    fn an_envelope_has_four_members_and_a_time_in_utc() {
        let validator = validator("envelope");
        let good = delivered(&event("quote.closed", "2026-03-01T09:30:00Z"));
        let mut bad: Vec<_> =
            ["event_type", "tenant_id", "timestamp", "data"].map(|name| with(&good, name, None)).into();
        bad.push(with(&good, "event_id", Some(json!("0192f0c1-0000-7000-8000-000000000001"))));
        bad.push(with(&good, "timestamp", Some(json!("2026-03-01T09:30:00+00:00"))));
        bad.push(with(&good, "timestamp", Some(json!("2026-02-30T09:30:00Z"))));
        bad.push(with(&good, "tenant_id", Some(json!("tenant"))));
        bad.push(with(&good, "event_type", Some(json!([]))));
        bad.push(with(&good, "data", Some(json!("{}"))));
        for envelope in bad {
            assert!(!validator.is_valid(&envelope), "{envelope}");
        }
    }

    #[test]
    fn a_job_is_a_reference_and_nothing_else() {
        let validator = validator("job");
        let job = Job { delivery: uuid::Uuid::from_u128(7).into(), attempt: 1 };
        let good: Value = serde_json::from_slice(&job.to_bytes()).unwrap();
        validator.validate(&good).unwrap();
        let several: Value = serde_json::from_slice(&Job::many_to_bytes(&[job, job])).unwrap();
        validator.validate(&several).unwrap();
        for bad in [
            with(&several, "v", Some(json!(1))),
            with(&several, "jobs", None),
            with(&several, "jobs", Some(json!([]))),
            with(&several, "jobs", Some(json!([good]))),
            with(&several, "attempt", Some(json!(1))),
            with(&good, "v", Some(json!(2))),
            with(&good, "v", None),
            with(&good, "delivery_id", Some(json!("7"))),
            with(&good, "delivery_id", None),
            with(&good, "attempt", Some(json!(0))),
            with(&good, "attempt", Some(json!(1.5))),
            with(&good, "attempt", Some(json!(65_536))),
            with(&good, "attempt", None),
            with(&good, "url", Some(json!("https://example.com/"))),
        ] {
            assert!(!validator.is_valid(&bad), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_jobs_are_accepted(id: u128, attempt in 1_u16.., jobs in 1_usize..10) {
            let job = Job { delivery: uuid::Uuid::from_u128(id).into(), attempt };
            let message: Value = serde_json::from_slice(&Job::many_to_bytes(&vec![job; jobs])).unwrap();
            prop_assert!(validator("job").is_valid(&message));
        }
    }

    #[test]
    fn the_test_vectors_of_both_signatures_are_what_we_sign_and_verify() {
        let vectors: Vec<Value> = serde_json::from_str(&text("signatures.json")).unwrap();
        assert!(vectors.len() >= 3);
        for vector in vectors {
            let part = |member: &str| vector[member].as_str().unwrap();
            let header = |name: &str| vector["headers"][name].as_str().unwrap();
            let secret = signing::SigningSecret::from(part("signing_secret").to_owned());
            let (id, body, timestamp) = (header("webhook-id"), part("body").as_bytes(), header("webhook-timestamp"));
            let t = timestamp.parse().unwrap();
            assert_eq!(signing::sign(&secret, body, t), header("X-Service-Signature"));
            assert_eq!(signing::sign_standard(&secret, id, t, body).unwrap(), header("webhook-signature"));
            signing::verify(&secret, header("X-Service-Signature"), body, t, 300).unwrap();
            let headers = signing::StandardHeaders { id, timestamp, signature: header("webhook-signature") };
            signing::verify_standard(&secret, headers, body, t, 300).unwrap();
        }
    }

    #[test]
    fn asyncapi_names_every_channel_and_header_and_refers_to_every_schema() {
        let asyncapi = text("asyncapi.yaml");
        for part in [
            "address: business.events\n",
            "address: webhooks.deliveries\n",
            "address: webhooks.deliveries.bulk\n",
            "address: webhooks.deliveries.slow\n",
            "address: webhooks.retry.{gap}\n",
            "address: webhooks.events.rejected\n",
            "address: webhooks.events.unreadable\n",
            "mandatory: true\n",
            "[x-rejected-reason, x-rejected-detail, x-rejected-at, x-rejected-routing-key]",
            "enum: [malformed_json, content_encoding, invalid_member, data_too_large, timestamp_out_of_range, panicked]",
            "[Content-Type, X-Service-Webhook-Id, X-Service-Event, X-Service-Event-Id, X-Service-Attempt, X-Service-Signature]",
            "          X-Service-Test:\n",
            "          webhook-id:\n",
            "          webhook-timestamp:\n",
            "          webhook-signature:\n",
        ] {
            assert!(asyncapi.contains(part), "{part}");
        }
        let gaps: Vec<_> = domain::RetrySchedule::default().gaps().into_iter().map(domain::gap_name).collect();
        assert!(asyncapi.contains(&format!("enum: ['{}']", gaps.join("', '"))), "{gaps:?}");
        let refers = asyncapi.lines().filter_map(|line| line.trim().strip_prefix("$ref: './")?.strip_suffix('\''));
        let files: BTreeSet<_> = refers.collect();
        assert_eq!(
            files,
            BTreeSet::from(["envelope.schema.json", "event.schema.json", "job.schema.json", "notice.schema.json"])
        );
    }
}
