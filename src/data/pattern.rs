//! Names that stand for several files: a folder, or a pattern such as `part-*.npy`.

use super::file::{io_error, too_many_open};
use super::partition_folders::{files_within, key_value};
use super::url::is_url;
use crate::error::{Error, Result};
use std::cmp::Ordering;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Returns the files that a name stands for, in natural order; `None` if the name is that of one file, or of none.
/// Those in folders with a key, such as `year=2024`, are among them.
///
/// A file that exists is never a pattern. Hidden files are left out, as the shell does: they may be unfinished outputs.
///
/// # Errors
/// If a folder cannot be read or has no file, or no file has a name of the pattern.
pub(super) fn several(name: &Path) -> Result<Option<Vec<PathBuf>>> {
    if is_url(name) {
        return of_url(name);
    }
    let mut found = match fs::metadata(name) {
        Ok(metadata) if metadata.is_dir() && !is_store(name) => match entries(name).and_then(files_within)? {
            found if found.is_empty() => return Err(Error::file(name, "is a folder without files", "check the path")),
            found => found,
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound && is_pattern(name) => {
            match expand(name).and_then(files_within)? {
                found if found.is_empty() => {
                    return Err(Error::file(name, "no file has a name of this pattern", "check the path"));
                }
                found => found,
            }
        }
        _ => return Ok(None),
    };
    found.sort_by(|a, b| by_parts(a, b));
    Ok(Some(found))
}

#[cfg(feature = "remote")]
fn of_url(url: &Path) -> Result<Option<Vec<PathBuf>>> {
    if is_store(url) { Ok(None) } else { super::remote::several(url) }
}

#[cfg(not(feature = "remote"))]
fn of_url(url: &Path) -> Result<Option<Vec<PathBuf>>> {
    super::url::refused(url)
}

/// Returns whether a folder is one dataset.
pub fn is_store(_folder: &Path) -> bool {
    #[cfg(feature = "zarr")]
    return super::Zarr::is_at(_folder);
    #[cfg(not(feature = "zarr"))]
    false
}

/// Returns the files that a name would stand for if those of `to_come` existed, too, in natural order. The name of one
/// file stands for that one.
pub(super) fn with_files_to_come(name: &Path, to_come: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = match several(name) {
        Ok(Some(found)) => found,
        Ok(None) if is_url(name) || name.exists() => vec![name.into()],
        _ => Vec::new(),
    };
    found.extend(to_come.iter().filter_map(|file| finds(name, file)));
    found.sort_by(|a, b| by_parts(a, b));
    found.dedup();
    found
}

/// Returns the path by which a name finds a file, whether the file exists or not; `None` if it does not stand for that
/// file. Folders are compared by the places that they lead to; the path is in the words of the name.
pub(super) fn finds(name: &Path, file: &Path) -> Option<PathBuf> {
    if is_url(name) || is_url(file) {
        return None;
    }
    let own = file.file_name()?;
    finds_here(name, file).or_else(|| {
        // A folder with a key stands for what is in it.
        let folder = folder(file);
        let is_within = !is_hidden(own) && folder.file_name().and_then(key_value).is_some();
        is_within.then(|| finds(name, folder))?.map(|found| found.join(own))
    })
}

/// Returns the path by which a name finds a file, but for those in folders with a key.
fn finds_here(name: &Path, file: &Path) -> Option<PathBuf> {
    let own = file.file_name()?;
    let target = resolved(folder(file))?;
    let is_same = |path: &Path| path.file_name() == Some(own) && resolved(folder(path)).as_ref() == Some(&target);
    if is_same(name) {
        return Some(name.into());
    }
    if is_hidden(own) {
        return None;
    }
    if !is_pattern(name) || name.is_file() {
        // A folder stands for what is in it.
        return (resolved(name)? == target).then(|| name.join(own));
    }
    let last = name.file_name().map(symbols)?;
    if !matches(&last, &symbols(own)) {
        return None;
    }
    // Folders that do not exist yet, behind the part of the name that is no pattern.
    let is_plain = |part: &Component<'_>| !is_pattern(part.as_ref());
    let plain: PathBuf = name.components().take_while(is_plain).collect();
    let parts: Vec<_> = folder(name).components().skip_while(is_plain).collect();
    if let Some(base) = resolved(&plain)
        && let Ok(inner) = target.strip_prefix(&base)
        && inner.components().count() == parts.len()
        && inner.components().zip(parts).all(fits)
    {
        return Some(plain.join(inner).join(own));
    }
    // Folders that exist, to which links may lead.
    if !is_pattern(folder(name)) {
        return None;
    }
    let found = expand(folder(name)).ok()?.into_iter().find(|there| resolved(there).as_ref() == Some(&target));
    found.map(|there| there.join(own))
}

/// Returns whether a part of a path is one that the part of a pattern stands for.
fn fits((own, part): (Component<'_>, Component<'_>)) -> bool {
    match (own, part) {
        (Component::Normal(own), Component::Normal(part)) if own != part => {
            !is_hidden(own) && matches(&symbols(part), &symbols(own))
        }
        (own, part) => own == part,
    }
}

/// Returns the folder of a path.
fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// Returns the place that a path leads to, without links as far as it exists. The rest, which is missing, stays as it
/// is.
fn resolved(path: &Path) -> Option<PathBuf> {
    // An empty path is the folder of the process, too.
    let path = std::path::absolute(Path::new(".").join(path)).ok()?;
    let found = path.ancestors().find_map(|there| Some((there, there.canonicalize().ok()?)));
    let (there, place) = found?;
    // To join an empty rest would add a slash.
    let rest = path.strip_prefix(there).ok()?;
    Some(rest.components().fold(place, |place, part| place.join(part)))
}

/// Returns whether a name has a character of patterns: `*`, `?` or `[`.
pub(super) fn is_pattern(name: &Path) -> bool {
    name.as_os_str().as_bytes().iter().any(|byte| b"*?[".contains(byte))
}

/// Returns the paths that match a pattern, each part of which matches a name in a folder.
fn expand(pattern: &Path) -> Result<Vec<PathBuf>> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let Component::Normal(name) = part else {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        };
        if !is_pattern(Path::new(name)) {
            found.iter_mut().for_each(|path| path.push(name));
            continue;
        }
        let (name, mut next) = (symbols(name), Vec::new());
        // What is no folder has nothing in it. A part without a pattern may name nothing.
        for folder in found.iter().filter(|folder| folder.as_os_str().is_empty() || folder.is_dir()) {
            let inside = entries(folder)?;
            next.extend(inside.into_iter().filter(|path| {
                let own = path.file_name().map(symbols).unwrap_or_default();
                matches(&name, &own)
            }));
        }
        found = next;
    }
    found.retain(|path| path.exists());
    Ok(found)
}

