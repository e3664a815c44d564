//! The explorer: breadth first, so the first trace to a violation is a shortest one.

use std::{
    collections::VecDeque,
    fmt,
    hash::{Hash, Hasher},
};

use crate::{
    config::Config,
    dispatcher, ingest, leader,
    properties::{violated, violated_at_rest},
    relay,
    state::State,
    step::{Kind, Next, Steps},
    world,
};

/// The result of a search without a violation.
#[derive(Clone, Copy, Debug)]
pub struct Explored {
    /// States.
    pub states: usize,
    /// Steps of the longest of all shortest ways to a state.
    pub depth: usize,
    /// True if there are no more states.
    pub is_whole: bool,
}

/// A violated property with a shortest trace to it.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The property, in words.
    pub property: &'static str,
    /// The steps, each a line.
    pub trace: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, after {} steps:", self.property, self.trace.len())?;
        self.trace.iter().zip(1..).try_for_each(|(line, number)| writeln!(f, "{number:>3}. {line}"))
    }
}

/// Tries every run of a configuration, up to this number of states.
///
/// # Errors
/// The first property that is violated, with a shortest trace.
pub fn explore(config: &Config, most: usize) -> Result<Explored, Violation> {
    let start = world::start(config);
    let mut seen = Seen::default();
    seen.add(fingerprint(&start), 0);
    let (mut states, mut edges, mut next) = (VecDeque::from([Box::new(start)]), Edges::default(), Vec::new());
    let (mut expanded, mut depth, mut last_of_depth) = (0_u32, 0, 0);
    while let Some(state) = states.pop_front() {
        if seen.len() > most {
            return Ok(Explored { states: seen.len(), depth, is_whole: false });
        }
        steps_of(config, &state, &mut next);
        let is_at_rest = !next.iter().any(|(step, _)| step.kind == Kind::Usual);
        if let Some(property) = is_at_rest.then(|| violated_at_rest(&state)).flatten() {
            return Err(Violation { property, trace: trace(config, &seen, expanded) });
        }
        for (step, after) in &next {
            let (index, is_new) = seen.add(fingerprint(after), expanded);
            if step.kind == Kind::Usual {
                edges.to.push(index);
            }
            if is_new {
                if let Some(property) = violated(config, &state, step, after) {
                    return Err(Violation { property, trace: trace(config, &seen, index) });
                }
                states.push_back(Box::new(*after));
            }
        }
        edges.end.push(u32::try_from(edges.to.len()).unwrap_or(u32::MAX));
        if expanded == last_of_depth && !states.is_empty() {
            (depth, last_of_depth) = (depth + 1, seen.last());
        }
        expanded += 1;
    }
    match edges.circle() {
        Some(index) => Err(Violation { property: "a run goes round in a circle", trace: trace(config, &seen, index) }),
        None => Ok(Explored { states: seen.len(), depth, is_whole: true }),
    }
}

fn steps_of(config: &Config, state: &State, next: &mut Vec<Next>) {
    next.clear();
    let steps = &mut Steps { config, state, next };
    ingest::steps(steps);
    (0..2).for_each(|number| dispatcher::steps(steps, number));
    (0..2).for_each(|number| relay::steps(steps, number));
    leader::steps(steps);
    world::steps(steps);
}

/// The lines of the steps to a state.
fn trace(config: &Config, seen: &Seen, to: u32) -> Vec<String> {
    let mut way = vec![to];
    while let Some(before) = way.last().filter(|index| **index > 0) {
        way.push(seen.parents[*before as usize]);
    }
    let (mut state, mut next, mut lines) = (world::start(config), Vec::new(), Vec::new());
    for index in way.into_iter().rev().skip(1) {
        steps_of(config, &state, &mut next);
        let fingerprint_there = seen.fingerprints[index as usize];
        let Some((step, after)) = next.iter().find(|(_, after)| fingerprint(after) == fingerprint_there) else { break };
        let mut line = step.to_string();
        for (delivery, row) in after.stored().filter(|(delivery, row)| {
            let old = state.rows[*delivery].map(|old| old.to_string());
            old != Some(row.to_string())
        }) {
            line.push_str(&format!(" [delivery {}: {row}]", delivery + 1));
        }
        lines.push(line);
        state = *after;
    }
    lines
}

