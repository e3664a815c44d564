//! Copies of the messages of the events exchange, so that those with an unknown routing key can be consumed.

use lapin::{
    Connection,
    options::{ExchangeBindOptions, ExchangeUnbindOptions},
    types::FieldTable,
};

use crate::{
    error::BrokerError,
    topology::{Names, Topology},
};

/// Matches every routing key.
const ANY_KEY: &str = "#";

/// The state of the copying: on or off.
pub(crate) struct Copies(pub(crate) bool);

impl Copies {
    /// Declares what separates messages by their keys, and the copying last: before, events would come here as well.
    /// A broker that refuses the copying only is none: its user may lack the right to read all keys of the exchange.
    pub(crate) async fn declare(&self, names: &Names, connection: &Connection) -> Result<(), BrokerError> {
        let channel = connection.create_channel().await?;
        let declared = Topology::of_unknown_keys(names).declare(&names.exchange(), &channel).await;
        declared.map_err(BrokerError::of_declaring)?;
        let (to, from, arguments) = (names.known_keys(), names.events_exchange.as_str(), FieldTable::default());
        let result = match self.0 {
            true => {
                let options = ExchangeBindOptions::default();
                channel.exchange_bind(to.into(), from.into(), ANY_KEY.into(), options, arguments).await
            }
            false => {
                let options = ExchangeUnbindOptions::default();
                channel.exchange_unbind(to.into(), from.into(), ANY_KEY.into(), options, arguments).await
            }
        };
        match result {
            Err(error) if !connection.status().connected() => Err(error.into()),
            Err(error) => {
                let (exchange, wanted) = (from, if self.0 { "bound" } else { "unbound" });
                tracing::warn!(
                    %error, exchange, wanted,
                    "broker.unknown_keys (WEBHOOKS__BROKER__UNKNOWN_KEYS): the broker refuses to change who gets copies of all \
                     messages of this exchange, and nothing has changed; the user needs the right to read every routing \
                     key of it, or somebody who has the right makes or removes the binding with #"
                );
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}
