//! The collector's protocol: the part of OTLP 1 that spans need, as protobuf.

use bytes::Bytes;
use prost::{Enumeration, Message, Oneof};
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

#[derive(Clone, PartialEq, Message)]
struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

/// The process that the spans are of.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(enumeration = "SpanKind", tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
enum SpanKind {
    Unspecified = 0,
    Server = 2,
    Client = 3,
    Consumer = 5,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "Content", tags = "1, 3")]
    content: Option<Content>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Content {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(enumeration = "StatusCode", tag = "3")]
    code: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
enum StatusCode {
    Unset = 0,
    Error = 2,
}

#[derive(Clone, PartialEq, Message)]
struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_spans: i64,
}

/// The process, as the collector's users see it.
pub(crate) fn resource(service: &'static str, version: &'static str, instance: String) -> Resource {
    let attributes = [
        ("service.namespace", Value::from("webhooks")),
        ("service.name", service.into()),
        ("service.version", version.into()),
        ("service.instance.id", instance.into()),
    ];
    Resource { attributes: attributes.into_iter().map(attribute).collect() }
}

/// The body that exports spans.
pub(crate) fn request(resource: &Resource, version: &str, records: Vec<Record>) -> Bytes {
    let scope = Scope { name: "webhooks".to_owned(), version: version.to_owned() };
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans: records.into_iter().map(span).collect() }];
    let resource_spans = vec![ResourceSpans { resource: Some(resource.clone()), scope_spans }];
    ExportRequest { resource_spans }.encode_to_vec().into()
}

/// How many spans the collector did not want, by the body of its answer.
pub(crate) fn refused(answer: &[u8]) -> usize {
    let refused = ExportResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
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
        status: record.is_failed.then_some(Status { code: StatusCode::Error.into() }),
        flags: FLAGS | record.parent.map_or(0, |_| IS_REMOTE),
    }
}

fn attribute((key, value): (&'static str, Value)) -> KeyValue {
    let content = match value {
        Value::Text(text) => Content::Text(text.into_owned()),
        Value::Number(number) => Content::Number(number),
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { content: Some(content) }) }
}

fn unix_nanos(time: OffsetDateTime) -> u64 {
    time.unix_timestamp_nanos().try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::{
        collector::trace::v1::{ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse},
        common::v1::{KeyValue, any_value},
        trace::v1::{span, status},
    };
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

    /// Read by the types that OpenTelemetry's own library generates.
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
        assert_eq!((failed.name.as_str(), failed.kind()), ("POST", span::SpanKind::Client));
        assert_eq!(failed.end_time_unix_nano - failed.start_time_unix_nano, 999_999_999);
        assert_eq!(failed.end_time_unix_nano, 1_772_357_401_000_000_000);
        assert_eq!(
            read(&failed.attributes),
            [("server.port", "443".to_owned()), ("server.address", "a.example".to_owned())]
        );
        assert_eq!((failed.flags, root.flags), (0x301, 0x101));
        assert_eq!(failed.status.as_ref().unwrap().code(), status::StatusCode::Error);
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
