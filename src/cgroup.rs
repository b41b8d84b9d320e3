//! The memory limit of the control groups that this process is in, as containers and service managers set it.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// A limit, and how much of it is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLimit {
    pub(crate) bytes: u64,
    /// Without the page cache that the system reclaims when memory is needed.
    pub(crate) available: u64,
}

/// The names of a group's files in one version of control groups.
struct Files {
    limit: &'static str,
    used: &'static str,
    /// The line of `memory.stat` with the page cache that can be reclaimed.
    inactive: &'static str,
}

const VERSION_1: Files =
    Files { limit: "memory.limit_in_bytes", used: "memory.usage_in_bytes", inactive: "total_inactive_file " };
const VERSION_2: Files = Files { limit: "memory.max", used: "memory.current", inactive: "inactive_file " };

/// Returns the limit in bytes, asked once; `None` if there is none.
pub(crate) fn memory_bytes() -> Option<u64> {
    static BYTES: OnceLock<Option<u64>> = OnceLock::new();
    *BYTES.get_or_init(|| memory().map(|limit| limit.bytes))
}

/// Returns the limit now: the lowest one of the own group and of all groups around it. `None` if there is none.
pub(crate) fn memory() -> Option<MemoryLimit> {
    memory_in(Path::new("/sys/fs/cgroup"), &fs::read_to_string("/proc/self/cgroup").ok()?)
}

/// `groups` has a line `number:controllers:path` for each hierarchy that this process is in.
fn memory_in(root: &Path, groups: &str) -> Option<MemoryLimit> {
    let limits = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        if controllers.is_empty() {
            lowest(root, path, &VERSION_2)
        } else {
            let is_memory = controllers.split(',').any(|controller| controller == "memory");
            is_memory.then(|| lowest(&root.join("memory"), path, &VERSION_1))?
        }
    });
    limits.reduce(MemoryLimit::lower)
}

/// Returns the lowest limit of the groups from `root` to the one at `path`. In a container the path may be one of the
/// host, of which only the root is there.
fn lowest(root: &Path, path: &str, files: &Files) -> Option<MemoryLimit> {
    let own = root.join(path.trim_start_matches('/'));
    let groups = own.ancestors().take_while(|group| group.starts_with(root));
    groups.filter_map(|group| limit_of(group, files)).reduce(MemoryLimit::lower)
}

fn limit_of(group: &Path, files: &Files) -> Option<MemoryLimit> {
    let read = |name| fs::read_to_string(group.join(name)).ok();
    let number = |name| read(name)?.trim().parse::<u64>().ok();
    let bytes = number(files.limit)?;
    let inactive = read("memory.stat").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix(files.inactive))?;
        line.trim().parse::<u64>().ok()
    });
    let used = number(files.used).unwrap_or(0).saturating_sub(inactive.unwrap_or(0));
    Some(MemoryLimit { bytes, available: bytes.saturating_sub(used) })
}

impl MemoryLimit {
    fn lower(self, other: MemoryLimit) -> MemoryLimit {
        MemoryLimit { bytes: self.bytes.min(other.bytes), available: self.available.min(other.available) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn the_lowest_limit_of_all_groups_around_holds() {
        let root = tempfile::tempdir().unwrap();
        let limit = |groups| memory_in(root.path(), groups);
        assert_eq!(limit("0::/a/b\n"), None);
        write(root.path(), &[("a/b/memory.max", "max\n"), ("a/b/memory.current", "5\n")]);
        assert_eq!(limit("0::/a/b\n"), None);
        write(root.path(), &[("a/memory.max", "1000\n"), ("a/memory.current", "300\n")]);
        assert_eq!(limit("0::/a/b\n"), Some(MemoryLimit { bytes: 1000, available: 700 }));
        // Page cache that can be reclaimed is not used up; a group that is over its limit has nothing left.
        write(root.path(), &[("a/memory.stat", "anon 7\ninactive_file 250\n"), ("a/b/memory.max", "2000\n")]);
        assert_eq!(limit("0::/a/b\n"), Some(MemoryLimit { bytes: 1000, available: 950 }));
        write(root.path(), &[("a/b/memory.max", "4\n")]);
        assert_eq!(limit("0::/a/b\n"), Some(MemoryLimit { bytes: 4, available: 0 }));
        // The path is one of the host, and the root is the group of the container.
        assert_eq!(limit("0::/host/group\n"), None);
        write(root.path(), &[("memory.max", "77")]);
        assert_eq!(limit("0::/host/group\n"), Some(MemoryLimit { bytes: 77, available: 77 }));
        assert_eq!(limit("nonsense"), None);
    }

    #[test]
    fn both_versions_count() {
        let root = tempfile::tempdir().unwrap();
        let stat = "cache 9\ninactive_file 1\ntotal_inactive_file 40\n";
        write(root.path(), &[("memory/x/memory.limit_in_bytes", "500"), ("memory/x/memory.usage_in_bytes", "140")]);
        write(root.path(), &[("memory/x/memory.stat", stat), ("cpu/x/memory.limit_in_bytes", "1")]);
        let groups = "4:cpu,cpuacct:/x\n3:hugetlb,memory:/x\n0::/\n";
        assert_eq!(memory_in(root.path(), groups), Some(MemoryLimit { bytes: 500, available: 400 }));
        write(root.path(), &[("memory.max", "450")]);
        assert_eq!(memory_in(root.path(), groups), Some(MemoryLimit { bytes: 450, available: 400 }));
    }
}
