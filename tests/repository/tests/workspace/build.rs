//! The rules of the build: nothing is skipped in silence, and nothing is built twice.

use std::{collections::BTreeSet, fs, process::Command};

use crate::{ours, root};

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Lines of a shell script that are code.
fn code(script: &str) -> Vec<&str> {
    script.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

#[test]
fn the_checks_of_a_change_are_two_targets_and_skip_nothing() {
    let script = text(".ci/run");
    let expected =
        ["set -euo pipefail", r#"cd "$(dirname "$0")/..""#, "export CARGO_INCREMENTAL=0", "make lint", "make test"];
    assert_eq!(code(&script), expected);
    assert!(!script.contains("SKIP"), ".ci/run may not leave out tests");
}

#[test]
fn a_tool_that_is_missing_fails_the_run_and_names_the_command() {
    // No apt-get in this path, and a folder of its own: nothing is installed and nothing is found.
    let folder = std::env::temp_dir().join(format!("tools-{}", std::process::id()));
    let programs = folder.join("programs");
    fs::create_dir_all(&programs).unwrap();
    for program in
        ["bash", "env", "dirname", "realpath", "mkdir", "flock", "id", "cat", "rm", "head", "tail", "sed", "grep"]
    {
        let found = ["/usr/bin", "/bin"].map(|below| std::path::Path::new(below).join(program));
        let found = found.iter().find(|path| path.exists()).unwrap_or_else(|| panic!("{program} is in /usr/bin"));
        std::os::unix::fs::symlink(found, programs.join(program)).unwrap();
    }
    let run = |skip: &str| {
        let mut tools = Command::new(root().join("deploy/local/tools"));
        tools.args(["chromium", "php"]).env_clear().env("PATH", &programs).env("STACK_DIR", folder.join("stack"));
        let output = tools.env("SKIP", skip).output().unwrap();
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
        (output.status.code(), said)
    };
    let (code, said) = run("");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("install --no-install-recommends chromium chromium-driver"), "{said}");
    assert!(said.contains("SKIP='chromium php'"), "{said}");
    let (code, said) = run("chromium,php");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("chromium is left out (SKIP)"), "{said}");
    let (code, said) = run("chromium phq");
    assert_eq!(code, Some(2), "a typing mistake is no skip: {said}");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn only_crates_with_examples_in_their_documentation_run_these() {
    let (mut faults, makefile) = (Vec::new(), text("Makefile"));
    for package in ours().packages {
        let folder = package.manifest_path.parent().unwrap();
        for target in package.targets.iter().filter(|target| target.is_lib()) {
            let readme = fs::read_to_string(folder.join("README.md")).unwrap();
            let has_examples = readme.contains("```rust");
            if target.doctest != has_examples
                || makefile.contains(&format!("-p {} --doc", package.name)) != has_examples
            {
                faults.push(format!("{}: doctest = {}", package.name, target.doctest));
            }
        }
    }
    assert!(
        faults.is_empty(),
        "{faults:?}: set it as README.md has examples in Rust, or none, and run them in the Makefile's `unit`"
    );
}

#[test]
fn make_test_runs_every_test_program() {
    let makefile = text("Makefile");
    let lists = makefile.lines().filter_map(|line| line.split_once("_SERVERS := "));
    let listed: BTreeSet<_> = lists.flat_map(|(_, names)| names.split_whitespace()).map(str::to_owned).collect();
    let packages = ours().packages;
    let targets = packages.iter().flat_map(|package| &package.targets);
    let programs: BTreeSet<_> = targets.filter(|target| target.is_test()).map(|target| target.name.clone()).collect();
    assert_eq!(listed, programs);
}
