//! The collector's protocol: spans as messages of OTLP 1, in protobuf.

use bytes::Bytes;
pub(crate) use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
    trace::v1::{ResourceSpans, ScopeSpans, Span, Status, span::SpanKind, status::StatusCode},
};
use prost::Message;
use time::OffsetDateTime;

use crate::record::{Kind, Record, Value};

/// The path of traces below a collector's address.
pub(crate) const PATH: &str = "/v1/traces";
/// The type of a body.
pub(crate) const CONTENT_TYPE: &str = "application/x-protobuf";

/// Flags of a span: its trace is recorded, and it is known whether its parent is in another process.
const FLAGS: u32 = 0x101;
/// The parent is in another process.
const IS_REMOTE: u32 = 0x200;

/// The process, as the collector's users see it.
pub(crate) fn resource(service: &'static str, version: &'static str, instance: String) -> Resource {
    let attributes = [
        ("service.namespace", Value::from("webhooks")),
        ("service.name", service.into()),
        ("service.version", version.into()),
        ("service.instance.id", instance.into()),
    ];
    Resource { attributes: attributes.into_iter().map(attribute).collect(), ..Resource::default() }
}

/// The body that exports spans.
pub(crate) fn request(resource: &Resource, version: &str, records: Vec<Record>) -> Bytes {
    let (name, version) = ("webhooks".to_owned(), version.to_owned());
    let scope = Some(InstrumentationScope { name, version, ..InstrumentationScope::default() });
    let spans = records.into_iter().map(span).collect();
    let scope_spans = vec![ScopeSpans { scope, spans, ..ScopeSpans::default() }];
    let of_process = ResourceSpans { resource: Some(resource.clone()), scope_spans, ..ResourceSpans::default() };
    ExportTraceServiceRequest { resource_spans: vec![of_process] }.encode_to_vec().into()
}

/// How many spans the collector did not want, by the body of its answer.
pub(crate) fn refused(answer: &[u8]) -> usize {
    let refused = ExportTraceServiceResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
    refused.and_then(|refused| refused.rejected_spans.try_into().ok()).unwrap_or_default()
}

fn span(record: Record) -> Span {
    Span {
        trace_id: record.trace.get().to_be_bytes().to_vec(),
        span_id: record.id.get().to_be_bytes().to_vec(),
        parent_span_id: record.parent.map(|id| id.to_be_bytes().to_vec()).unwrap_or_default(),
        name: record.name.into_owned(),
        kind: match record.kind {
            Kind::Server => SpanKind::Server,
            Kind::Client => SpanKind::Client,
            Kind::Consumer => SpanKind::Consumer,
        }
        .into(),
        start_time_unix_nano: unix_nanos(record.started_at),
        end_time_unix_nano: unix_nanos(record.ended_at),
        attributes: record.attributes.into_iter().map(attribute).collect(),
        status: record.is_failed.then(|| Status { code: StatusCode::Error.into(), ..Status::default() }),
        flags: FLAGS | record.parent.map_or(0, |_| IS_REMOTE),
        ..Span::default()
    }
}

fn attribute((key, value): (&'static str, Value)) -> KeyValue {
    let value = match value {
        Value::Text(text) => any_value::Value::StringValue(text.into_owned()),
        Value::Number(number) => any_value::Value::IntValue(number),
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn unix_nanos(time: OffsetDateTime) -> u64 {
    time.unix_timestamp_nanos().try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;
    use time::macros::datetime;

    use super::*;

    fn record(parent: Option<u64>, is_failed: bool) -> Record {
        Record {
            trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736.try_into().unwrap(),
            id: 7.try_into().unwrap(),
            parent,
            name: "POST".into(),
            kind: Kind::Client,
            started_at: datetime!(2026-03-01 09:30:00.000000001 UTC),
            ended_at: datetime!(2026-03-01 09:30:01 UTC),
            attributes: vec![("server.port", 443_u16.into()), ("server.address", "a.example".into())],
            is_failed,
        }
    }

    fn read(attributes: &[KeyValue]) -> Vec<(&str, String)> {
        let text = |value: &any_value::Value| match value {
            any_value::Value::StringValue(text) => text.clone(),
            any_value::Value::IntValue(number) => number.to_string(),
            other => panic!("{other:?}"),
        };
        let value = |one: &KeyValue| text(one.value.as_ref().unwrap().value.as_ref().unwrap());
        attributes.iter().map(|one| (one.key.as_str(), value(one))).collect()
    }

    #[test]
    fn a_collector_reads_what_was_written() {
        let resource = resource("dispatcher", "1.2.3", "one".to_owned());
        let body = request(&resource, "1.2.3", vec![record(Some(9), true), record(None, false)]);
        let read_back = ExportTraceServiceRequest::decode(body).unwrap();
        let [spans] = &read_back.resource_spans[..] else { panic!("{read_back:?}") };
        let of = [("service.namespace", "webhooks"), ("service.name", "dispatcher"), ("service.version", "1.2.3")];
        let of = of.into_iter().chain([("service.instance.id", "one")]).map(|(key, value)| (key, value.to_owned()));
        assert!(read(&spans.resource.as_ref().unwrap().attributes).into_iter().eq(of));
        let [scope] = &spans.scope_spans[..] else { panic!("{spans:?}") };
        assert_eq!(scope.scope.as_ref().unwrap().name, "webhooks");
        let [failed, root] = &scope.spans[..] else { panic!("{scope:?}") };
        assert_eq!(failed.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes());
        assert_eq!(
            (&failed.span_id[..], &failed.parent_span_id[..]),
            (&[0, 0, 0, 0, 0, 0, 0, 7][..], &[0, 0, 0, 0, 0, 0, 0, 9][..])
        );
        assert_eq!((failed.name.as_str(), failed.kind()), ("POST", SpanKind::Client));
        assert_eq!(failed.end_time_unix_nano - failed.start_time_unix_nano, 999_999_999);
        assert_eq!(failed.end_time_unix_nano, 1_772_357_401_000_000_000);
        assert_eq!(
            read(&failed.attributes),
            [("server.port", "443".to_owned()), ("server.address", "a.example".to_owned())]
        );
        assert_eq!((failed.flags, root.flags), (0x301, 0x101));
        assert_eq!(failed.status.as_ref().unwrap().code(), StatusCode::Error);
        assert!(root.parent_span_id.is_empty() && root.status.is_none());
    }

    #[test]
    fn the_answer_says_how_many_were_not_wanted() {
        let answer = |rejected_spans| {
            let partial = ExportTracePartialSuccess { rejected_spans, error_message: "why".to_owned() };
            ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec()
        };
        assert_eq!([refused(&answer(3)), refused(&answer(-1)), refused(b""), refused(b"<html>")], [3, 0, 0, 0]);
    }
}
