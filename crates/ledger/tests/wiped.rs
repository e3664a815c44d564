//! An opened secret leaves no copy behind: the process searches its own memory.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "clippy knows functions that are tests, not crates that are")]

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
};

use domain::{HeaderChange, ReceiverHeaders};
use ledger::SecretKeys;
use signing::SigningSecret;
use uuid::Uuid;

/// The text to find and the memory to search are XORed with this, so that the search does not find itself.
const MASK: u8 = 0x55;

/// Bytes read at a time, and how far apart reads begin. Reads overlap, as a copy may lie across two.
const STEP: usize = 4096 + 64;
const STRIDE: usize = 4096;

/// Counts the masked text in the writable memory of this process, except the main stack.
fn copies(masked: &[u8]) -> usize {
    let memory = File::open("/proc/self/mem").unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut found = 0;
    for line in maps.lines().filter(|line| line.contains(" rw") && !line.contains("[stack]")) {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let address = |text| u64::from_str_radix(text, 16).unwrap();
        let (mut at, end) = (address(start), address(end));
        // The buffer is small: a large one would be part of the memory it is filled from.
        let mut bytes = [0; STEP];
        while at < end {
            let read = memory.read_at(&mut bytes, at).unwrap_or(0);
            bytes[..read].iter_mut().for_each(|byte| *byte ^= MASK);
            let here = bytes[..read].windows(masked.len()).enumerate();
            let new = here.filter(|(start, window)| *start < STRIDE && *window == masked).count();
            found += new;
            bytes.fill(0);
            at += STRIDE as u64;
        }
    }
    found
}

/// In one test: beside a search, another one's buffer would hold what is searched for.
#[test]
fn opened_secrets_leave_no_copy_in_memory() {
    a_signing_secret_leaves_none();
    headers_leave_none();
}

fn a_signing_secret_leaves_none() {
    let keys: SecretKeys = format!("test:{}", "7".repeat(64)).parse().unwrap();
    let webhook = Uuid::from_u128(1).into();
    let secret = SigningSecret::generate().unwrap();
    // The allocator overwrites the first bytes of freed memory, so the test looks for the last ones.
    let masked: Vec<u8> = secret.expose().bytes().skip(40).map(|byte| byte ^ MASK).collect();
    let sealed = keys.seal(webhook, &secret).unwrap();
    drop(secret);
    assert_eq!(copies(&masked), 0, "sealing leaves a copy");
    let opened = keys.open(webhook, &sealed).unwrap();
    assert!(copies(&masked) > 0, "the secret itself is not found");
    drop(opened);
    assert_eq!(copies(&masked), 0, "opening leaves a copy");
}

fn headers_leave_none() {
    let keys: SecretKeys = format!("test:{}", "7".repeat(64)).parse().unwrap();
    let webhook = Uuid::from_u128(2).into();
    let value = SigningSecret::generate().unwrap();
    let masked: Vec<u8> = value.expose().bytes().skip(40).map(|byte| byte ^ MASK).collect();
    let mut change = HeaderChange::default();
    change.add("X-Key", Some(value.expose())).unwrap();
    drop(value);
    let sealed = keys.seal_headers(webhook, &ReceiverHeaders::default().changed(&change).unwrap()).unwrap();
    drop(change);
    assert_eq!(copies(&masked), 0, "sealing leaves a copy");
    let opened = keys.open_headers(webhook, &sealed).unwrap();
    assert!(copies(&masked) > 0, "the value itself is not found");
    drop(opened);
    assert_eq!(copies(&masked), 0, "opening leaves a copy");
}
