//! The contracts of messages against their last release (`proto-schemas/CHANGES.md`).
mod breaking;
mod channels;

use std::{collections::BTreeSet, fs, path::PathBuf};

use bytes::Bytes;
use domain::EventType;
use end_to_end::{
    events::Event,
    receiver::{Received, Receiver, always, verify},
    servers::repository,
    system::System,
    wait::SOON,
};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use breaking::{Role, in_schema};
use channels::in_asyncapi;

fn contracts() -> PathBuf {
    repository().join("proto-schemas")
}

/// A file as it is now, and as it was released.
fn both(file: &str) -> [String; 2] {
    ["", "released"].map(|folder| fs::read_to_string(contracts().join(folder).join(file)).unwrap())
}

/// The schemas of a folder.
fn names(folder: &str) -> BTreeSet<String> {
    let files = fs::read_dir(contracts().join(folder)).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".schema.json")).collect()
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn version(asyncapi: &Value) -> (u32, u32, u32) {
    let parts: Vec<_> =
        asyncapi["info"]["version"].as_str().unwrap().split('.').map(|part| part.parse().unwrap()).collect();
    (parts[0], parts[1], parts[2])
}

const SCHEMAS: [(&str, Role); 4] = [
    ("event.schema.json", Role::Received),
    ("envelope.schema.json", Role::Sent),
    ("notice.schema.json", Role::Sent),
    // Dispatchers of two versions exchange jobs during an upgrade.
    ("job.schema.json", Role::Both),
];

#[test]
fn a_breaking_change_is_declared_and_every_change_has_a_version() {
    let [now, released] = both("asyncapi.yaml");
    let mut is_changed = now != released;
    let (now, released) = (yaml(&now), yaml(&released));
    let mut breaking = in_asyncapi(&released, &now);
    for (file, role) in SCHEMAS {
        let [now, released] = both(file);
        is_changed |= now != released;
        let (now, released): (Value, Value) =
            (serde_json::from_str(&now).unwrap(), serde_json::from_str(&released).unwrap());
        breaking.extend(in_schema(&released, &now, role).into_iter().map(|change| format!("{file}: {change}")));
    }
    let (version, before) = (version(&now), version(&released));
    assert!(version > before || !is_changed, "files are changed: raise info.version of asyncapi.yaml above {before:?}");
    let entry = format!("## {}\n", now["info"]["version"].as_str().unwrap());
    let changes = fs::read_to_string(contracts().join("CHANGES.md")).unwrap();
    let is_declared = version.0 > before.0 && changes.contains(&entry);
    assert!(
        breaking.is_empty() || is_declared,
        "breaking changes need the next major version, and an entry in CHANGES.md: {breaking:#?}"
    );
    assert!(names("released").is_subset(&names("")), "a released schema is gone");
    assert_eq!(names(""), SCHEMAS.map(|(name, _)| name.to_owned()).into(), "SCHEMAS names every schema");
    assert!(version.0 == before.0 || changes.contains(&entry), "CHANGES.md says nothing of {}", entry.trim());
}

/// The requests of the page, each as a receiver would get it at the time of its signature.
fn shown(page: &str) -> Vec<Received> {
    let section = page.split("<section id=\"posts\">").nth(1).unwrap().split("</section>").next().unwrap();
    let requests = section.split("<pre tabindex=\"0\">").skip(1).map(|rest| rest.split("</pre>").next().unwrap());
    let plain = requests
        .map(|html| html.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&"));
    let read = |text: String| {
        let (head, body) = text.split_once("\n\n").unwrap();
        let mut lines = head.lines();
        assert_eq!(lines.next(), Some("POST /hooks HTTP/1.1"));
        let headers: Vec<_> = lines.map(|line| line.split_once(": ").unwrap()).collect();
        let headers: Vec<_> =
            headers.into_iter().map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
        let signed_at = headers.iter().find(|(name, _)| name == "webhook-timestamp").unwrap().1.parse().unwrap();
        let at = OffsetDateTime::from_unix_timestamp(signed_at).unwrap();
        let body = Bytes::from(body.to_owned());
        Received { at, method: "POST".to_owned(), path: "/hooks".to_owned(), headers, body, status: 200 }
    };
    plain.map(read).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_shows_what_a_receiver_gets_and_its_signatures_verify() {
    System::shared(async |system| {
        let page = system.anonymous().await.get("/api/v1/docs/").await.text;
        let vectors = fs::read_to_string(contracts().join("signatures.json")).unwrap();
        let vectors: Value = serde_json::from_str(&vectors).unwrap();
        let secret = vectors[0]["signing_secret"].as_str().unwrap();
        assert!(page.contains(secret));
        let shown = shown(&page);
        let types: Vec<_> = shown.iter().map(|one| one.header("x-service-event").unwrap()).collect();
        assert_eq!(types, EventType::ALL.map(EventType::as_str));
        for one in &shown {
            verify(one, secret).unwrap();
            assert_eq!(one.header("content-length"), Some(one.body.len().to_string().as_str()));
        }

        let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
        system.admin(tenant).await.create(&receiver.url("/hooks"), &["quote.closed"]).await;
        system.upstream.publish(&[Event::now(EventType::QuoteClosed, tenant)]).await;
        let real = receiver.wait_for(1, SOON).await.remove(0);
        let names = |received: &Received| {
            let mut names: Vec<_> = received.headers.iter().map(|(name, _)| name.clone()).collect();
            names.sort_unstable();
            names
        };
        assert_eq!(names(&shown[0]), names(&real), "the page shows every header");
        assert_eq!(shown[0].header("user-agent"), real.header("user-agent"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_serves_the_contracts() {
    System::shared(async |system| {
        let api = system.anonymous().await;
        for (file, _) in SCHEMAS {
            let served = api.get(&format!("/api/v1/schemas/{file}")).await;
            assert_eq!((served.status, served.text), (200, both(file)[0].clone()), "{file}");
        }
        let served = yaml(&api.get("/api/v1/asyncapi.yaml").await.text);
        let payload = served["components"]["messages"]["event"]["payload"]["$ref"].as_str();
        assert_eq!(payload, Some("./schemas/event.schema.json"));
        let unknown = api.get("/api/v1/schemas/other.schema.json").await;
        assert_eq!((unknown.status, unknown.json()["code"].as_str()), (404, Some("not_found")));
    })
    .await;
}
