//! What pages for operators name exists.

use std::{collections::BTreeSet, path::Path};

use crate::root;

const PAGES: [&str; 3] = ["SECURITY.md", "deploy/security.md", "deploy/hosts.md"];

/// The anchors of a page's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings =
        text.lines().filter_map(|line| line.strip_prefix('#')).map(|line| line.trim_start_matches('#').trim());
    let letter = |letter: char| match letter {
        ' ' => Some('-'),
        letter if letter.is_alphanumeric() || letter == '-' || letter == '_' => Some(letter.to_ascii_lowercase()),
        _ => None,
    };
    headings.map(|heading| heading.chars().filter_map(letter).collect()).collect()
}

/// What is wrong with a page: links that lead nowhere, and files in backticks that do not exist.
fn faults(page: &str, text: &str) -> Vec<String> {
    let folder = root().join(page).parent().map(Path::to_path_buf).unwrap_or_default();
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let leads_nowhere = |link: &&str| {
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        if file.is_empty() {
            return !anchors(text).contains(anchor);
        }
        match std::fs::read_to_string(folder.join(file)) {
            Ok(text) => !anchor.is_empty() && !anchors(&text).contains(anchor),
            Err(_) => !folder.join(file).is_dir(),
        }
    };
    let links = links.filter(|link| !link.contains("://")).filter(leads_nowhere).map(|link| format!("{page}: {link}"));
    let quoted = text.split('`').skip(1).step_by(2);
    let is_file = |word: &&str| ["crates/", "tests/", "proto-schemas/"].iter().any(|folder| word.starts_with(folder));
    let files = quoted.filter(is_file).filter(|file| !root().join(file).exists());
    links.chain(files.map(|file| format!("{page}: {file}"))).collect()
}

#[test]
fn links_and_files_of_pages_exist() {
    let read = |page: &str| std::fs::read_to_string(root().join(page)).unwrap();
    let found: Vec<_> = PAGES.iter().flat_map(|page| faults(page, &read(page))).collect();
    assert!(found.is_empty(), "{found:#?}");
    let bad = "# One\n[a](#one) [b](#two) [c](nothing.md) `crates/nothing.rs` `crates/ledger`";
    assert_eq!(faults("deploy/security.md", bad).len(), 3, "a fault is found");
}
