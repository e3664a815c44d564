//! The contracts of messages, as `proto-schemas` holds them.

/// The names and texts of the JSON Schemas.
pub(crate) const SCHEMAS: [(&str, &str); 4] = [
    ("envelope.schema.json", include_str!("../../../../proto-schemas/envelope.schema.json")),
    ("event.schema.json", include_str!("../../../../proto-schemas/event.schema.json")),
    ("job.schema.json", include_str!("../../../../proto-schemas/job.schema.json")),
    ("notice.schema.json", include_str!("../../../../proto-schemas/notice.schema.json")),
];

/// The AsyncAPI document. Its references lead to where the schemas are served.
pub(super) fn asyncapi() -> String {
    include_str!("../../../../proto-schemas/asyncapi.yaml").replace("$ref: './", "$ref: './schemas/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_into_a_file_leads_to_a_schema_that_is_served() {
        let asyncapi = asyncapi();
        let references: Vec<_> = asyncapi.split("$ref: './").skip(1).map(|rest| rest.split('\'').next()).collect();
        let served = SCHEMAS.map(|(name, _)| format!("schemas/{name}"));
        assert_eq!(references.len(), served.len());
        for reference in references {
            assert!(served.iter().any(|served| Some(served.as_str()) == reference), "{reference:?}");
        }
    }
}
