//! A disk that loses power: what of a process's changes may be there afterwards.
//!
//! - A change of a file that was not synced is lost or kept, each sector of 512 bytes by itself: so changes are
//!   reordered, and torn. What is lost behind the old end of a file reads as zeros, or as anything.
//! - The length of a file is one that it had since it was synced.
//! - The names in a folder are as they were at one moment since it was synced. A file system with a journal keeps their
//!   order.
//! - The sync of a file keeps its bytes, its length and its time, and no name; that of the folder keeps names only.
//!
//! No file system loses more than this, and most lose less.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::event::Event;
use crate::random::Random;

const SECTOR: usize = 512;

type Names = BTreeMap<String, usize>;

/// A file: its bytes when it was synced, and the changes since then.
#[derive(Clone, Debug, Default)]
struct Stored {
    bytes: Vec<u8>,
    modified: Option<[i64; 2]>,
    changes: Vec<Change>,
    /// The length with all changes.
    len: usize,
}

#[derive(Clone, Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Len(usize),
}

/// The files of a folder and of the folders in it, and the changes of their names since these were synced.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    files: Vec<Stored>,
    names: Names,
    /// The names in each folder at every moment since its last sync, the first of which is on the disk.
    moments: BTreeMap<String, Vec<Names>>,
    numbers: HashMap<u64, usize>,
}

/// What survives of a file's changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// Everything: the process was killed, and the machine goes on.
    Kill,
    /// Nothing that was not synced.
    All,
    /// Any of it.
    Some,
}

impl Disk {
    /// The files in a folder, all of which are on the disk.
    pub fn of(folder: &Path) -> Disk {
        let mut disk = Disk::default();
        for name in names(folder) {
            let path = folder.join(&name);
            let (bytes, metadata) = (fs::read(&path).unwrap(), fs::metadata(&path).unwrap());
            let number = disk.files.len();
            let file = *disk.numbers.entry(metadata.ino()).or_insert(number);
            if file == number {
                let (len, modified) = (bytes.len(), Some([metadata.mtime(), metadata.mtime_nsec()]));
                disk.files.push(Stored { bytes, modified, changes: vec![], len });
            }
            disk.names.insert(name, file);
        }
        disk.note_names();
        disk
    }

    /// Makes a change.
    pub fn change(&mut self, event: &Event) {
        match event {
            Event::Create { file, name } => {
                self.files.push(Stored::default());
                self.numbers.insert(*file, self.files.len() - 1);
                if let Some(name) = name {
                    self.names.insert(name.clone(), self.files.len() - 1);
                }
            }
            Event::Write { file, offset, bytes } => {
                let stored = &mut self.files[self.numbers[file]];
                let (start, end) = (*offset as usize, *offset as usize + bytes.len());
                if end > stored.len {
                    stored.changes.push(Change::Len(end));
                    stored.len = end;
                }
                stored.changes.push(Change::Write(start, bytes.clone()));
            }
            Event::Resize { file, len } => {
                let stored = &mut self.files[self.numbers[file]];
                stored.len = *len as usize;
                stored.changes.push(Change::Len(stored.len));
            }
            Event::Sync { file, modified } => {
                let stored = &mut self.files[self.numbers[file]];
                stored.bytes = stored.after(Loss::Kill, &mut Random(1)).0;
                (stored.modified, stored.changes) = (Some(*modified), vec![]);
            }
            Event::SyncNames { folder } => {
                self.moments.remove(folder);
            }
            Event::Link { file, name } => {
                self.names.insert(name.clone(), self.numbers[file]);
            }
            Event::Rename { from, to, exchange } => {
                let file = self.names.remove(from).unwrap();
                if let Some(old) = self.names.insert(to.clone(), file).filter(|_| *exchange) {
                    self.names.insert(from.clone(), old);
                }
            }
            Event::Unlink { name } => {
                self.names.remove(name);
            }
        }
        self.note_names();
    }

