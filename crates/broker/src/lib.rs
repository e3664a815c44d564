//! RabbitMQ: topology, confirmed publisher, batch consumer; the only crate that names lapin
