//! What became of an event.

use domain::EventId;
use ledger::{Absence, FoundEvents};

use crate::http::{ApiError, Caller};

/// The tenant's events of this id. Another tenant's are unknown.
pub(crate) async fn find(caller: &Caller, id: EventId) -> Result<FoundEvents, ApiError> {
    let found = caller.ledger.event_find(caller.admin.tenant, id, caller.kept.log).await?;
    if found.events.is_empty() { Err(ApiError::UnknownEvent) } else { Ok(found) }
}

/// Why there is no delivery, for people.
pub(crate) const fn explanation(absence: Absence) -> &'static str {
    match absence {
        Absence::Deleted => "The webhook was deleted before the event arrived.",
        Absence::CreatedLater => "The webhook was registered after the event arrived.",
        Absence::Test => "The event is the sample of a test that was sent to another webhook only.",
        Absence::Expired => {
            "The event is older than the retention period: its delivery, if there was one, may have been deleted."
        }
        Absence::NotSubscribed => "The webhook is not subscribed to events of this type.",
        Absence::SubscribedLater => {
            "The webhook is subscribed to events of this type now, and was not sent this one: it was subscribed later, \
             or it was registered in the moment in which the event came."
        }
    }
}
