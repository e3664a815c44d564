#![doc = include_str!("../README.md")]

mod config;
mod failure;
mod server;

pub use config::{TlsError, client_config};
pub use failure::Failure;
pub use rustls::{ClientConfig, pki_types::ServerName};
pub use server::acceptor;
pub use tokio_rustls::TlsAcceptor;
