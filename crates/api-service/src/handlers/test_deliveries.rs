//! `POST /api/v1/webhooks/{id}/test/`: test deliveries of a sample.

use domain::{EventType, WebhookId};

use super::deliveries::accepted;
use crate::{
    calls::test_deliveries,
    http::{
        Answer, Body, Caller, Checked, FromBody, Id, Trace,
        fields::{Fields, event_type},
        json::{Members, Need},
    },
    state::Rules,
};

/// The event type that is asked for, if any.
pub(crate) struct Wish(Option<EventType>);

impl FromBody for Wish {
    const NEED: Need = Need::Optional;

    fn read(members: Members, _: &Rules) -> Checked<Self> {
        Fields::check(&members, |fields| Some(Self(fields.optional("event_type", event_type))))
    }
}

/// Sends a sample of a subscribed event type.
pub(crate) async fn create(
    caller: Caller,
    Id(id): Id<WebhookId>,
    trace: Trace,
    Body(Wish(wish)): Body<Wish>,
) -> Answer {
    Ok(accepted(id, &test_deliveries::send(&caller, id, wish, trace).await?))
}
