//! Lists' query parameters: `limit`, `cursor` and filters.

use std::{borrow::Cow, collections::HashSet, future};

use actix_web::{FromRequest, HttpRequest, dev::Payload};
use domain::Timestamp;
use ledger::Page;
use serde::Serialize;
use time::OffsetDateTime;
use url::form_urlencoded;
use uuid::Uuid;

use super::{cursor::Cursors, problem::ApiError, violation::Violation};

/// The longest query string, in bytes.
pub(crate) const MAX_QUERY_BYTES: usize = 4096;

pub(crate) const DEFAULT_LIMIT: u16 = 50;
pub(crate) const MAX_LIMIT: u16 = 200;

/// The name and the value of a parameter.
type Parameter<'a> = (Cow<'a, str>, Cow<'a, str>);

/// The filters of a list.
pub(crate) trait Filter: Default {
    /// The names of all parameters, for the message about an unknown one.
    const PARAMETER_NAMES: &str;

    /// The parameters that may be given more than once.
    const REPEATABLE: &[&str] = &[];

    /// Reads a parameter. `None` when it is unknown.
    fn take(&mut self, name: &str, value: &str) -> Option<Result<(), Violation>>;
}

/// No filter.
impl Filter for () {
    const PARAMETER_NAMES: &str = "limit and cursor";

    fn take(&mut self, _: &str, _: &str) -> Option<Result<(), Violation>> {
        None
    }
}

/// The part of a list that a query string asks for. All its violations are reported at once. A query string that is too
/// long is not read at all. The cursors are those of the list.
pub(crate) struct Query<Key, F = ()>(pub(crate) Page<Key>, pub(crate) F, pub(crate) Cursors);

impl<Key: From<Uuid>, F: Filter> FromRequest for Query<Key, F> {
    type Error = ApiError;
    type Future = future::Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        future::ready(of_query(request, |query| Self::read(query, Cursors::of(request.path()))))
    }
}

impl<Key: From<Uuid>, F: Filter> Query<Key, F> {
    pub(crate) fn read(query: &str, cursors: Cursors) -> Result<Self, Vec<Violation>> {
        Self::of(form_urlencoded::parse(query.as_bytes()), cursors)
    }

    /// Reads parameters by their names.
    pub(crate) fn of<'a>(given: impl Iterator<Item = Parameter<'a>>, cursors: Cursors) -> Result<Self, Vec<Violation>> {
        let (mut page, mut filter) = (Page { after: None, limit: DEFAULT_LIMIT }, F::default());
        each::<F>(given, |name, value| match name {
            "limit" => limit(value).map(|limit| page.limit = limit),
            "cursor" => cursor(value, cursors).map(|after| page.after = Some(after.into())),
            _ => filter.take(name, value).unwrap_or_else(|| Err(unknown::<F>(name))),
        })?;
        Ok(Self(page, filter, cursors))
    }
}

/// The parameters of a call that is no list, read like a list's.
pub(crate) struct Parameters<F>(pub(crate) F);

impl<F: Filter> FromRequest for Parameters<F> {
    type Error = ApiError;
    type Future = future::Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        future::ready(of_query(request, Self::read))
    }
}

impl<F: Filter> Parameters<F> {
    pub(crate) fn read(query: &str) -> Result<Self, Vec<Violation>> {
        let mut filter = F::default();
        let given = form_urlencoded::parse(query.as_bytes());
        each::<F>(given, |name, value| filter.take(name, value).unwrap_or_else(|| Err(unknown::<F>(name))))?;
        Ok(Self(filter))
    }
}

fn of_query<T>(request: &HttpRequest, read: impl FnOnce(&str) -> Result<T, Vec<Violation>>) -> Result<T, ApiError> {
    match request.query_string() {
        query if query.len() > MAX_QUERY_BYTES => Err(ApiError::QueryTooLong(MAX_QUERY_BYTES)),
        query => read(query).map_err(ApiError::Parameters),
    }
}

/// Reads each parameter. All violations are reported at once.
fn each<'a, F: Filter>(
    given: impl Iterator<Item = Parameter<'a>>,
    mut take: impl FnMut(&str, &str) -> Result<(), Violation>,
) -> Result<(), Vec<Violation>> {
    let (mut violations, mut seen) = (Vec::new(), HashSet::new());
    for (name, value) in given {
        if !seen.insert(name.clone()) && !F::REPEATABLE.contains(&&*name) {
            violations.push(Violation::new(&*name, "repeated_parameter", "is given more than once"));
            continue;
        }
        violations.extend(take(&name, &value).err());
    }
    if violations.is_empty() { Ok(()) } else { Err(violations) }
}

/// A list's answer.
#[derive(Serialize)]
pub(crate) struct List<T> {
    pub(crate) data: Vec<T>,
    /// `None` on the last page.
    pub(crate) next_cursor: Option<String>,
}

/// The answer of a list that a search makes.
#[derive(Serialize)]
pub(crate) struct SearchedList<T> {
    #[serde(flatten)]
    pub(crate) list: List<T>,
    pub(crate) searched_until: Option<String>,
}

