//! Notices for the business application.

use domain::Notice;

use crate::{message::Outgoing, topology::Names};

impl Names {
    /// The message of a notice. Its routing key is its type; the service's own exchange passes it on to the topic
    /// exchange for notices.
    #[must_use]
    pub fn notice(&self, notice: &Notice) -> Outgoing {
        let (queue, id) = (notice.notice_type.to_owned(), Some(notice.notice_id));
        Outgoing { queue, id, body: notice.to_bytes(), ..Default::default() }
    }
}
