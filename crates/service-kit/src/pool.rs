//! The process's connections to the database, as metrics.

use ledger::{Connections, Ledger};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
    registry::Registry,
};

/// Shows the connections of all pools to the ledger's database, as they are when the metrics are read.
pub(crate) fn show(ledger: &Ledger, registry: &mut Registry) {
    registry.register_collector(Box::new(Pools(ledger.clone())));
}

struct Pools(Ledger);

impl std::fmt::Debug for Pools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pools")
    }
}

impl Collector for Pools {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Connections { most, open, in_use, wanted } = self.0.connections();
        for (name, help, value) in [
            ("webhooks_database_connections_max", "The most connections to the database", most),
            ("webhooks_database_connections", "Connections to the database", open),
            ("webhooks_database_connections_in_use", "Connections to the database that are in use", in_use),
            ("webhooks_database_connections_wanted", "Calls that wait for a connection to the database", wanted),
        ] {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        Ok(())
    }
}
