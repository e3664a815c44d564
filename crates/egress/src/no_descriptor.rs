//! Attempts that cannot be made, as this process has no descriptor for them.

use std::{
    io,
    net::{Ipv4Addr, UdpSocket},
};

/// This process or its machine has no descriptor left (EMFILE, ENFILE). Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no descriptor is left for a connection")]
pub struct NoDescriptor;

impl NoDescriptor {
    /// Returns whether no descriptor can be had now.
    pub(crate) fn is_now() -> bool {
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).is_err_and(|error| Self::is_cause_of(&error))
    }

    pub(crate) fn is_cause_of(error: &io::Error) -> bool {
        matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_without_a_descriptor_is_told_from_one_without_a_port_or_a_route() {
        let is = |code| NoDescriptor::is_cause_of(&io::Error::from_raw_os_error(code));
        assert_eq!([libc::EMFILE, libc::ENFILE].map(is), [true; 2]);
        let made = [libc::EADDRNOTAVAIL, libc::ENETUNREACH, libc::ECONNREFUSED, libc::EADDRINUSE, libc::ENOBUFS];
        assert_eq!(made.map(is), [false; 5]);
    }
}