/// Returns whether a name is hidden: it begins with a dot, or with `_` and has no ending, by which programs that write
/// tables in folders mark what is no data (`_SUCCESS`). A key of a folder may begin with `_`.
pub(super) fn is_hidden(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.starts_with(b".") || (name.starts_with(b"_") && !name.contains(&b'.') && !name.contains(&b'='))
}

/// Returns the paths of what is in a folder, without what is hidden.
pub(super) fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let place = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let cannot = |error: io::Error| {
        let remedy = too_many_open(&error).unwrap_or("allow reading the folder (chmod u+r)");
        io_error(place, "the names in the folder cannot be read", remedy, error)
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(place).map_err(cannot)? {
        let name = entry.map_err(cannot)?.file_name();
        if !is_hidden(&name) {
            found.push(folder.join(name));
        }
    }
    Ok(found)
}

/// Returns the characters of a name; bytes that are not UTF-8 have numbers that no character has.
pub(super) fn symbols(name: &OsStr) -> Vec<u32> {
    let chunks = name.as_bytes().utf8_chunks();
    let of_chunk = |chunk: std::str::Utf8Chunk<'_>| {
        let invalid = chunk.invalid().iter().map(|byte| u32::from(*byte) + (1 << 24));
        chunk.valid().chars().map(u32::from).chain(invalid).collect::<Vec<_>>()
    };
    chunks.flat_map(of_chunk).collect()
}

