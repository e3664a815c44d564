//! Listens on an address that a setting names.

use std::{io, net::SocketAddr};

use tokio::net::TcpListener;

use crate::settings::Key;

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: cannot listen on {address}")]
pub struct ListenError {
    /// The setting that holds the address.
    pub setting: Key,
    /// The address.
    pub address: SocketAddr,
    /// The system's error.
    pub source: io::Error,
}

/// Listens on `address`, which `setting` holds (written `section.key`). Returns the address with the port that the
/// system chose, if it was to choose one.
///
/// # Errors
/// [`ListenError`] when the address is taken, not ours, or not allowed.
pub async fn listen(setting: &str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), ListenError> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    bound.await.map_err(|source| ListenError { setting: Key::new(setting), address, source })
}
