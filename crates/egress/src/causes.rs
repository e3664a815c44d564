//! Finds an error among the causes of another, by its type.

use std::{error::Error, io};

/// The error and its causes.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

/// The first error of a type among the error and its causes.
pub(crate) fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    chain(error).find_map(|error| error.downcast_ref())
}

/// The TLS error among the error and its causes. The source of an `io::Error` skips the error that it holds, so this
/// looks inside.
pub(crate) fn find_tls<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    chain(error).find_map(|error| {
        error.downcast_ref().or_else(|| {
            let held = error.downcast_ref::<io::Error>()?.get_ref()?;
            find_tls(held)
        })
    })
}

/// The kind of the `io::Error` among the error and its causes. If that holds another, the kind is the inner one's.
pub(crate) fn io_kind(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    let outer = find::<io::Error>(error)?;
    let inner = outer.get_ref().and_then(|held| io_kind(held));
    inner.or(Some(outer.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_io_error_holds_is_found() {
        let tls = rustls::Error::HandshakeNotComplete;
        let held = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, tls.clone()));
        assert_eq!((find_tls(&held), io_kind(&held)), (Some(&tls), Some(io::ErrorKind::InvalidData)));
        assert_eq!(find_tls(&io::Error::from(io::ErrorKind::Other)), None);
    }
}
