//! The contracts of messages (`proto-schemas`), as they are served and kept.

use std::{collections::BTreeSet, fs, path::PathBuf};

use bytes::Bytes;
use domain::EventType;
use end_to_end::{
    events::Event,
    receiver::{Received, always, verify},
    servers::repository,
    system::{Subscriber, TestSystem},
    wait::SOON,
};
use serde_json::Value;
use time::OffsetDateTime;

fn contracts() -> PathBuf {
    repository().join("proto-schemas")
}

/// The text of a file of the contracts.
pub(crate) fn file(name: &str) -> String {
    fs::read_to_string(contracts().join(name)).unwrap()
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// Every schema of the contracts.
pub(crate) const SCHEMAS: [&str; 4] =
    ["event.schema.json", "envelope.schema.json", "notice.schema.json", "job.schema.json"];

#[test]
fn every_schema_is_served_and_the_version_has_an_entry() {
    let files = fs::read_dir(contracts()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let schemas: BTreeSet<_> = files.filter(|name| name.ends_with(".schema.json")).collect();
    assert_eq!(schemas, SCHEMAS.map(str::to_owned).into(), "SCHEMAS names every schema");
    let asyncapi = yaml(&file("asyncapi.yaml"));
    let entry = format!("## {}\n", asyncapi["info"]["version"].as_str().unwrap());
    assert!(file("CHANGES.md").contains(&entry), "CHANGES.md has no entry {}", entry.trim());
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
    let system = TestSystem::shared().await;
    let page = system.anonymous().await.get("/api/v1/docs/").await.text;
    let vectors: Value = serde_json::from_str(&file("signatures.json")).unwrap();
    let secret = vectors[0]["signing_secret"].as_str().unwrap();
    assert!(page.contains(secret));
    let shown = shown(&page);
    let types: Vec<_> = shown.iter().map(|one| one.header("x-service-event").unwrap()).collect();
    assert_eq!(types, EventType::ALL.map(EventType::as_str));
    for one in &shown {
        verify(one, secret).unwrap();
        assert_eq!(one.header("content-length"), Some(one.body.len().to_string().as_str()));
    }

    let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    let real = receiver.wait_for(1, SOON).await.remove(0);
    let names = |received: &Received| {
        let mut names: Vec<_> = received.headers.iter().map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names(&shown[0]), names(&real), "the page shows every header");
    assert_eq!(shown[0].header("user-agent"), real.header("user-agent"));
}