/// Returns whether a name matches a pattern of `*`, `?`, `[a-z]` and `[!a-z]`, as in the shell.
pub(super) fn matches(pattern: &[u32], name: &[u32]) -> bool {
    let (mut at, mut place) = (0, 0);
    // The last `*`, and how many characters it has taken so far.
    let mut star: Option<(usize, usize)> = None;
    while place < name.len() {
        if pattern.get(at) == Some(&u32::from('*')) {
            star = Some((at, place));
            at += 1;
        } else if let Some(length) = one(&pattern[at..], name[place]) {
            (at, place) = (at + length, place + 1);
        } else if let Some((before, taken)) = star {
            star = Some((before, taken + 1));
            (at, place) = (before + 1, taken + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|symbol| *symbol == u32::from('*'))
}

/// Returns the length of the part of a pattern, other than `*`, that matches one character; `None` if none does.
fn one(pattern: &[u32], symbol: u32) -> Option<usize> {
    match char::from_u32(*pattern.first()?) {
        Some('?') => return Some(1),
        Some('[') => {}
        _ => return (pattern[0] == symbol).then_some(1),
    }
    let is_negated = pattern.get(1).is_some_and(|next| [u32::from('!'), u32::from('^')].contains(next));
    let start = 1 + usize::from(is_negated);
    // A `]` at the start is one of the characters. A class that does not end is a plain `[`.
    let Some(end) = pattern.iter().skip(start + 1).position(|next| *next == u32::from(']')) else {
        return (pattern[0] == symbol).then_some(1);
    };
    let class = &pattern[start..start + 1 + end];
    let (mut at, mut is_in) = (0, false);
    while at < class.len() {
        let last = if class.get(at + 1) == Some(&u32::from('-')) { class.get(at + 2) } else { None };
        is_in |= (class[at]..=*last.unwrap_or(&class[at])).contains(&symbol);
        at += if last.is_some() { 3 } else { 1 };
    }
    (is_in != is_negated).then_some(start + class.len() + 1)
}

/// Compares paths part by part.
pub(super) fn by_parts(a: &Path, b: &Path) -> Ordering {
    let (mut left, mut right) = (a.components(), b.components());
    loop {
        match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, _) => return Ordering::Less,
            (_, None) => return Ordering::Greater,
            (Some(a), Some(b)) => match natural(a.as_os_str().as_bytes(), b.as_os_str().as_bytes()) {
                Ordering::Equal => {}
                order => return order,
            },
        }
    }
}

