#![doc = include_str!("../README.md")]

mod config;
mod failure;
mod files;
mod local;
mod server;
mod verifier;

pub use config::{TlsError, client_config};
pub use failure::{Failure, Peer, is_not_tls};
pub use files::{ClientFiles, FileError, IdentityFiles, Role, password};
pub use local::is_this_machine;
pub use rustls::{ClientConfig, pki_types::ServerName};
pub use server::acceptor;
pub use tokio_rustls::TlsAcceptor;
