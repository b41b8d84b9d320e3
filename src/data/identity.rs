//! The identity of files, so that a job does not write to a file that it reads.

use super::file::directory;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The file that a path leads to, whether it exists or not. Two paths lead to the same file if their values are
/// equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FileId {
    /// An existing file: its device and its inode number.
    Existing(u64, u64),
    /// A name in an existing directory, which is identified by its device and inode number.
    Missing(u64, u64, OsString),
}

impl FileId {
    /// Looks up a path. Returns `None` if it leads nowhere and no file can be created there.
    pub fn of(path: &Path) -> Option<FileId> {
        #[cfg(test)]
        tests::LOOKED_UP.set(tests::LOOKED_UP.get() + 1);
        if let Ok(file) = fs::metadata(path) {
            return Some(FileId::Existing(file.dev(), file.ino()));
        }
        let directory = fs::metadata(directory(path)).ok().filter(fs::Metadata::is_dir)?;
        Some(FileId::Missing(directory.dev(), directory.ino(), path.file_name()?.to_owned()))
    }
}

/// The files that are read and written together. A file that is written must have no other use. Each path is looked
/// up once.
#[derive(Debug, Default)]
pub struct FileSet {
    uses: HashMap<FileId, (String, bool)>,
    /// Whether a folder is read, such as an array of a store. All files in it are.
    has_folders: bool,
}

/// A file with two uses, at least one of which writes it. The value is the name of the first use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clash(pub String);

impl FileSet {
    /// Creates an empty set.
    pub fn new() -> Self {
        FileSet::default()
    }

    /// Adds a file that is read. `name` is the name of this use in messages.
    ///
    /// # Errors
    /// Returns an error if the set contains the file as one that is written.
    pub fn read(&mut self, path: &Path, name: impl Into<String>) -> Result<(), Clash> {
        self.add(path, name.into(), false)
    }

    /// Adds a file that is written. `name` is the name of this use in messages.
    ///
    /// # Errors
    /// Returns an error if the set contains the file already.
    pub fn write(&mut self, path: &Path, name: impl Into<String>) -> Result<(), Clash> {
        self.add(path, name.into(), true)
    }

    fn add(&mut self, path: &Path, name: String, is_written: bool) -> Result<(), Clash> {
        let Some(id) = FileId::of(path) else { return Ok(()) };
        self.has_folders |= !is_written && path.is_dir();
        if is_written
            && self.has_folders
            && let Ok(folder) = directory(path).canonicalize()
            && let Some((other, _)) = folder.ancestors().find_map(|folder| self.uses.get(&FileId::of(folder)?))
        {
            return Err(Clash(other.clone()));
        }
        match self.uses.get(&id) {
            Some((other, was_written)) if is_written || *was_written => Err(Clash(other.clone())),
            Some(_) => Ok(()),
            None => {
                self.uses.insert(id, (name, is_written));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// Number of paths that this thread has looked up.
        pub(crate) static LOOKED_UP: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn one_file_under_two_names() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        let around = dir.path().join("..").join(dir.path().file_name().unwrap()).join("a");
        let same = |a: &Path, b: &Path| FileId::of(a).is_some() && FileId::of(a) == FileId::of(b);
        assert!(same(&a, &a) && same(&a, &around), "files that are to come");
        assert!(!same(&a, &b) && FileId::of(Path::new("/no/such/directory/a")).is_none());
        fs::write(&a, b"a").unwrap();
        assert!(!same(&a, &b) && same(&a, &around));
        assert!(FileId::of(&a.join("c")).is_none(), "no file can be in a file");
        fs::hard_link(&a, &b).unwrap();
        assert!(same(&a, &b));
        fs::remove_file(&b).unwrap();
        std::os::unix::fs::symlink(&a, &b).unwrap();
        assert!(same(&a, &b));
    }

    #[test]
    fn what_is_written_has_no_other_use() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|name| dir.path().join(name));
        fs::write(&a, b"a").unwrap();
        let mut files = FileSet::new();
        assert_eq!((files.read(&a, "x"), files.read(&a, "y")), (Ok(()), Ok(())), "read twice");
        assert_eq!((files.write(&b, "out"), files.write(&c, "trace")), (Ok(()), Ok(())));
        assert_eq!(files.write(&a, "out"), Err(Clash("x".into())));
        assert_eq!(files.write(&dir.path().join("./b"), "trace"), Err(Clash("out".into())));
        assert_eq!(files.read(&c, "z"), Err(Clash("trace".into())));
    }
}
