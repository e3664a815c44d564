//! Reads a page of metrics.

use std::{collections::BTreeMap, net::SocketAddr};

use end_to_end::api::{Answer, Api};

pub(crate) async fn ask(ops: SocketAddr, path: &str) -> Answer {
    Api { address: ops, session: None }.get(path).await
}

/// A sample of a metrics page.
pub(crate) struct Sample<'p> {
    pub(crate) family: &'p str,
    pub(crate) labels: Vec<(&'p str, &'p str)>,
}

/// Reads a page. Asserts that every sample belongs to a family with HELP and TYPE.
pub(crate) fn read(page: &str) -> (BTreeMap<&str, &str>, Vec<Sample<'_>>) {
    let about = |word: &'static str| page.lines().filter_map(move |line| line.strip_prefix(word)?.split_once(' '));
    let types: BTreeMap<_, _> = about("# TYPE ").collect();
    let helps: BTreeMap<_, _> = about("# HELP ").collect();
    assert!(page.ends_with("# EOF\n") && types.keys().eq(helps.keys()), "{page}");
    assert!(helps.values().all(|help| help.len() > 5));
    let samples = page.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let ends = ["_total", "_bucket", "_sum", "_count", "_info", ""];
        let family = ends.iter().find_map(|end| name.strip_suffix(end).filter(|name| types.contains_key(name)));
        let labels = labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty());
        let labels = labels.map(|label| label.split_once('=').unwrap()).collect();
        Sample { family: family.unwrap_or_else(|| panic!("{name} has no TYPE")), labels }
    });
    let samples = samples.collect();
    (types, samples)
}