    /// Notes the names of this moment.
    fn note_names(&mut self) {
        let mut now: BTreeMap<String, Names> =
            self.moments.keys().map(|folder| (folder.clone(), Names::new())).collect();
        for (name, file) in &self.names {
            let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
            now.entry(folder.to_owned()).or_default().insert(name.clone(), *file);
        }
        for (folder, names) in now {
            let moments = self.moments.entry(folder).or_default();
            if moments.last() != Some(&names) {
                moments.push(names);
            }
        }
    }

    /// Makes `folder` one that may be found when the power is back. Returns the number of sectors that were lost.
    pub fn lose(&self, loss: Loss, random: &mut Random, folder: &Path) -> u64 {
        for name in names(folder) {
            fs::remove_file(folder.join(name)).unwrap();
        }
        let mut names = Names::new();
        for moments in self.moments.values() {
            let moment = match loss {
                Loss::Kill => moments.len() - 1,
                Loss::All => 0,
                Loss::Some => random.below(moments.len() as u64) as usize,
            };
            names.extend(moments[moment].clone());
        }
        let (mut lost, mut made) = (0, HashMap::new());
        for (name, number) in &names {
            let path = folder.join(name);
            if let Some(other) = made.insert(number, path.clone()) {
                fs::hard_link(other, &path).unwrap();
                continue;
            }
            let stored = &self.files[*number];
            let (bytes, sectors) = stored.after(loss, random);
            lost += sectors;
            fs::write(&path, bytes).unwrap();
            if let Some([seconds, nanos]) = stored.modified {
                let modified = SystemTime::UNIX_EPOCH + Duration::new(seconds as u64, nanos as u32);
                let file = File::options().write(true).open(&path).unwrap();
                file.set_times(FileTimes::new().set_modified(modified)).unwrap();
            }
        }
        lost
    }
}

/// Returns the names of the files in a folder and in its folders.
pub fn names(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => all.extend(names(&entry.path()).into_iter().map(|inner| format!("{name}/{inner}"))),
            false => all.push(name),
        }
    }
    all
}

impl Stored {
    /// Returns bytes that the file may have, and how many sectors of its changes were lost.
    fn after(&self, loss: Loss, random: &mut Random) -> (Vec<u8>, u64) {
        let lengths = self.changes.iter().filter(|change| matches!(change, Change::Len(_))).count() as u64;
        let mut lengths = match loss {
            Loss::Kill => lengths,
            Loss::All => 0,
            Loss::Some => random.below(lengths + 1),
        };
        // Of some losses all, half or hardly any of the sectors are kept.
        let kept = [0, 1, 4, 7, 8][random.below(5) as usize];
        let mut is_kept = || match loss {
            Loss::Kill => true,
            Loss::All => false,
            Loss::Some => random.below(8) < kept,
        };
        let (mut bytes, mut len, mut lost) = (self.bytes.clone(), self.bytes.len(), 0);
        for change in &self.changes {
            match change {
                Change::Len(_) if lengths == 0 => {}
                Change::Len(new) => {
                    // What is cut off is gone, and reads as zeros if the file grows again.
                    bytes.truncate(*new);
                    (len, lengths) = (*new, lengths - 1);
                }
                Change::Write(start, written) => {
                    let (mut at, end) = (*start, start + written.len());
                    bytes.resize(bytes.len().max(end), 0);
                    while at < end {
                        let next = ((at + 1).next_multiple_of(SECTOR)).min(end);
                        if is_kept() {
                            bytes[at..next].copy_from_slice(&written[at - start..next - start]);
                        } else {
                            if at >= self.bytes.len() && kept % 2 == 1 {
                                bytes[at..next].fill(0xA5);
                            }
                            lost += 1;
                        }
                        at = next;
                    }
                }
            }
        }
        bytes.resize(len, 0);
        (bytes, lost)
    }
}
