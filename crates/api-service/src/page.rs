//! `?limit=` and `?cursor=` of lists.

use domain::WebhookId;
use ledger::Page;
use url::form_urlencoded;
use uuid::Uuid;

use crate::fault::Fault;

const DEFAULT_LIMIT: u16 = 50;
const MAX_LIMIT: u16 = 200;

/// Reads a query string; all faulty parameters are reported at once.
pub(crate) fn read(query: &str) -> Result<Page<WebhookId>, Vec<Fault>> {
    let mut page = Page { after: None, limit: DEFAULT_LIMIT };
    let mut faults = Vec::new();
    let mut seen = Vec::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if seen.contains(&name) {
            faults.push(Fault::new(&*name, "repeated_parameter", "is given more than once"));
            continue;
        }
        match &*name {
            "limit" => match limit(&value) {
                Some(limit) => page.limit = limit,
                None => faults.push(Fault::new("limit", "invalid_limit", "must be a whole number from 1 to 200")),
            },
            "cursor" => match cursor(&value) {
                Some(after) => page.after = Some(after),
                None => faults.push(Fault::new("cursor", "invalid_cursor", "is not a next_cursor of this list")),
            },
            _ => faults.push(Fault::new(&*name, "unknown_parameter", "is unknown here; known are limit and cursor")),
        }
        seen.push(name);
    }
    if faults.is_empty() { Ok(page) } else { Err(faults) }
}

/// The cursor of the page that comes after this entry. Opaque to clients: its form may change.
pub(crate) fn cursor_after(id: WebhookId) -> String {
    id.as_uuid().simple().to_string()
}

fn limit(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|c| c.is_ascii_digit());
    text.parse().ok().filter(|limit| is_number && (1..=MAX_LIMIT).contains(limit))
}

fn cursor(text: &str) -> Option<WebhookId> {
    let id = Uuid::try_parse(text).ok()?;
    (text.len() == uuid::fmt::Simple::LENGTH).then(|| id.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0192f0c1-0000-7000-8000-000000000001";

    fn codes(query: &str) -> Vec<(String, &'static str)> {
        read(query).unwrap_err().into_iter().map(|fault| (fault.field, fault.code)).collect()
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
        let page = read(&format!("cursor={}&limit=7", cursor_after(id))).unwrap();
        assert_eq!((page.after, page.limit), (Some(id), 7));
    }

    #[test]
    fn each_faulty_parameter_is_named() {
        for limit in ["", "0", "201", "-1", "%2B5", "1.0", "ten", "99999999999", "5%20"] {
            assert_eq!(codes(&format!("limit={limit}")), [("limit".to_owned(), "invalid_limit")], "{limit}");
        }
        for cursor in ["", "x", ID, "%00"] {
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
}
