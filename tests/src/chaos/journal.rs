//! What happened and when, on standard output and in the folder of the logs.

use std::{
    fmt::Display,
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Instant,
};

use super::{fixtures::now, plan::Options};

/// The journal, with the storm's folder and clock.
pub(super) struct Journal {
    pub(super) folder: PathBuf,
    began: Instant,
    file: Mutex<File>,
    misconduct: Mutex<Vec<String>>,
}

impl Journal {
    /// Opens a new folder in `parent`, named by seed and process id.
    pub(super) fn open(parent: &Path, options: &Options) -> Self {
        let folder = parent.join(format!("seed-{}-{}", options.seed, std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        let file = Mutex::new(File::create(folder.join("storm.log")).expect("the journal can be written"));
        Self { folder, began: Instant::now(), file, misconduct: Mutex::default() }
    }

    pub(super) fn say(&self, what: impl Display) {
        let line = format!("{:6.1} s  {what}", self.began.elapsed().as_secs_f64());
        println!("{line}");
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writeln!(file, "{}  {line}", now());
    }

    /// Says something and records it as misconduct.
    pub(super) fn accuse(&self, what: impl Display) {
        self.say(format_args!("! {what}"));
        self.misconduct.lock().unwrap_or_else(PoisonError::into_inner).push(what.to_string());
    }

    pub(super) fn misconduct(&self) -> Vec<String> {
        self.misconduct.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
