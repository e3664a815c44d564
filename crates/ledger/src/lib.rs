//! The ledger in PostgreSQL: the only crate that names diesel
