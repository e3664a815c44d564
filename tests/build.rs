//! Makes a fingerprint of all that makes the ledger's schema, as it is compiled into the tests: `SCHEMA`.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
};

const LEDGER: &str = "../crates/ledger";

fn main() {
    println!("cargo:rerun-if-changed={LEDGER}");
    let mut hasher = DefaultHasher::new();
    for folder in ["migrations", "src"] {
        hash_below(&Path::new(LEDGER).join(folder), &mut hasher);
    }
    println!("cargo:rustc-env=SCHEMA={:016x}", hasher.finish());
}

fn hash_below(folder: &Path, hasher: &mut DefaultHasher) {
    let mut paths: Vec<_> =
        fs::read_dir(folder).expect("it is a folder").map(|entry| entry.expect("it can be read").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            hash_below(&path, hasher);
        } else {
            (&path, fs::read(&path).expect("it can be read")).hash(hasher);
        }
    }
}
