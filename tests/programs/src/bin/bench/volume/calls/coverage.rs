//! Checks that every operation of the API is measured, also a new one.

use std::collections::BTreeSet;

use end_to_end::servers::repository;
use serde_json::Value;

/// The operations of `openapi.json` that were not measured.
pub(super) fn forgotten(made: &BTreeSet<(&'static str, &'static str)>) -> Vec<(String, String)> {
    let file = repository().join("proto-schemas/openapi.json");
    let text = std::fs::read_to_string(file).expect("the API is described");
    let description: Value = serde_json::from_str(&text).expect("it is JSON");
    let paths = description["paths"].as_object().expect("it has paths");
    let operations = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().into_iter().flatten();
        // A path may have parameters beside its methods.
        methods.filter(|(_, what)| what.is_object()).map(move |(method, _)| (method.to_uppercase(), path.clone()))
    });
    operations.filter(|(method, path)| !made.contains(&(method.as_str(), path.as_str()))).collect()
}
