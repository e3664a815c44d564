//! The operators' page of metrics says what there is.
pub(crate) mod sample;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use self::sample::{ask, read};

const PAGE: &str = include_str!("../../../deploy/metrics.md");

/// The metrics of the operators' page: name, type and labels.
pub(crate) fn described() -> BTreeMap<&'static str, (&'static str, BTreeSet<&'static str>)> {
    let rows = PAGE.lines().filter_map(|line| {
        let [_, name, kind, labels, meaning, _] = line.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            return None;
        };
        let is_ours = ["`webhooks_", "`process_"].iter().any(|start| name.starts_with(start));
        let name = name.strip_prefix('`').filter(|_| is_ours)?;
        let labels = labels.split(", ").map(|label| label.trim_matches('`')).filter(|label| !label.is_empty());
        assert!(meaning.len() > 5, "{line}");
        Some((name.trim_end_matches('`'), (kind, labels.collect())))
    });
    rows.collect()
}

/// The metrics of the servers' exporters that the operators' page lists.
pub(crate) fn of_exporters() -> BTreeSet<&'static str> {
    let (_, section) = PAGE.split_once("\n## Of database and broker\n").expect("it has the section");
    let rows = section.split("\n## ").next().unwrap_or_default().lines().filter(|line| line.starts_with('|'));
    let cells = rows.flat_map(|line| line.split('|').nth(1));
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

/// Asserts that every metric of a page is described as it is.
pub(crate) async fn assert_described(ops: SocketAddr, described: &BTreeMap<&str, (&str, BTreeSet<&str>)>) {
    let page = ask(ops, "/metrics").await.text;
    let (types, samples) = read(&page);
    for sample in samples {
        let (kind, labels) =
            described.get(sample.family).unwrap_or_else(|| panic!("{} is not described", sample.family));
        assert_eq!(types[sample.family], *kind, "{}", sample.family);
        let shown: BTreeSet<_> = sample.labels.iter().map(|(label, _)| *label).filter(|label| *label != "le").collect();
        assert_eq!(&shown, labels, "{}", sample.family);
    }
}

/// A metric that never counted is on no page, so the names in the code are compared as well.
#[test]
fn the_operators_page_describes_every_metric_and_no_other() {
    let described: BTreeSet<_> = described().into_keys().map(str::to_owned).collect();
    assert_eq!(names_in(&end_to_end::servers::repository().join("crates")), described);
}

/// Every string of the code below a folder that is a metric's name.
fn names_in(folder: &std::path::Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of_entry = |path: std::path::PathBuf| match path.extension() {
        _ if path.is_dir() => names_in(&path),
        Some(extension) if extension == "rs" => {
            let text = std::fs::read_to_string(&path).unwrap();
            let is_name = |word: &&str| {
                let is_other = word.contains("__") || word.ends_with("_total");
                let is_ours = word.starts_with("webhooks_") || word.starts_with("process_");
                is_ours && !is_other && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
            };
            text.split('"').filter(is_name).map(str::to_owned).collect()
        }
        _ => BTreeSet::new(),
    };
    entries.flat_map(of_entry).collect()
}
