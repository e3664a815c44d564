//! Imports between the files of a crate go one way: to read a file, nobody has to read those that use it. So do the
//! imports between folders that stand side by side: a folder includes the file of its name.
//!
//! What counts is a path that begins with `crate`, `$crate` or `super`, and the file that defines what the path names,
//! through whichever files it is re-exported. A file may name the modules of its own folder by `self`, or bare: the folder is a
//! part of the file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::root;

/// The text of each file, or what each file imports, by the path of its module.
type Code = BTreeMap<String, String>;
type Imports = BTreeMap<String, BTreeSet<String>>;

/// The folder of each crate: the libraries, the programs, and the tests of several files.
fn crates() -> impl Iterator<Item = PathBuf> {
    let below = |folder: &str| fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let ours = below("crates").map(|folder| folder.join("src"));
    ours.chain([root().join("tests/src")]).chain(below("tests/programs/src/bin")).chain(below("tests/tests"))
}

/// Reads the files below a folder, without comments, tests and programs. `lib.rs` and `main.rs` are the crate itself.
fn read(folder: &Path, module: &str, code: &mut Code) {
    for path in fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
        let name = match path.file_stem().unwrap().to_str().unwrap() {
            "bin" | "tests" => continue,
            "lib" | "main" => module.to_owned(),
            stem => format!("{module}::{stem}"),
        };
        if path.is_dir() {
            read(&path, &name, code);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(path).unwrap();
            let production = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let lines = production.lines().filter(|line| !line.trim_start().starts_with("//"));
            code.entry(name).or_default().extend(lines.flat_map(|line| [line, "\n"]));
        }
    }
}

/// A path, and the name by which it is known where it is imported.
type Known = (String, String);

/// Every path of the tree that a text begins with, such as `a::{b, c::d as e}`, and what follows the tree.
fn paths<'t>(prefix: &str, text: &'t str) -> (Vec<Known>, &'t str) {
    if text.starts_with('}') {
        return (Vec::new(), text); // A comma ends the tree.
    }
    let is_of_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let (segments, mut rest) = text.split_at(text.find(|c| !is_of_path(c)).unwrap_or(text.len()));
    let path = format!("{prefix}{segments}");
    if !rest.starts_with('{') {
        let alias = rest.strip_prefix(" as ").and_then(|alias| alias.split(|c| !is_of_path(c)).next());
        let name = alias.or(path.rsplit("::").next()).unwrap_or_default().to_owned();
        return (vec![(path, name)], rest);
    }
    let mut found = Vec::new();
    while rest.starts_with(['{', ',']) {
        let (inner, after) = paths(&path, rest[1..].trim_start());
        found.extend(inner);
        rest = &after[after.find([',', '}']).unwrap_or(after.len())..];
    }
    (found, rest.strip_prefix('}').unwrap_or(rest))
}

/// The paths that begin with one of these words.
fn paths_from(words: &[&str], text: &str) -> Vec<Known> {
    let begins = words.iter().flat_map(|word| text.match_indices(word)).map(|(at, _)| at);
    let whole = begins.filter(|at| !text[..*at].ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c)));
    whole.flat_map(|at| paths("", text[at..].trim_start_matches("use ")).0).collect()
}

/// A path of a file as seen from the crate.
fn absolute(path: &str, from: &str) -> String {
    let (mut base, mut path) = (from, path);
    while let Some((parent, rest)) = base.rsplit_once("::").zip(path.strip_prefix("super::")) {
        (base, path) = (parent.0, rest);
    }
    if path.starts_with("crate::") { path.to_owned() } else { format!("{base}::{}", path.trim_start_matches("self::")) }
}

/// The file that defines what a path names: the way goes on where the file that the path leads to imports that name.
fn target(path: &str, code: &Code) -> Option<String> {
    let (mut path, mut seen) = (path.to_owned(), BTreeSet::new());
    loop {
        let mut file = path.as_str();
        while !code.contains_key(file) {
            file = file.rsplit_once("::")?.0;
        }
        let name = path[file.len()..].split("::").nth(1);
        let mut imported = paths_from(&["use "], &code[file]).into_iter();
        let origin = imported.find(|(_, known)| Some(known.as_str()) == name).filter(|_| seen.insert(path.clone()));
        let Some((origin, _)) = origin else { return Some(file.to_owned()) };
        path = absolute(&origin, file);
    }
}

fn imports_of(from: &str, code: &Code) -> BTreeSet<String> {
    let found = paths_from(&["crate::", "super::"], &code[from]).into_iter().map(|(path, _)| absolute(&path, from));
    found.filter_map(|path| target(&path, code)).filter(|target| target != from).collect()
}

