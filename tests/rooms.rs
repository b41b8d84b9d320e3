//! Checks the table of rooms in ARCHITECTURE.md against the code: a room imports only from the rooms that its row
//! names, and all of these stand below it in the table. Test code may import from any room.
#![allow(clippy::unwrap_used, reason = "in tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the rooms of the table from top to bottom, each with the rooms that it may use.
fn table() -> Vec<(String, BTreeSet<String>)> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut rooms = Vec::new();
    for row in text.lines().filter(|line| line.starts_with("| `src/")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let [places, _, uses] = cells[..] else { panic!("a row with other than three cells: {row}") };
        let uses: BTreeSet<String> = quoted(uses).map(str::to_owned).collect();
        rooms.extend(quoted(places).map(|place| (room_of(Path::new(place)), uses.clone())));
    }
    rooms
}

/// Returns the texts between pairs of backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// `data` of `src/data/npy/mod.rs`, `plan` of `src/plan.rs`.
fn room_of(path: &Path) -> String {
    let name = path.components().nth(1).unwrap().as_os_str().to_str().unwrap();
    name.strip_suffix(".rs").unwrap_or(name).to_owned()
}

/// Returns all source files, as paths from the root of the repository.
fn sources() -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![PathBuf::from("src")], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

/// Returns a source without its comments and without its module of unit tests.
fn code(source: &str) -> String {
    let source = source.split("mod tests {\n").next().unwrap();
    source.lines().map(|line| line.split("//").next().unwrap().to_owned() + "\n").collect()
}

/// Returns the first name of every path that begins with `crate::`.
fn imports(code: &str) -> BTreeSet<String> {
    code.split("crate::").skip(1).flat_map(first_names).collect()
}

/// Returns whether a path of `super::super::…` leads out of the room of the file.
fn leaves_by_super(path: &Path, code: &str) -> bool {
    // `src` and the name of the file aside. A `mod.rs` is the module of its folder.
    let depth = path.components().count() - 2 - usize::from(path.ends_with("mod.rs"));
    code.contains(&"super::".repeat(depth + 1))
}

/// `data` of `data::Dtype…`, `data` and `error` of `{data::Dtype, error::{Error, Result}}…`.
fn first_names(path: &str) -> Vec<String> {
    let name = |path: &str| path.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let Some(group) = path.strip_prefix('{') else { return vec![name(path)] };
    let (mut depth, mut start, mut names) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                names.push(name(&group[start..at]));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

#[test]
fn rooms_use_what_the_table_allows() {
    let rooms: BTreeMap<String, BTreeSet<String>> = table().into_iter().collect();
    let mut wrong = Vec::new();
    for path in sources() {
        let room = room_of(&path);
        if room == "lib" || path.components().any(|part| part.as_os_str() == "tests") {
            continue;
        }
        let Some(allowed) = rooms.get(&room) else {
            wrong.push(format!("{}: the table has no row for it", path.display()));
            continue;
        };
        let code = code(&fs::read_to_string(root().join(&path)).unwrap());
        if leaves_by_super(&path, &code) {
            wrong.push(format!("{}: leaves its room by super::, use crate::", path.display()));
        }
        for name in imports(&code) {
            if name != room && !allowed.contains(&name) {
                wrong.push(format!("{}: uses crate::{name}, which the row of {room} does not allow", path.display()));
            }
        }
    }
    wrong.sort();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rooms_stand_above_what_they_use() {
    let table = table();
    assert!(table.len() > 15, "the table was not found: {table:?}");
    for (place, (room, uses)) in table.iter().enumerate() {
        for used in uses {
            assert!(table[place + 1..].iter().any(|(below, _)| below == used), "{room} is not above {used}");
        }
    }
}

#[test]
fn imports_are_found() {
    let source = "use crate::data::{Dtype, Sink};\nuse crate::{Error, plan::{Limits, Plan}, job};\n/// crate::no\n\
                  fn f() -> crate::Result<()> {}\n#[cfg(test)]\nmod tests {\n    use crate::engine;\n}\n";
    let found: Vec<String> = imports(&code(source)).into_iter().collect();
    assert_eq!(found, ["Error", "Result", "data", "job", "plan"]);
    for (path, code, leaves) in [
        ("src/job.rs", "use super::data;", true),
        ("src/data/mod.rs", "use super::data;", true),
        ("src/data/file.rs", "use super::Dtype;", false),
        ("src/data/file.rs", "use super::super::error;", true),
        ("src/data/npy/mod.rs", "use super::Dtype;", false),
        ("src/data/npy/header.rs", "use super::super::Dtype;", false),
        ("src/data/npy/header.rs", "use super::super::super::Dtype;", true),
    ] {
        assert_eq!(leaves_by_super(Path::new(path), code), leaves, "{path}: {code}");
    }
}
