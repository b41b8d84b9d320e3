//! `overshot functions`.

use std::fmt::Write;

use overshot::expr::{FunctionInfo, FunctionKind, functions};

use super::Result;
use super::output::print;
use super::style::heading;

/// The kinds of words in the order of the output, with their headings.
const KINDS: [(FunctionKind, &str); 5] = [
    (FunctionKind::Reduction, "Reductions: one value from all rows; any number in one pass; named as in 'm = mean(x)'"),
    (FunctionKind::Function, "Functions: a value for every row"),
    (FunctionKind::Conversion, "Conversions"),
    (FunctionKind::Operator, "Operators, from the lowest precedence to the highest"),
    (FunctionKind::Constant, "Constants"),
];

/// Prints the words of the expression language.
pub fn list() -> Result {
    let words: Vec<FunctionInfo> = functions().collect();
    let width = words.iter().map(|word| word.usage.chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for (kind, title) in KINDS {
        let _ = writeln!(text, "{}", heading(title));
        for word in words.iter().filter(|word| word.kind == kind) {
            let also = match word.aliases {
                [] => String::new(),
                aliases => format!(" (also {})", aliases.join(", ")),
            };
            let _ = writeln!(text, "  {:width$}  {}{also}", word.usage, word.about);
        }
        text.push('\n');
    }
    print(text.trim_end().to_owned() + "\n")
}
