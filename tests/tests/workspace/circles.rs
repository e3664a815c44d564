//! Imports between the files of a crate go one way: to read a file, nobody has to read those that use it.
//!
//! What counts is a path that begins with `crate` or `super`. A file may name the modules of its own folder by `self`,
//! or bare: the folder is a part of the file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::root;

/// The text of each file, or what each file imports, by the path of its module.
type Code = BTreeMap<String, String>;
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Reads the files below a folder, without comments and tests.
fn read(folder: &Path, module: &str, code: &mut Code) {
    for path in fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
        let name = format!("{module}::{}", path.file_stem().unwrap().display());
        if path.is_dir() {
            read(&path, &name, code);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !name.ends_with("::tests") {
            let text = fs::read_to_string(path).unwrap();
            let production = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let lines: Vec<_> = production.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            code.insert(name, lines.join("\n"));
        }
    }
}

/// Every path of the tree that a text begins with, such as `a::{b, c::d}`, and what follows the tree.
fn paths<'t>(prefix: &str, text: &'t str) -> (Vec<String>, &'t str) {
    let is_of_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let (segments, mut rest) = text.split_at(text.find(|c| !is_of_path(c)).unwrap_or(text.len()));
    let path = format!("{prefix}{segments}");
    if !rest.starts_with('{') {
        return (vec![path], rest);
    }
    let mut found = Vec::new();
    while rest.starts_with(['{', ',']) {
        let (inner, after) = paths(&path, rest[1..].trim_start());
        found.extend(inner);
        rest = &after[after.find([',', '}']).unwrap_or(after.len())..];
    }
    (found, rest.strip_prefix('}').unwrap_or(rest))
}

/// The file that a path of another file leads to.
fn target(path: &str, from: &str, code: &Code) -> Option<String> {
    let (mut base, mut path) = (from, path);
    while let Some(rest) = path.strip_prefix("super::") {
        (base, path) = (base.rsplit_once("::")?.0, rest);
    }
    let mut module = path.strip_prefix("crate").map_or_else(|| format!("{base}::{path}"), str::to_owned);
    while !code.contains_key(&module) {
        module.truncate(module.rfind("::")?);
    }
    Some(module)
}

fn imports_of(from: &str, code: &Code) -> BTreeSet<String> {
    let text = &code[from];
    let begins = ["crate::", "super::"].iter().flat_map(|word| text.match_indices(word)).map(|(at, _)| at);
    let whole = begins.filter(|at| !text[..*at].ends_with(|c: char| c.is_alphanumeric() || "_:$".contains(c)));
    let found = whole.flat_map(|at| paths("", &text[at..]).0);
    found.filter_map(|path| target(&path, from, code)).filter(|target| target != from).collect()
}

/// All that a file imports, and all that these import.
fn reach<'i>(from: &'i str, imports: &'i Imports) -> BTreeSet<&'i str> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        next.extend(imports[file].iter().map(String::as_str).filter(|import| seen.insert(*import)));
    }
    seen
}

/// The files of each circle.
fn circles(code: &Code) -> BTreeSet<String> {
    let imports: Imports = code.keys().map(|file| (file.clone(), imports_of(file, code))).collect();
    let circle_of = |file: &String| {
        let back = reach(file, &imports).into_iter().filter(|other| reach(other, &imports).contains(file.as_str()));
        back.collect::<Vec<_>>().join(" ")
    };
    code.keys().map(circle_of).filter(|circle| !circle.is_empty()).collect()
}

#[test]
fn no_file_imports_in_a_circle() {
    let mut faults = Vec::new();
    let crates = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    for folder in crates.chain([root().join("tests")]) {
        let mut code = Code::new();
        read(&folder.join("src"), "", &mut code);
        let name = folder.file_name().unwrap().display();
        faults.extend(circles(&code).into_iter().map(|files| format!("{name}: {files}")));
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn a_circle_is_found_however_its_imports_are_written() {
    let circles_of = |files: [(&str, &str); 3]| circles(&files.map(|(file, text)| (file.into(), text.into())).into());
    let below = ("::a::low", "use super::super::c::{self, C as D, d::*};");
    assert!(circles_of([("::a", "use self::low::Low;"), below, ("::c", "use crate::*;")]).is_empty());
    let found = circles_of([("::b", "crate::a::low::x()"), below, ("::c", "use crate::{x::X as Y, b::{y, B}};")]);
    assert_eq!(found, BTreeSet::from(["::a::low ::b ::c".to_owned()]));
}
