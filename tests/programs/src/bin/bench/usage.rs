//! The cost of processes, from `/proc`.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
};

/// Linux counts CPU time in hundredths of a second.
const MICROSECONDS_PER_TICK: f64 = 10_000.0;

/// Microseconds of CPU, by the name of the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage(pub(crate) BTreeMap<&'static str, f64>);

impl Usage {
    pub(crate) fn add(&mut self, name: &'static str, microseconds: f64) {
        *self.0.entry(name).or_default() += microseconds;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (name, microseconds) in &other.0 {
            self.add(name, *microseconds);
        }
    }

    /// What was used since `earlier`.
    #[must_use]
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let before = |name| earlier.0.get(name).copied().unwrap_or_default();
        Self(self.0.iter().map(|(name, now)| (*name, now - before(name))).collect())
    }

    pub(crate) fn sum(&self) -> f64 {
        self.0.values().sum()
    }
}

struct Stat {
    parent: u32,
    own: f64,
    /// The CPU of children that have ended.
    ended: f64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| Some(fields.get(at)?.parse::<f64>().ok()? * MICROSECONDS_PER_TICK);
    Some(Stat { parent: fields.get(1)?.parse().ok()?, own: ticks(11)? + ticks(12)?, ended: ticks(13)? + ticks(14)? })
}

/// The CPU of a process with all its threads, in microseconds.
pub(crate) fn of_process(pid: u32) -> f64 {
    stat(pid).map_or(0.0, |stat| stat.own)
}

/// The CPU of a process and its descendants, also of those that have ended, in microseconds.
pub(crate) fn of_tree(root: u32) -> f64 {
    tree(root).into_iter().filter_map(stat).map(|stat| stat.own + stat.ended).sum()
}

/// The largest resident size that a process has had, in megabytes.
pub(crate) fn peak(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kibibytes =
        text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse::<f64>().ok());
    kibibytes.unwrap_or_default() * 1024.0 / 1e6
}

fn tree(root: u32) -> Vec<u32> {
    let mut children = HashMap::<u32, Vec<u32>>::new();
    let processes = fs::read_dir("/proc").expect("this is Linux");
    for pid in processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok()) {
        if let Some(stat) = stat(pid) {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    let (mut found, mut next) = (vec![root], 0);
    while let Some(pid) = found.get(next) {
        found.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    found
}