/// Cuts `entries` to a page of `limit`. If there are more, there is a next page, whose cursor is returned.
pub(crate) fn cut<T>(
    mut entries: Vec<T>,
    limit: u16,
    cursors: Cursors,
    key: impl FnOnce(&T) -> Uuid,
) -> (Vec<T>, Option<String>) {
    let wanted = usize::from(limit);
    let is_more = entries.len() > wanted;
    entries.truncate(wanted);
    let last = entries.last().filter(|_| is_more);
    let next_cursor = last.map(|last| cursors.after(key(last)));
    (entries, next_cursor)
}

/// Reads a parameter that is a time.
pub(crate) fn moment(name: &str, text: &str) -> Result<OffsetDateTime, Violation> {
    let moment = text.parse::<Timestamp>().map(Timestamp::as_datetime);
    let hint = "in a URL, + is written %2B";
    moment.map_err(|wrong| Violation::new(name, "invalid_timestamp", format!("is {wrong} ({hint})")))
}

/// Reads a parameter that is a text, as the database can compare it.
pub(crate) fn text(name: &str, text: &str) -> Result<String, Violation> {
    match text.contains('\0') {
        true => Err(Violation::new(name, "control_character", "must not contain control characters")),
        false => Ok(text.to_owned()),
    }
}

/// Reads a parameter that is true or false.
pub(crate) fn truth(name: &str, text: &str) -> Result<bool, Violation> {
    text.parse().map_err(|_| Violation::new(name, "invalid_boolean", "must be true or false"))
}

fn unknown<F: Filter>(name: &str) -> Violation {
    Violation::new(name, "unknown_parameter", format!("is unknown here; known are {}", F::PARAMETER_NAMES))
}

fn limit(text: &str) -> Result<u16, Violation> {
    let is_number = text.bytes().all(|c| c.is_ascii_digit());
    let limit = text.parse().ok().filter(|limit| is_number && (1..=MAX_LIMIT).contains(limit));
    limit.ok_or_else(|| Violation::new("limit", "invalid_limit", "must be a whole number from 1 to 200"))
}

fn cursor(text: &str, cursors: Cursors) -> Result<Uuid, Violation> {
    cursors.read(text).ok_or_else(|| Violation::new("cursor", "invalid_cursor", "is not a next_cursor of this list"))
}

#[cfg(test)]
mod tests {
    use domain::WebhookId;

    use super::*;

    fn read(query: &str) -> Result<Page<WebhookId>, Vec<Violation>> {
        Query::<WebhookId>::read(query, webhooks()).map(|Query(page, (), _)| page)
    }

    fn webhooks() -> Cursors {
        Cursors::of("/api/v1/webhooks/")
    }

    const ID: &str = "0192f0c1-0000-7000-8000-000000000001";

    fn codes(query: &str) -> Vec<(String, &'static str)> {
        read(query).unwrap_err().into_iter().map(|violation| (violation.field, violation.code)).collect()
    }

    #[test]
    fn a_page_is_fifty_entries_from_the_beginning_unless_asked_otherwise() {
        for (query, after, limit) in [("", None, 50), ("limit=1", None, 1), ("limit=200&", None, 200)] {
            let page = read(query).unwrap();
            assert_eq!((page.after, page.limit), (after, limit), "{query}");
        }
    }

    #[test]
    fn a_cursor_leads_back_to_its_entry() {
        let id: WebhookId = ID.parse().unwrap();
        let page = read(&format!("cursor={}&limit=7", webhooks().after(id.as_uuid()))).unwrap();
        assert_eq!((page.after, page.limit), (Some(id), 7));
    }

    #[test]
    fn each_faulty_parameter_is_named() {
        for limit in ["", "0", "201", "-1", "%2B5", "1.0", "ten", "99999999999", "5%20"] {
            assert_eq!(codes(&format!("limit={limit}")), [("limit".to_owned(), "invalid_limit")], "{limit}");
        }
        let of_another_list = Cursors::of("/api/v1/notices/").after(Uuid::nil());
        for cursor in ["", "x", ID, "%00", &of_another_list] {
            assert_eq!(codes(&format!("cursor={cursor}")), [("cursor".to_owned(), "invalid_cursor")], "{cursor}");
        }
        assert_eq!(
            codes("limit=0&page=2&cursor=x&limit=5"),
            [
                ("limit".to_owned(), "invalid_limit"),
                ("page".to_owned(), "unknown_parameter"),
                ("cursor".to_owned(), "invalid_cursor"),
                ("limit".to_owned(), "repeated_parameter")
            ]
        );
    }

    #[test]
    fn only_a_page_with_more_behind_it_has_a_cursor() {
        let ids: Vec<Uuid> = (0..3).map(Uuid::from_u128).collect();
        for (limit, left, cursor) in [(2, 2, Some(webhooks().after(ids[1]))), (3, 3, None), (9, 3, None)] {
            let (page, next) = cut(ids.clone(), limit, webhooks(), |id| *id);
            assert_eq!((page.len(), next), (left, cursor));
        }
    }
}
