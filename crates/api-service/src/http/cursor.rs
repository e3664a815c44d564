//! Positions in lists.

use ring::digest::{SHA256, digest};
use uuid::{Uuid, fmt::Simple};

/// The cursors of one list. A cursor of another list is not one of them.
#[derive(Clone, Copy)]
pub(crate) struct Cursors([u8; 4]);

impl Cursors {
    /// The cursors of the list at a path. The case of its ids and a slash at its end do not matter.
    pub(crate) fn of(path: &str) -> Self {
        let hash = digest(&SHA256, path.trim_end_matches('/').to_ascii_lowercase().as_bytes());
        Self(hash.as_ref().first_chunk().copied().unwrap_or_default())
    }

    /// The cursor of the page after this entry. It is opaque to clients: its form may change.
    pub(crate) fn after(self, key: Uuid) -> String {
        format!("{}{}", key.simple(), hex::encode(self.0))
    }

    /// The entry before the page of a cursor. `None` for what is no cursor of this list.
    pub(crate) fn read(self, cursor: &str) -> Option<Uuid> {
        let key = cursor.strip_suffix(&*hex::encode(self.0)).filter(|key| key.len() == Simple::LENGTH)?;
        Uuid::try_parse(key).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_of_one_list_alone() {
        let key = Uuid::from_u128(0x0192_f0c1_0000_7000_8000_0000_0000_00ab);
        let webhook = "/api/v1/webhooks/0192f0c1-0000-7000-8000-0000000000ab/";
        let list = Cursors::of(&format!("{webhook}notices/"));
        let cursor = list.after(key);
        assert_eq!((cursor.len(), list.read(&cursor)), (40, Some(key)));
        assert_eq!(Cursors::of(&format!("{webhook}notices").to_uppercase()).read(&cursor), Some(key));
        for other in ["/api/v1/webhooks/".to_owned(), format!("{webhook}history/"), format!("{webhook}deliveries/")] {
            assert_eq!(Cursors::of(&other).read(&cursor), None, "{other}");
        }
        let another = webhook.replace("ab/", "ac/");
        assert_eq!(Cursors::of(&format!("{another}notices/")).read(&cursor), None);
        for wrong in ["", "x", &cursor[1..], &cursor[..32], &format!("0{cursor}"), &cursor.replace("0192", "x192")] {
            assert_eq!(list.read(wrong), None, "{wrong}");
        }
    }
}
