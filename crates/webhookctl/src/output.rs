//! Standard output and standard error. `println!` and `eprintln!` would panic when nobody reads any more, or when the disk
//! is full. Most lines hold foreign text, so what a terminal would obey is escaped.

use std::{
    fmt::Display,
    io::{self, ErrorKind, Write, stderr, stdout},
};

use domain::escaped;

/// Prints a line.
pub(crate) fn line(line: impl Display) -> anyhow::Result<()> {
    Ok(writeln!(stdout(), "{}", escaped(&line.to_string())).map_err(Unwritable)?)
}

/// Prints lines: in colour if standard output is a terminal and `NO_COLOR` is not set.
pub(crate) fn styled(lines: &str) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    Ok(out.write_all(lines.as_bytes()).and_then(|()| out.flush()).map_err(Unwritable)?)
}

/// Prints a line on standard error, where nobody has to read it.
pub(crate) fn error(line: impl Display) {
    let _ = writeln!(stderr(), "{}", escaped(&line.to_string()));
}

/// Whether an error says that nobody reads standard output any more.
pub(crate) fn is_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(|Unwritable(error)| error.kind() == ErrorKind::BrokenPipe)
}

#[derive(Debug, thiserror::Error)]
#[error("standard output cannot be written")]
struct Unwritable(#[source] io::Error);
