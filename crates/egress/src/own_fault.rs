//! Failures whose cause may be this machine or its network.

use std::io;

use hyper_util::client::legacy;

use crate::{causes::find, connect_error::ConnectError, failure::Failure, resolver::LookupError};

/// Why an attempt failed that may have failed for every receiver. One receiver alone may cause each of them as well, except
/// [`OwnFault::NoSocket`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OwnFault {
    /// No name server answered, or those that did failed. So it is without a descriptor, too.
    NoNameServer,
    /// There is no route to the receiver's address.
    NoRoute,
    /// No authority that is trusted has signed the receiver's certificate.
    UnknownIssuer,
    /// There is no local port for a connection to the receiver.
    NoPort,
    /// This process has no descriptor left. Nothing was sent.
    NoSocket,
}

impl OwnFault {
    pub(crate) fn of(failure: &Failure) -> Option<Self> {
        let Failure::Client(error) = failure else { return None };
        match find::<ConnectError>(error as &legacy::Error)? {
            ConnectError::Unresolved { source: LookupError::Silent | LookupError::Failed, .. } => {
                Some(Self::NoNameServer)
            }
            ConnectError::Tcp { address, source, .. } => Self::of_connect(address.is_ipv4(), source),
            ConnectError::Tls(error) => tls::is_unknown_issuer(error.as_ref()).then_some(Self::UnknownIssuer),
            _ => None,
        }
    }

    /// The fault of a connect. An IPv6 address may fail with "address not available" where the machine has no such
    /// address itself.
    pub(crate) fn of_connect(is_v4: bool, error: &io::Error) -> Option<Self> {
        match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => Some(Self::NoSocket),
            Some(libc::EADDRNOTAVAIL) if is_v4 => Some(Self::NoPort),
            Some(libc::EADDRNOTAVAIL | libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN) => Some(Self::NoRoute),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_meet_every_receiver_may_be_our_fault() {
        let of = |is_v4, code| OwnFault::of_connect(is_v4, &io::Error::from_raw_os_error(code));
        for code in [libc::EMFILE, libc::ENFILE] {
            assert_eq!([true, false].map(|is_v4| of(is_v4, code)), [Some(OwnFault::NoSocket); 2]);
        }
        assert_eq!(of(true, libc::EADDRNOTAVAIL), Some(OwnFault::NoPort), "no local port is left");
        assert_eq!(of(false, libc::EADDRNOTAVAIL), Some(OwnFault::NoRoute), "a machine without IPv6");
        assert_eq!(of(true, libc::ENETUNREACH), Some(OwnFault::NoRoute));
        assert_eq!([libc::ECONNREFUSED, libc::ECONNRESET, libc::ETIMEDOUT].map(|code| of(true, code)), [None; 3]);
    }
}
