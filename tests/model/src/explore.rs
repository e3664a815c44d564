//! The explorer: breadth first, so the first trace to a violation is a shortest one.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    fmt,
    hash::{BuildHasher, BuildHasherDefault, Hasher},
};

use crate::{dispatcher, dispatcher::Dispatcher, ingest, leader, prelude::*, properties, relay, world};

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

/// Tries every run of a configuration, up to this number of states. Returns how many there are: more than the number if it has
/// not seen all.
///
/// # Errors
/// The first property that is violated, with a shortest trace.
pub fn explore(config: &Config, most: usize) -> Result<usize, Violation> {
    let start = world::start(config);
    let mut seen = Seen::default();
    seen.add(fingerprint(&start), 0);
    let (mut states, mut next) = (VecDeque::from([Box::new(start)]), Vec::new());
    // Of each state in turn the states to which its usual steps lead, and where these end.
    let (mut usual, mut ends, mut expanded) = (Vec::new(), vec![0], 0);
    let violation = |property, seen: &Seen, at| Err(Violation { property, trace: trace(config, seen, at) });
    while let Some(state) = states.pop_front() {
        if seen.parents.len() > most {
            return Ok(seen.parents.len());
        }
        steps_of(config, &state, &mut next);
        let is_at_rest = next.iter().all(|(step, _)| step.may.is_some());
        if let Some(property) = is_at_rest.then(|| properties::violated_at_rest(&state)).flatten() {
            return violation(property, &seen, expanded);
        }
        for one in &next {
            let (step, after) = one;
            let (index, is_new) = seen.add(fingerprint(after), expanded);
            if step.may.is_none() {
                usual.push(index);
            }
            if is_new {
                if let Some(property) = properties::violated(config, &state, one) {
                    return violation(property, &seen, index);
                }
                states.push_back(Box::new(*after));
            }
        }
        ends.push(usual.len());
        expanded += 1;
    }
    let mut is_left = vec![None; ends.len()];
    match (0..expanded).find_map(|start| met(start, (&usual, &ends), &mut is_left)) {
        Some(index) => violation("a run goes round in a circle", &seen, index),
        None => Ok(seen.parents.len()),
    }
}

/// Searches the runs from a state by depth: one that returns meets a state that the search has not left. What a budget bounds
/// returns to none. A run is some tens of steps long, and so is the recursion.
fn met(at: u32, (usual, ends): (&[u32], &[usize]), is_left: &mut [Option<bool>]) -> Option<u32> {
    if let Some(is_left) = is_left[at as usize] {
        return (!is_left).then_some(at);
    }
    is_left[at as usize] = Some(false);
    let next = &usual[ends[at as usize]..ends[at as usize + 1]];
    let met = next.iter().find_map(|to| met(*to, (usual, ends), is_left));
    is_left[at as usize] = Some(true);
    met
}

fn steps_of(config: &Config, state: &State, next: &mut Vec<(Step, State)>) {
    next.clear();
    let steps = &mut Steps { config, state, next, actor: "" };
    ingest::steps(steps.by("event-ingest"));
    (0..).zip(["dispatcher A", "dispatcher B"]).for_each(|(number, name)| dispatcher::steps(steps.by(name), number));
    (0..).zip(["relay A", "relay B"]).for_each(|(number, name)| relay::steps(steps.by(name), number));
    leader::steps(steps.by("leader"));
    world::steps(steps);
    next.iter_mut().for_each(|(_, after)| after.sort());
}

/// The lines of the steps to a state.
fn trace(config: &Config, seen: &Seen, to: u32) -> Vec<String> {
    let parent = |index: &u32| (*index > 0).then(|| seen.parents[*index as usize]);
    let mut way: Vec<u32> = std::iter::successors(Some(to), parent).collect();
    way.pop();
    let (mut state, mut next, mut lines) = (world::start(config), Vec::new(), Vec::new());
    for index in way.into_iter().rev() {
        steps_of(config, &state, &mut next);
        let is_there = |(_, after): &&(Step, State)| seen.places.get(&fingerprint(after)) == Some(&index);
        let Some((step, after)) = next.iter().find(is_there) else { break };
        let mut line = step.to_string();
        for (delivery, row) in after.stored().map(|(delivery, row)| (delivery, row.to_string())) {
            if state.rows[delivery].is_none_or(|old| old.to_string() != row) {
                line.push_str(&format!(" [delivery {}: {row}]", delivery + 1));
            }
        }
        lines.push(line);
        state = *after;
    }
    lines
}

/// The states that were seen, by their fingerprints, with their numbers in the order in which they were found.
#[derive(Default)]
struct Seen {
    places: HashMap<u64, u32, BuildHasherDefault<Folded>>,
    parents: Vec<u32>,
}

impl Seen {
    /// Returns the place of a state, and whether it is new.
    fn add(&mut self, fingerprint: u64, parent: u32) -> (u32, bool) {
        let next = u32::try_from(self.parents.len()).unwrap_or(u32::MAX);
        match self.places.entry(fingerprint) {
            Entry::Occupied(place) => (*place.get(), false),
            Entry::Vacant(place) => {
                self.parents.push(parent);
                (*place.insert(next), true)
            }
        }
    }
}

/// Both dispatchers are alike: a state has the fingerprint of the one in which they are exchanged.
fn fingerprint(state: &State) -> u64 {
    let hash = BuildHasherDefault::<Folded>::default();
    let [one, other] = state.dispatchers.map(|dispatcher| hash.hash_one(dispatcher));
    hash.hash_one((one.min(other), one.max(other), State { dispatchers: [Dispatcher::IDLE; 2], ..*state }))
}

/// Multiplies to 128 bits and folds them. Two of 20 million states have one fingerprint with a probability of 1 in 100,000.
#[derive(Default)]
struct Folded(u64);

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u8(*byte));
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_usize(byte.into());
    }

    fn write_usize(&mut self, word: usize) {
        let product = u128::from(self.0 ^ 0x243f_6a88_85a3_08d3 ^ word as u64) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
