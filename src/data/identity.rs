//! The identity of files, so that a job does not write to a file that it reads.

use super::file::directory;
use super::pattern::is_store;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
    /// The paths of the uses, to find those in a folder.
    paths: Vec<PathBuf>,
    /// Whether a folder is read or written, such as an array of a store. All files in it are.
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
        let clashes = |(_, was_written): &&(String, bool)| is_written || *was_written;
        let clash = |(other, _): &(String, bool)| Err(Clash(other.clone()));
        if self.has_folders
            && let Ok(folder) = directory(path).canonicalize()
            && let Some(other) =
                folder.ancestors().find_map(|folder| self.uses.get(&FileId::of(folder)?).filter(clashes))
        {
            return clash(other);
        }
        // Only a store is a folder that is written; another one is refused later.
        if path.is_dir() && (!is_written || is_store(path)) {
            self.has_folders = true;
            // Also files that are to come.
            let place = |other: &Path| other.canonicalize().or_else(|_| directory(other).canonicalize());
            let is_in = |other: &Path, folder: &Path| place(other).is_ok_and(|own| own.starts_with(folder));
            let folder = path.canonicalize().ok();
            let inside = self.paths.iter().filter(|other| folder.as_ref().is_some_and(|folder| is_in(other, folder)));
            if let Some(other) = inside.filter_map(|other| self.uses.get(&FileId::of(other)?)).find(clashes) {
                return clash(other);
            }
        }
        self.paths.push(path.to_owned());
        match self.uses.get(&id) {
            Some(other) if clashes(&other) => clash(other),
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

    // Without the format, no folder is a store.
    #[cfg(feature = "zarr")]
    #[test]
    fn what_is_in_a_folder_is_used_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let [store, array] = ["a.zarr", "a.zarr/t"].map(|name| dir.path().join(name));
        fs::create_dir_all(&array).unwrap();
        let chunk = array.join("zarr.json");
        fs::write(&chunk, b"{}").unwrap();
        let set = |is_written: bool, path: &Path| {
            let mut files = FileSet::new();
            if is_written { files.write(path, "out") } else { files.read(path, "x") }.unwrap();
            files
        };
        let (read, written) = (Err(Clash("x".into())), Err(Clash("out".into())));
        for inside in [&array, &chunk] {
            assert_eq!(set(false, &store).write(inside, "y"), read, "in a folder that is read");
            assert_eq!(set(true, &store).write(inside, "y"), written);
            assert_eq!(set(true, &store).read(inside, "y"), written, "in a folder that is replaced");
            assert_eq!(set(false, inside).write(&store, "y"), read);
            assert_eq!(set(true, inside).read(&store, "y"), written);
            assert_eq!(set(false, &store).read(inside, "y"), Ok(()), "both are read");
            assert_eq!(set(false, inside).read(&store, "y"), Ok(()));
        }
        assert_eq!(set(true, &store).write(&dir.path().join("b"), "y"), Ok(()), "beside it");
        let to_come = store.join("y.npy");
        assert_eq!(set(true, &to_come).write(&store, "y"), written, "what is to come would be lost");
        assert_eq!(set(true, &store).write(&to_come, "y"), written);
    }
}
