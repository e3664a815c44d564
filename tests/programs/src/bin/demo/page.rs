//! Plain lines on standard output, for a person.

use std::{fmt, fs, io::Write, path::Path};

/// How many lines of a service's log a failure shows, and how many characters of each.
const LINES: usize = 8;
const CHARACTERS: usize = 200;

/// Prints a line. A closed output (`make demo | head`) must not keep the demonstration from cleaning up.
macro_rules! say {
    ($($argument:tt)*) => { $crate::page::line(format_args!($($argument)*)) };
}
pub(crate) use say;

pub(crate) fn line(text: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

pub(crate) fn title(text: &str) {
    say!("\n{text}");
}

/// The beginning of a long or secret text.
pub(crate) fn short(text: &str, characters: usize) -> String {
    let mut short: String = text.chars().take(characters).collect();
    short.push_str("..");
    short
}

/// Shows the end of the services' logs and their paths.
pub(crate) fn show_logs(folder: &Path, services: impl Iterator<Item = &'static str>) {
    for name in services {
        let path = folder.join(format!("{name}.log"));
        let Ok(text) = fs::read(&path) else { continue };
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        say!("\nthe end of {} ({} lines)", path.display(), lines.len());
        for line in &lines[lines.len().saturating_sub(LINES)..] {
            say!("  {}", line.chars().take(CHARACTERS).collect::<String>());
        }
    }
}
