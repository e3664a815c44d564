//! Programs that end by themselves: `webhookctl`, and services that refuse to start.

use std::{collections::HashMap, process::Stdio};

use tokio::{process::Command, time::timeout};

use crate::{processes::binary, wait::SOON};

/// The result of a program that has ended.
#[derive(Debug)]
pub struct Ran {
    /// The exit code, -1 after a signal.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Ran {
    /// Standard output of a program that succeeded and wrote nothing to standard error.
    ///
    /// # Panics
    /// When it did not.
    pub fn done(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{}", self.out);
        self.out
    }
}

/// A command without input and with these environment variables alone. The process is killed when it is dropped.
#[must_use]
pub fn command(program: &str, variables: &HashMap<String, String>, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary(program));
    command.args(arguments).env_clear().envs(variables).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs a command until it ends.
///
/// # Panics
/// When it does not end soon.
pub async fn run(mut command: Command) -> Ran {
    let output = timeout(SOON, command.output()).await.unwrap_or_else(|_| panic!("{command:?} did not end"));
    let output = output.expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("the output is text");
    Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// Runs `webhookctl`.
pub async fn webhookctl(variables: &HashMap<String, String>, arguments: &[&str]) -> Ran {
    run(command("webhookctl", variables, arguments)).await
}

/// Runs `webhookctl`, which must succeed and write nothing to standard error. Returns its standard output.
pub async fn done(variables: &HashMap<String, String>, arguments: &[&str]) -> String {
    webhookctl(variables, arguments).await.done()
}

/// Standard error of a program that must end by itself, with an error.
///
/// # Panics
/// When it succeeds, runs on, or panics.
pub async fn refusal(program: &str, variables: &HashMap<String, String>, arguments: &[&str]) -> String {
    let Ran { code, err, .. } = run(command(program, variables, arguments)).await;
    assert!(code > 0 && !err.contains("panicked"), "{program} ended with {code}: {err}");
    err
}
