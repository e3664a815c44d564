//! Folders in which programs of `proto-schemas` run.

use std::{
    fs,
    path::{Path, PathBuf},
};

use end_to_end::servers::{repository, stack_folder};
use uuid::Uuid;

/// The folder of the libraries of receivers and publishers.
pub(crate) fn libraries() -> PathBuf {
    stack_folder().join("receivers")
}

/// A folder below libraries: Node looks for them there. Removed when dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// Makes a folder, with copies of these files of `proto-schemas`.
    pub(crate) fn below(libraries: &Path, files: &[&str]) -> Self {
        let folder = libraries.join(format!("test-{}", Uuid::new_v4()));
        fs::create_dir_all(&folder).unwrap();
        for file in files {
            let source = repository().join("proto-schemas").join(file);
            fs::copy(&source, folder.join(source.file_name().unwrap())).unwrap();
        }
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
