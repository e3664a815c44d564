//! Plain lines on standard output, for a person.

/// Prints a line. A closed output (`make demo | head`) must not keep the demonstration from cleaning up.
macro_rules! say {
    ($($argument:tt)*) => {{
        let _ = std::io::Write::write_fmt(&mut std::io::stdout(), format_args!("{}\n", format_args!($($argument)*)));
    }};
}
pub(crate) use say;
