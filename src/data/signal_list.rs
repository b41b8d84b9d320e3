//! Paths that a signal handler can read without locks, allocations or `unsafe`.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering, fence};

/// The length of the longest path that the system accepts, including the terminating zero.
pub(super) const PATH_BYTES: usize = 4096;

/// A list of paths, each with a range of addresses. Nodes are never freed; nodes of dropped entries are reused, so
/// that the list has only as many nodes as it ever had entries at the same time.
pub(super) struct SignalList {
    first: OnceLock<&'static Node>,
}

struct Node {
    /// Counts the changes of the node: `sequence % 3` is one of the states below. A reader that finds another
    /// number after reading than before has read a mixture of two entries, and discards it.
    sequence: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    /// Terminated by a zero.
    path: [AtomicU8; PATH_BYTES],
    next: OnceLock<&'static Node>,
}

const FREE: usize = 0;
const LIVE: usize = 2;
const STATES: usize = 3;

/// An entry of a list. Dropping it removes the entry.
pub(super) struct Entry(&'static Node);

impl SignalList {
    pub(super) const fn new() -> Self {
        SignalList { first: OnceLock::new() }
    }

    /// Adds a path. A path that is longer than the system accepts is truncated.
    pub(super) fn add(&self, path: &Path, range: Range<usize>) -> Entry {
        let node = self.claim();
        node.start.store(range.start, Ordering::Relaxed);
        node.end.store(range.end, Ordering::Relaxed);
        let path = path.as_os_str().as_bytes();
        let path = &path[..path.len().min(PATH_BYTES - 1)];
        for (to, from) in node.path.iter().zip(path.iter().chain([&0])) {
            to.store(*from, Ordering::Relaxed);
        }
        node.sequence.fetch_add(1, Ordering::Release);
        Entry(node)
    }

    /// Returns a free node and marks it as being written.
    fn claim(&self) -> &'static Node {
        let mut link = &self.first;
        loop {
            let Some(node) = link.get() else {
                // The thread that arrives first adds its node here; the others continue with that node.
                link.get_or_init(|| {
                    Box::leak(Box::new(Node {
                        sequence: AtomicUsize::new(FREE),
                        start: AtomicUsize::new(0),
                        end: AtomicUsize::new(0),
                        path: [const { AtomicU8::new(0) }; PATH_BYTES],
                        next: OnceLock::new(),
                    }))
                });
                continue;
            };
            let sequence = node.sequence.load(Ordering::Relaxed);
            let claimed = |to| node.sequence.compare_exchange(sequence, to, Ordering::Acquire, Ordering::Relaxed);
            if sequence % STATES == FREE && claimed(sequence.wrapping_add(1)).is_ok() {
                fence(Ordering::Release);
                return node;
            }
            link = &node.next;
        }
    }

    /// Calls `visit` with each path, without its terminating zero, whose range `wanted` accepts.
    pub(super) fn each(&self, wanted: impl Fn(Range<usize>) -> bool, mut visit: impl FnMut(&[u8])) {
        let mut link = &self.first;
        while let Some(node) = link.get() {
            let sequence = node.sequence.load(Ordering::Acquire);
            let range = node.start.load(Ordering::Relaxed)..node.end.load(Ordering::Relaxed);
            if sequence % STATES == LIVE && wanted(range) {
                let mut path = [0; PATH_BYTES];
                let mut len = 0;
                for byte in &node.path {
                    match byte.load(Ordering::Relaxed) {
                        0 => break,
                        byte => path[len] = byte,
                    }
                    len += 1;
                }
                fence(Ordering::Acquire);
                if node.sequence.load(Ordering::Relaxed) == sequence {
                    visit(&path[..len]);
                }
            }
            link = &node.next;
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.0.sequence.fetch_add(1, Ordering::Release);
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entry")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(list: &SignalList, address: usize) -> Vec<String> {
        let mut paths = Vec::new();
        list.each(|range| range.contains(&address), |path| paths.push(String::from_utf8(path.to_vec()).unwrap()));
        paths
    }

    fn nodes(list: &SignalList) -> usize {
        std::iter::successors(list.first.get(), |node| node.next.get()).count()
    }

    #[test]
    fn entries_are_found_by_address_until_they_are_dropped() {
        let list = SignalList::new();
        let a = list.add(Path::new("/a"), 100..200);
        let b = list.add(Path::new("/long/b"), 200..300);
        assert_eq!(
            (paths(&list, 199), paths(&list, 200), paths(&list, 300)),
            (vec!["/a".into()], vec!["/long/b".into()], vec![])
        );
        drop(a);
        assert!(paths(&list, 150).is_empty());
        let c = list.add(Path::new("/c"), 150..160);
        assert_eq!((paths(&list, 150), nodes(&list)), (vec!["/c".to_owned()], 2), "the node is used again");
        drop((b, c));
        let long = "x".repeat(5000);
        let _long = list.add(Path::new(&long), 0..1);
        assert_eq!(paths(&list, 0)[0].len(), PATH_BYTES - 1);
    }

    #[test]
    fn an_entry_that_changes_while_it_is_read_is_skipped() {
        let list = SignalList::new();
        let entry = std::cell::Cell::new(Some(list.add(Path::new("/old"), 0..1)));
        let changes = |_| {
            drop(entry.take());
            entry.set(Some(list.add(Path::new("/new"), 0..1)));
            true
        };
        list.each(changes, |path| panic!("{path:?} was visited"));
        assert_eq!(paths(&list, 0), ["/new"]);
    }

    #[test]
    fn readers_never_see_a_mixture() {
        let list = SignalList::new();
        let names = ["a".repeat(50), "b".repeat(70), "c".repeat(3)];
        std::thread::scope(|scope| {
            for name in &names {
                let list = &list;
                scope.spawn(move || (0..500).for_each(|_| drop(list.add(Path::new(name), 0..1))));
            }
            for _ in 0..500 {
                list.each(|_| true, |path| assert!(names.iter().any(|name| name.as_bytes() == path), "{path:?}"));
            }
        });
        assert!(nodes(&list) <= 3, "as many as were alive at one time");
    }
}
