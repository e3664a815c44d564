//! Clients that two generators make of the OpenAPI document, without a warning, against the real service.
use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use end_to_end::{
    servers::stack_folder,
    system::TestSystem,
    tools::{Tool, find},
};
use serde_json::json;
use tokio::process::Command;

use crate::samples::Folder;

/// The folder of the generators.
fn generators() -> PathBuf {
    stack_folder().join("clients")
}

/// Runs a program in a folder, which must succeed. Returns what it says on both outputs.
async fn run(folder: &Path, program: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(program);
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    command.args(arguments).current_dir(folder).env_clear().env("PATH", path).env("NO_COLOR", "1");
    command.envs(variables.iter().copied()).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", program.display());
    said
}

/// A generator says nothing but these lines.
fn assert_quiet(said: &str, usual: &[&str]) {
    let odd: Vec<_> =
        said.lines().filter(|line| !line.is_empty() && !usual.iter().any(|usual| line.starts_with(usual))).collect();
    assert!(odd.is_empty(), "it warns: {odd:#?}");
}

/// Runs a client against the real service.
async fn use_it(folder: &Folder, program: &Path, file: &str) {
    let system = TestSystem::shared().await;
    let ((tenant, admin), url) = (system.tenant().await, "https://localhost:9443/hook");
    let base = format!("http://{}/api/v1", admin.address);
    let key = admin.post("/api/v1/keys/", &json!({"name": file})).await.json();
    let variables = [("BASE_URL", base.as_str()), ("KEY", key["key"].as_str().unwrap()), ("URL", url)];
    let said = run(&folder.0, program, &[file], &variables).await;
    assert!(said.contains("registered ") && said.contains("its signing secret was shown"), "{said}");
    let theirs = format!("SELECT action FROM history WHERE tenant_id = '{tenant}' ORDER BY id");
    let history = system.sql(&theirs).await;
    let actions: Vec<String> = history.iter().map(|row| row.get(0)).collect();
    assert_eq!(actions, ["created", "deleted"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_typescript_client_is_made_without_warnings_and_works() {
    if !Tool::Node.is_used() {
        return;
    }
    let folder = Folder::below(&generators(), &["openapi.json", "clients/client.ts", "clients/tsconfig.json"]);
    fs::write(folder.0.join("package.json"), r#"{"private": true, "type": "module"}"#).unwrap();
    let programs = generators().join("node_modules/.bin");
    let arguments = ["openapi.json", "--default-non-nullable=false", "-o", "openapi.d.ts"];
    let said = run(&folder.0, &programs.join("openapi-typescript"), &arguments, &[]).await;
    assert_quiet(&said, &["✨ openapi-typescript ", "🚀 "]);
    assert_quiet(&run(&folder.0, &programs.join("tsc"), &["-p", "."], &[]).await, &[]);
    use_it(&folder, &find(Path::new("node")).unwrap(), "out/client.js").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_python_client_is_made_without_warnings_and_works() {
    if !Tool::Python.is_used() {
        return;
    }
    let folder = Folder::below(&generators(), &["openapi.json", "clients/client.py"]);
    let programs = generators().join("venv/bin");
    let arguments =
        ["generate", "--fail-on-warning", "--meta", "none", "--path", "openapi.json", "--output-path", "webhooks_api"];
    assert_quiet(&run(&folder.0, &programs.join("openapi-python-client"), &arguments, &[]).await, &["Generating "]);
    use_it(&folder, &programs.join("python"), "client.py").await;
}
