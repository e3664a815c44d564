//! `rabbitmqctl`, as a command that the operator names, and its answers in JSON.

use std::{process::Stdio, time::Duration};

use serde_json::Value;
use tokio::{process::Command, time::timeout};

use super::super::observed::Looked;

/// How long a command may take. It starts a virtual machine each time.
const PATIENCE: Duration = Duration::from_secs(15);

/// Runs one command and reads its answer. The words of `command` are separated by blanks; no shell reads them.
pub(super) async fn ask(command: &str, arguments: &[&str]) -> Looked<Value> {
    let mut words = command.split_whitespace();
    let program = words.next().ok_or("--rabbitmqctl is empty")?;
    let mut process = Command::new(program);
    process.args(words).args(arguments).args(["--silent", "--formatter", "json"]);
    process.stdin(Stdio::null()).kill_on_drop(true);
    let output = match timeout(PATIENCE, process.output()).await {
        Err(_) => return Err(format!("{command}: no answer within {} s", PATIENCE.as_secs())),
        Ok(Err(error)) => return Err(format!("{command}: {error}")),
        Ok(Ok(output)) => output,
    };
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        let line = told.lines().chain(text.lines()).map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        return Err(format!("{command} {} failed: {}", arguments[0], domain::shortened(domain::visible(line), 200)));
    }
    read(&text).ok_or_else(|| format!("{command} {}: no JSON in its answer", arguments[0]))
}

/// The JSON in an answer, which may begin with lines for people. An empty answer is an empty list.
fn read(text: &str) -> Option<Value> {
    if text.trim().is_empty() {
        return Some(Value::Array(Vec::new()));
    }
    text.match_indices(['[', '{']).find_map(|(at, _)| serde_json::from_str(text[at..].trim()).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_may_be_empty_or_begin_with_lines_for_people() {
        assert_eq!(read("\n"), Some(json!([])));
        assert_eq!(read("[\n]\n"), Some(json!([])));
        assert_eq!(read("Listing [all] policies ...\n[{\"a\":1}]"), Some(json!([{"a": 1}])));
        assert_eq!(read("name\tpolicy\n"), None);
    }

    #[tokio::test]
    async fn a_command_that_fails_or_does_not_exist_is_named() {
        let failed = ask("sh -c false", &["list_queues"]).await;
        assert_eq!(failed, Err("sh -c false list_queues failed: ".to_owned()));
        let missing = ask("/no/such/program", &["list_queues"]).await.unwrap_err();
        assert!(missing.starts_with("/no/such/program: ") && missing.contains("No such file"), "{missing}");
        assert!(ask(" ", &["list_queues"]).await.is_err());
    }
}
