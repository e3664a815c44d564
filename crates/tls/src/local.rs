//! Whether a connection leaves this machine.

use std::net::IpAddr;

/// Whether a host is this machine by its name or address alone: such a connection needs no TLS.
pub fn is_this_machine(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_this_machine() {
        for host in ["localhost", "LOCALHOST.", "db.localhost", "127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in ["db.internal", "localhost.example", "10.0.0.1", "0.0.0.0", "::", "fd00::1", ""] {
            assert!(!is_this_machine(host), "{host}");
        }
    }
}
