//! Finds an error among the causes of another, by its type.

use std::{error::Error, io};

/// The first error of a type among the error and its causes.
pub(crate) fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    error.downcast_ref().or_else(|| find(error.source()?))
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
    fn the_kind_is_that_of_the_io_error_inside() {
        let held = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, "held"));
        assert_eq!(io_kind(&held), Some(io::ErrorKind::InvalidData));
    }
}
