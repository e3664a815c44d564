//! A part of the measurement in a process of its own, so that its cost can be told apart.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child as Process, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Mutex, PoisonError},
};

/// This program in another role. It ends when its standard input ends: with this process at the latest.
pub(crate) struct Child {
    pid: u32,
    talk: Mutex<Talk>,
}

struct Talk {
    process: Process,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Child {
    /// Starts it and waits for its first line.
    pub(crate) fn start(role: &str, arguments: &[String]) -> (Self, String) {
        let program = std::env::current_exe().expect("this program has a path");
        let mut process = Command::new(program)
            .arg(role)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program runs");
        let input = process.stdin.take();
        let mut output = BufReader::new(process.stdout.take().expect("it is piped"));
        let first = line(role, &mut output);
        (Self { pid: process.id(), talk: Mutex::new(Talk { process, input, output }) }, first)
    }

    pub(crate) const fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a line and returns the line that answers it.
    pub(crate) fn ask(&self, question: &str) -> String {
        let mut talk = self.talk.lock().unwrap_or_else(PoisonError::into_inner);
        let input = talk.input.as_mut().expect("it is open until the end");
        writeln!(input, "{question}").expect("the child reads");
        line(question, &mut talk.output)
    }
}

fn line(what: &str, output: &mut impl BufRead) -> String {
    let mut line = String::new();
    let read = output.read_line(&mut line).expect("the child writes text");
    assert!(read > 0, "the child ended before it answered: {what}");
    line.trim_end().to_owned()
}

impl Drop for Child {
    fn drop(&mut self) {
        let talk = self.talk.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(talk.input.take());
        let _ = talk.process.wait();
    }
}