/// Compares names in natural order: numbers in them by their values, so that `part-2` comes before `part-10`.
fn natural(a: &[u8], b: &[u8]) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let order = match (left.first(), right.first()) {
            (Some(p), Some(q)) if p.is_ascii_digit() && q.is_ascii_digit() => {
                let (m, n) = (number(&mut left), number(&mut right));
                (m.len(), m).cmp(&(n.len(), n))
            }
            (Some(p), Some(q)) => {
                (left, right) = (&left[1..], &right[1..]);
                p.cmp(q)
            }
            // Names that differ in leading zeros alone have an order, too.
            (None, None) => return a.cmp(b),
            (p, q) => p.cmp(&q),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// Takes the digits at the start of a name, and returns them without leading zeros.
fn number<'a>(name: &mut &'a [u8]) -> &'a [u8] {
    let len = name.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = name.split_at(len);
    *name = rest;
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    &digits[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_data_is_hidden() {
        for (name, hidden) in [(".a.npy", true), ("_SUCCESS", true), ("_delta_log", true), ("_a.parquet", false)] {
            assert_eq!(is_hidden(OsStr::new(name)), hidden, "{name}");
        }
        for name in ["_region=1", "_region=1.5", "region=1"] {
            assert!(!is_hidden(OsStr::new(name)), "{name} has rows");
        }
    }

    #[test]
    fn patterns_match_as_in_the_shell() {
        for (pattern, is, is_not) in [
            ("part-*.npy", &["part-.npy", "part-1.npy", "part-.npy.npy"][..], &["part-1.npy.tmp", "xpart-1.npy"][..]),
            ("*", &["a", "äöü"], &[]),
            ("a*b*c", &["abc", "aabbcc", "axbybc"], &["ab", "acb", "abcd"]),
            ("?", &["a", "ü"], &["", "ab"]),
            ("[a-c]x", &["ax", "bx", "cx"], &["dx", "x", "-x"]),
            ("[!a-c]x", &["dx", "-x", "üx"], &["ax", "x"]),
            ("[^ab]", &["c"], &["a", "b"]),
            ("[]a]", &["]", "a"], &["b"]),
            ("[a-]", &["a", "-"], &["b"]),
            ("[ä-ü]", &["ö"], &["a"]),
            ("[ab", &["[ab"], &["a"]),
            ("x{1,2}", &["x{1,2}"], &["x1"]),
        ] {
            let fits = |name: &&str| matches(&symbols(pattern.as_ref()), &symbols(name.as_ref()));
            assert!(is.iter().all(fits), "{pattern}");
            assert!(!is_not.iter().any(fits), "{pattern}");
        }
        let invalid = |byte: u8| symbols(OsStr::from_bytes(&[b'a', byte]));
        assert!(matches(&symbols("a?".as_ref()), &invalid(0xff)));
        assert!(matches(&invalid(0xff), &invalid(0xff)) && !matches(&invalid(0xff), &invalid(0xfe)));
    }

    /// As [`matches`], with a recursion for each `*`, and without classes.
    fn slow(pattern: &[u32], name: &[u32]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((&first, rest)) if first == u32::from('*') => (0..=name.len()).any(|k| slow(rest, &name[k..])),
            Some((&first, rest)) => name
                .split_first()
                .is_some_and(|(symbol, after)| (first == u32::from('?') || first == *symbol) && slow(rest, after)),
        }
    }

    proptest! {
        #[test]
        fn stars_match_as_a_recursion_does(pattern in "[ab*?]{0,8}", name in "[ab]{0,8}") {
            let [pattern, name] = [pattern, name].map(|text| symbols(text.as_ref()));
            prop_assert_eq!(matches(&pattern, &name), slow(&pattern, &name));
        }

        #[test]
        fn natural_order_is_an_order(names in proptest::collection::vec("[a0-2.-]{0,5}", 3)) {
            let [a, b, c] = [0, 1, 2].map(|k: usize| names[k].as_bytes());
            prop_assert_eq!(natural(a, b), natural(b, a).reverse());
            prop_assert_eq!(natural(a, b) == Ordering::Equal, a == b);
            if natural(a, b).is_le() && natural(b, c).is_le() {
                prop_assert!(natural(a, c).is_le());
            }
        }
    }

    #[test]
    fn numbers_in_names_are_ordered_by_their_values() {
        let ordered = ["part", "part-", "part-01", "part-1", "part-1.npy", "part-2", "part-10", "part-100a1", "partx"];
        let mut names: Vec<PathBuf> = ordered.iter().rev().map(PathBuf::from).collect();
        names.sort_by(|a, b| by_parts(a, b));
        assert!(names.iter().zip(ordered).all(|(name, expected)| name == Path::new(expected)), "{names:?}");
        let digits = "9".repeat(100);
        assert_eq!(natural(format!("{digits}8").as_bytes(), format!("{digits}9").as_bytes()), Ordering::Less);
        assert_eq!(by_parts(Path::new("a/z"), Path::new("a-b/a")), Ordering::Less, "folder by folder");
    }

    #[test]
    fn names_of_folders_and_patterns_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for folder in ["d2", "d10", "none", "d9x/inner"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for file in ["d2/b.npy", "d2/a.npy", "d10/a.npy", "d10/.a.npy.x.partial", "d1", "[d]*"] {
            fs::write(at(file), b"").unwrap();
        }
        let found = |name: &str| several(&at(name)).unwrap();
        let files = |names: &[&str]| Some(names.iter().map(|name| at(name)).collect::<Vec<_>>());
        assert_eq!(found("d2"), files(&["d2/a.npy", "d2/b.npy"]));
        assert_eq!(found("d2/"), files(&["d2/a.npy", "d2/b.npy"]));
        assert_eq!(found("d10"), files(&["d10/a.npy"]), "hidden files are no data");
        assert_eq!(found("d*/a.npy"), files(&["d2/a.npy", "d10/a.npy"]));
        assert_eq!(found("d?/[ab].npy"), files(&["d2/a.npy", "d2/b.npy"]));
        let around = ["d2/../d2/b.npy", "d9x/../d2/b.npy", "d10/../d2/b.npy", "none/../d2/b.npy"];
        assert_eq!(found("*/../d2/b*"), files(&around), "what is no folder has nothing in it");
        assert_eq!((found("[d]*"), found("d1"), found("missing")), (None, None, None), "names of one file, or of none");
        for (name, problem) in [("none", "is a folder without files"), ("x*", "no file has a name of this pattern")] {
            let text = several(&at(name)).unwrap_err().to_string();
            assert!(text.contains(name) && text.contains(problem), "{text}");
        }
    }

    #[test]
    fn names_find_files_that_do_not_exist_yet() {
        let at = |name: &str, file: &str| finds(Path::new(name), Path::new(file));
        let here = std::env::current_dir().unwrap();
        let far = here.join("none/a.npy");
        for (name, file, found) in [
            ("none/*.npy", "none/a.npy", Some("none/a.npy")),
            ("./none/*.npy", "none/a.npy", Some("./none/a.npy")),
            ("none/?.npy", far.to_str().unwrap(), Some("none/a.npy")),
            ("none", "./none/a.npy", Some("none/a.npy")),
            ("none/a.npy", "none//a.npy", Some("none/a.npy")),
            ("none/*.npy", "none/.a.npy", None),
            ("none", "none/b/a.npy", None),
            ("no*", "none/a.npy", None),
            ("none/*.npy", "other/a.npy", None),
            ("none/*.npy", "a.npy", None),
            ("none/a.npy", "none", None),
        ] {
            assert_eq!(at(name, file), found.map(PathBuf::from), "{name} {file}");
        }
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        fs::create_dir_all(file("real/in")).unwrap();
        std::os::unix::fs::symlink(file("real"), file("link")).unwrap();
        for (name, to_come, found) in [
            ("real/../real/*.npy", "real/a.npy", Some("real/../real/a.npy")),
            ("real/*.npy", "link/a.npy", Some("real/a.npy")),
            ("link/*.npy", "real/in/../a.npy", Some("link/a.npy")),
            ("link", "real/a.npy", Some("link/a.npy")),
            ("link/a.npy", "real/a.npy", Some("link/a.npy")),
            ("l*/a.npy", "real/a.npy", Some("link/a.npy")),
            ("l*/i?/a.npy", "real/in/a.npy", Some("link/in/a.npy")),
            ("link/n*/*.npy", "real/new/a.npy", Some("link/new/a.npy")),
            ("link/n*/*.npy", "real/.new/a.npy", None),
            ("link/*.npy", "real/in/a.npy", None),
            ("l*/b.npy", "real/a.npy", None),
            ("link/in", "real/a.npy", None),
            ("real", "link/year=1/m=2/a.npy", Some("real/year=1/m=2/a.npy")),
            ("real/year=1", "real/year=1/m=2/a.npy", Some("real/year=1/m=2/a.npy")),
            ("real/year=*", "real/year=1/m=2/a.npy", Some("real/year=1/m=2/a.npy")),
            ("real/*/*.npy", "real/year=1/a.npy", Some("real/year=1/a.npy")),
            ("real", "real/year=1/.m=2/a.npy", None),
            ("real", "real/year=1/.a.npy", None),
            ("real", "real/in/m=2/a.npy", None),
            ("real/m=2", "real/year=1/m=2/a.npy", None),
        ] {
            assert_eq!(finds(&file(name), &file(to_come)), found.map(file), "{name} {to_come}");
        }
        fs::write(file("a10"), b"").unwrap();
        let pattern = file("a*");
        let all = with_files_to_come(&pattern, &[file("a9"), file("a10"), file("b")]);
        assert_eq!(all, [file("a9"), file("a10")]);
        assert!(with_files_to_come(&file("b*"), &[]).is_empty());
        assert_eq!(with_files_to_come(&file("a10"), &[]), [file("a10")]);
    }
}
