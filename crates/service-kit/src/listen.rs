//! Listens on an address that a setting names.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::settings::SettingsError;

/// Listens on `address`, which `setting` holds (written `section.key`). Returns the address with the port that the
/// system chose, if it was to choose one.
///
/// # Errors
/// [`SettingsError::Invalid`] when the address is taken, not ours, or not allowed.
pub async fn listen(setting: &str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), SettingsError> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    bound.await.map_err(|error: std::io::Error| {
        SettingsError::invalid(setting, format_args!("cannot listen on {address}: {error}"))
    })
}
