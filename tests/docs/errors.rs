//! `docs/errors.md` against the messages in the sources.

use std::collections::{BTreeMap, BTreeSet};

use super::markdown::rows;

/// Returns what is wrong: messages that no row has, and rows that no message has.
///
/// A row is a message and its remedy: two texts of the code, one text that is divided at `: ` or `; `, or a text and a
/// cell in parentheses, which is not part of any message.
pub fn differences(document: &str, messages: &BTreeMap<String, String>) -> Vec<String> {
    let is_own = |cell: &str| cell.starts_with('(') && cell.ends_with(')');
    let mut shown = BTreeSet::new();
    let mut wrong = Vec::new();
    for (line, cells) in rows(document) {
        let [message, remedy] = &cells[..] else {
            wrong.push(format!("line {line}: a row has a message and its remedy"));
            continue;
        };
        let joined = [": ", "; "].map(|sign| format!("{message}{sign}{remedy}"));
        if let Some(joined) = joined.into_iter().find(|joined| messages.contains_key(joined)) {
            shown.insert(joined);
            continue;
        }
        if is_own(message) && is_own(remedy) {
            wrong.push(format!("line {line}: has no message"));
        }
        for cell in [message, remedy].into_iter().filter(|cell| !is_own(cell)) {
            match messages.contains_key(cell) {
                true => shown.extend([cell.clone()]),
                false => wrong.push(format!("line {line}: no message is '{cell}'")),
            }
        }
    }
    let missing = messages.iter().filter(|(message, _)| !shown.contains(*message));
    wrong.extend(missing.map(|(message, file)| format!("no row has the message of {file}: {message}")));
    wrong
}