/// All that a file imports, and all that these import.
fn reach<'i>(from: &'i str, imports: &'i Imports) -> BTreeSet<&'i str> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        next.extend(imports[file].iter().map(String::as_str).filter(|import| seen.insert(*import)));
    }
    seen
}

fn imports(code: &Code) -> Imports {
    code.keys().map(|file| (file.clone(), imports_of(file, code))).collect()
}

/// The imports between modules that stand side by side at a depth, each a file with its folder: 1 for those of the crate.
fn imports_beside(depth: usize, imports: &Imports) -> Imports {
    let module = |file: &String| {
        let names: Vec<_> = file.split("::").take(depth + 1).collect();
        (names.len() > depth).then(|| (names[..depth].join("::"), names.join("::")))
    };
    let mut beside = Imports::new();
    for (file, imported) in imports {
        let Some((parent, from)) = module(file) else { continue };
        let others = imported.iter().filter_map(module).filter(|(of, to)| *of == parent && *to != from);
        beside.entry(from.clone()).or_default().extend(others.map(|(_, to)| to));
    }
    beside
}

/// The modules of each circle.
fn circles(imports: &Imports) -> BTreeSet<String> {
    let circle_of = |module: &String| {
        let back = reach(module, imports).into_iter().filter(|other| reach(other, imports).contains(module.as_str()));
        back.collect::<Vec<_>>().join(" ")
    };
    imports.keys().map(circle_of).filter(|circle| !circle.is_empty()).collect()
}

/// The circles of files, and those of folders at any depth.
fn all_circles(code: &Code) -> BTreeSet<String> {
    let files = imports(code);
    let depths = (1..).map(|depth| imports_beside(depth, &files)).take_while(|beside| !beside.is_empty());
    depths.chain([files.clone()]).flat_map(|imports| circles(&imports)).collect()
}

#[test]
fn no_file_and_no_folder_imports_in_a_circle() {
    let (mut files, mut faults) = (0, Vec::new());
    for folder in crates() {
        let mut code = Code::new();
        read(&folder, "crate", &mut code);
        files += code.len();
        faults.extend(all_circles(&code).into_iter().map(|files| format!("{}: {files}", folder.display())));
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(files > 300, "only {files} files were read");
}

fn code<const N: usize>(files: [(&str, &str); N]) -> Code {
    files.map(|(file, text)| (file.into(), text.into())).into()
}

#[test]
fn a_circle_is_found_however_its_imports_are_written() {
    let circles_of = |files: [(&str, &str); 3]| circles(&imports(&code(files)));
    let below = ("crate::a::low", "use super::super::c::{self, C as D, d::*};");
    let others = [("crate::a", "use self::low::Low;"), below, ("crate::c", "use crate::*;")];
    assert!(circles_of(others).is_empty());
    let circle = BTreeSet::from(["crate::a::low crate::b crate::c".to_owned()]);
    let b = ("crate::b", "crate::a::low::x()");
    assert_eq!(circles_of([b, below, ("crate::c", "use crate::{x::X as Y, b::{y, B}};")]), circle);
}

#[test]
fn a_circle_is_found_through_whatever_re_exports_a_name() {
    let files = |root| [("crate", root), ("crate::a", "use crate::{C, d::e};"), ("crate::c", "use crate::A;")];
    let circles_of = |root| circles(&imports(&code(files(root))));
    let circle = BTreeSet::from(["crate::a crate::c".to_owned()]);
    assert_eq!(circles_of("pub use a::{A, B};\npub(crate) use c::D as C;"), circle);
    assert!(circles_of("pub use a::B;\npub use foreign::A;\nuse foreign::C as D;").is_empty());
    assert!(circles_of("pub use c::A;").is_empty(), "the way ends though it leads back");
}

#[test]
fn a_circle_of_folders_is_found_though_their_files_have_none() {
    let circle = |modules: &str| BTreeSet::from([modules.to_owned()]);
    let [a, b] = [("crate::a::high", "use crate::b::x;"), ("crate::b::high", "crate::a::low::y()")];
    let beside = [a, b, ("crate::a::low", ""), ("crate::b", "")];
    assert_eq!(all_circles(&code(beside)), circle("crate::a crate::b"));
    let below = beside.map(|(file, text)| (file.replace("crate", "crate::c"), text.replace("crate", "crate::c")));
    assert_eq!(all_circles(&below.into()), circle("crate::c::a crate::c::b"));
}
