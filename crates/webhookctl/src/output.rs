//! Standard output.

use std::{
    error::Error,
    fmt::{self, Display},
    io::{self, ErrorKind, Write, stdout},
};

/// Prints a line. `println!` would panic when nobody reads any more, or when the disk is full.
pub(crate) fn line(line: impl Display) -> anyhow::Result<()> {
    Ok(writeln!(stdout(), "{line}").map_err(Unwritable)?)
}

/// Whether an error says that nobody reads standard output any more.
pub(crate) fn is_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(|Unwritable(error)| error.kind() == ErrorKind::BrokenPipe)
}

#[derive(Debug)]
struct Unwritable(io::Error);

impl Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output cannot be written")
    }
}

impl Error for Unwritable {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}
