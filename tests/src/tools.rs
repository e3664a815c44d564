//! Programs of others that tests need. `deploy/local/tools` installs them.

use std::{
    env,
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    thread,
};

use crate::servers::{repository, stack_folder};

/// A program, by its name in `deploy/local/tools` and in `SKIP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Chromium and its driver.
    Chromium,
    /// Go.
    Go,
    /// Node and the modules of the samples.
    Node,
    /// PgBouncer.
    Pgbouncer,
    /// PHP.
    Php,
    /// Prometheus and promtool.
    Prometheus,
    /// Python and the libraries of the samples.
    Python,
}

impl Tool {
    /// Returns whether a test uses the tool: not if `SKIP` names it. Such a test is listed at the end of `make test`.
    ///
    /// # Panics
    /// When the tool is missing.
    pub fn is_used(self) -> bool {
        let name = self.name();
        let skip = env::var("SKIP").unwrap_or_default();
        if skip.split([' ', ',']).any(|skipped| skipped == name) {
            note_skipped(name);
            return false;
        }
        let missing: Vec<_> = self.programs().into_iter().filter(|program| find(program).is_none()).collect();
        assert!(
            missing.is_empty(),
            "{missing:?} is missing: run `deploy/local/tools {name}`, or leave it out: SKIP={name}"
        );
        true
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Chromium => "chromium",
            Self::Go => "go",
            Self::Node => "node",
            Self::Pgbouncer => "pgbouncer",
            Self::Php => "php",
            Self::Prometheus => "prometheus",
            Self::Python => "python",
        }
    }

    fn programs(self) -> Vec<PathBuf> {
        let own = |paths: &[&str]| paths.iter().map(PathBuf::from).collect();
        let below = |paths: &[&str]| paths.iter().map(|path| stack_folder().join(path)).collect();
        match self {
            Self::Chromium => own(&["chromium", "chromedriver"]),
            Self::Go => own(&["go"]),
            Self::Node => {
                [own(&["node"]), below(&["receivers/node_modules/amqplib", "clients/node_modules/typescript"])].concat()
            }
            Self::Pgbouncer => own(&["pgbouncer"]),
            Self::Php => own(&["php"]),
            Self::Prometheus => own(&["prometheus", "promtool"]),
            Self::Python => {
                [own(&["python3"]), below(&["receivers/venv/bin/python", "clients/venv/bin/openapi-python-client"])]
                    .concat()
            }
        }
    }
}

/// The path of a program: in the search path, in Debian's folder for servers, or a path that exists.
#[must_use]
pub fn find(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.exists().then(|| program.to_owned());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// Notes for the end of `make test` that the test of this thread was left out.
fn note_skipped(tool: &str) {
    let file = repository().join("target/skipped");
    let line = format!("{tool}: {}\n", thread::current().name().unwrap_or("a test"));
    let opened = OpenOptions::new().create(true).append(true).open(&file);
    opened.and_then(|mut file| file.write_all(line.as_bytes())).expect("target/skipped can be written");
}
