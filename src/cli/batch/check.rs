//! What is wrong between steps: files that two of them write, or that one reads before it is written.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use overshot::io::{NamedFile, is_url};

use super::file::{JobFile, file_error};
use super::step::Task;
use super::{at_task, state};
use crate::cli::{Failure, Result};

/// Checks the files of all tasks. Returns for each task the earlier ones that write what it reads.
pub fn files(file: &JobFile, tasks: &[Task]) -> Result<Vec<Vec<usize>>> {
    let writers = writers(file, tasks)?;
    let mut makers = Vec::with_capacity(tasks.len());
    for (place, task) in tasks.iter().enumerate() {
        let mut of_task = Vec::new();
        for name in task.reads.iter().chain(&task.each) {
            let found = writers_of(name, &writers);
            if let Some((path, writer)) = found.iter().find(|(_, writer)| *writer >= place) {
                let problem = format!("reads {}, which ", path.display());
                let who = match &tasks[*writer] {
                    other if other.step == task.step => "the step writes itself: write another file".into(),
                    other => format!("the later step '{}' writes: put that step first", other.step),
                };
                return Err(at_task(file, task, Failure::Usage(problem + &who)));
            }
            if found.is_empty() && name.files_with(&[]).is_empty() {
                let problem = "does not exist, and no earlier step writes it";
                return Err(at_task(file, task, file_error(&name.path, problem, "check the path", None)));
            }
            of_task.extend(found.iter().map(|(_, writer)| *writer));
        }
        of_task.sort_unstable();
        of_task.dedup();
        makers.push(of_task);
    }
    Ok(makers)
}

/// The files that tasks write, each by the place that its path leads to, with the path and the number of the task.
type Writers<'a> = HashMap<PathBuf, (&'a Path, usize)>;

fn writers<'a>(file: &JobFile, tasks: &'a [Task]) -> Result<Writers<'a>> {
    let own = [&file.name, &state::path(&file.name), &file.lock_path()].map(|path| place(path));
    let mut writers = Writers::new();
    for (number, task) in tasks.iter().enumerate() {
        for path in task.writes() {
            let target = place(path);
            if own.contains(&target) {
                let text = format!("writes {}, which belongs to the job file: write another file", path.display());
                return Err(at_task(file, task, Failure::Usage(text)));
            }
            if let Some((_, other)) = writers.insert(target, (path, number)) {
                let (shown, other) = (path.display(), tasks[other].name());
                let text = format!("writes {shown}, and so does '{other}': give each output a file of its own");
                return Err(at_task(file, task, Failure::Usage(text)));
            }
        }
    }
    Ok(writers)
}

/// The tasks that write files for which a name stands.
fn writers_of<'a>(name: &NamedFile, writers: &Writers<'a>) -> Vec<(&'a Path, usize)> {
    // What is inside a folder is written with it: an array of a store.
    if let Some(writer) = place(&name.path).ancestors().find_map(|path| writers.get(path)) {
        return vec![*writer];
    }
    // One file, as most inputs of many tasks are. No task writes to a URL.
    if name.path.is_file() || is_url(&name.path) {
        return Vec::new();
    }
    let mut found: Vec<_> = writers.values().filter(|(path, _)| name.finds(path)).copied().collect();
    found.sort_unstable_by_key(|(_, writer)| *writer);
    found
}

/// The place that a path leads to, whether there is a file or not: without links, as far as it exists.
fn place(path: &Path) -> PathBuf {
    if is_url(path) {
        return path.into();
    }
    let Ok(absolute) = std::path::absolute(path) else { return path.into() };
    let mut there = PathBuf::new();
    for component in absolute.components() {
        // A folder that does not exist is no link, so that `..` leads back to where it will be.
        if component == Component::ParentDir {
            there.pop();
        } else {
            there.push(component);
            there = there.canonicalize().unwrap_or(there);
        }
    }
    there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_the_same_by_all_paths() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("real")).unwrap();
        std::os::unix::fs::symlink(at("real"), at("link")).unwrap();
        assert_eq!(place(&at("link/a/b")), place(&at("real/./a/b")));
        assert_eq!(place(&at("real/../link/a")), place(&at("real/a")));
        assert_ne!(place(&at("real/a")), place(&at("a")));
        assert_eq!(place(&at("none/../link/a")), place(&at("real/a")));
        assert_eq!(place(&at("link/none/../../a")), place(&at("a")));
    }
}