/// The states that were seen, by their fingerprints, in the order in which they were found.
#[derive(Default)]
struct Seen {
    fingerprints: Vec<u64>,
    parents: Vec<u32>,
    /// Places of the fingerprints, from 1, by their first bits. 0 is free.
    table: Vec<u32>,
}

impl Seen {
    fn len(&self) -> usize {
        self.fingerprints.len()
    }

    fn last(&self) -> u32 {
        u32::try_from(self.len() - 1).unwrap_or(u32::MAX)
    }

    /// Returns the place of a state, and whether it is new.
    fn add(&mut self, fingerprint: u64, parent: u32) -> (u32, bool) {
        if self.len() * 4 >= self.table.len() * 3 {
            self.grow();
        }
        let slot = self.slot(fingerprint);
        if let Some(index) = self.table[slot].checked_sub(1) {
            return (index, false);
        }
        self.fingerprints.push(fingerprint);
        self.parents.push(parent);
        self.table[slot] = self.last() + 1;
        (self.last(), true)
    }

    /// The slot of a fingerprint, or the free one where it belongs.
    fn slot(&self, fingerprint: u64) -> usize {
        let mask = self.table.len() - 1;
        let mut slot = fingerprint as usize & mask;
        while let Some(index) = self.table[slot].checked_sub(1) {
            if self.fingerprints[index as usize] == fingerprint {
                break;
            }
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) {
        self.table = vec![0; (self.table.len() * 2).max(1 << 10)];
        for (index, fingerprint) in (1..).zip(&self.fingerprints) {
            let slot = self.slot(*fingerprint);
            self.table[slot] = index;
        }
    }
}

/// What follows each state by itself. (What a budget bounds goes round in no circle.)
#[derive(Default)]
struct Edges {
    to: Vec<u32>,
    end: Vec<u32>,
}

impl Edges {
    /// A state to which a run returns, if there is one: a search by depth meets one that it has not left.
    fn circle(&self) -> Option<u32> {
        const LEFT: u8 = 2;
        let mut marks = vec![0_u8; self.end.len()];
        for start in 0..self.end.len() {
            let mut way = vec![(start, self.first(start))];
            if marks[start] == LEFT {
                continue;
            }
            marks[start] = 1;
            while let Some((index, edge)) = way.last_mut() {
                if *edge == self.end[*index] as usize {
                    marks[*index] = LEFT;
                    way.pop();
                    continue;
                }
                let to = self.to[*edge] as usize;
                *edge += 1;
                match marks[to] {
                    0 => {
                        marks[to] = 1;
                        way.push((to, self.first(to)));
                    }
                    LEFT => {}
                    _ => return u32::try_from(to).ok(),
                }
            }
        }
        None
    }

    fn first(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.end[before] as usize)
    }
}

/// Both dispatchers are alike: a state has the fingerprint of the one in which they are exchanged.
fn fingerprint(state: &State) -> u64 {
    let of = |what: &dyn Fn(&mut Folded)| {
        let mut hasher = Folded(0x243f_6a88_85a3_08d3);
        what(&mut hasher);
        hasher.finish()
    };
    let [one, other] = state.dispatchers.map(|dispatcher| of(&|hasher| dispatcher.hash(hasher)));
    of(&|hasher| {
        let State { events, jobs, rows, webhook, wakes, is_cancelling, ingests, relays, leader, .. } = state;
        (events, jobs, rows, webhook, wakes, is_cancelling, ingests, relays, leader).hash(hasher);
        (state.budget, state.accepted, state.was_under_way).hash(hasher);
        (one.min(other), one.max(other)).hash(hasher);
    })
}

/// Multiplies to 128 bits and folds them. Two of 20 million states have one fingerprint with a probability of 1 in 100,000.
struct Folded(u64);

impl Folded {
    fn fold(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }
}

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.fold(u64::from(*byte) + 1));
    }

    fn write_u8(&mut self, byte: u8) {
        self.fold(u64::from(byte) + 1);
    }

    fn write_usize(&mut self, number: usize) {
        self.fold(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.fold(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
