//! Tests that the documents list exactly the words of the language.

use std::collections::BTreeSet;

use super::super::{FunctionKind, functions};

/// The text of a section from its heading on, without comment markers.
fn section(text: &str, heading: &str) -> Option<String> {
    let lines = text.lines().map(|line| line.trim_start_matches("//!").trim());
    let behind = lines.skip_while(|line| *line != heading).skip(1);
    let section: Vec<&str> = behind.take_while(|line| !line.starts_with("# ") && !line.starts_with("## ")).collect();
    (!section.is_empty()).then(|| section.join(" "))
}

/// The words in lists such as `sum mean min`, with three or more words between backquotes.
fn listed(section: &str) -> BTreeSet<String> {
    let quoted = section.split('`').skip(1).step_by(2);
    let lists = quoted.map(|quoted| quoted.split_whitespace().collect::<Vec<_>>());
    let lists = lists.filter(|words| words.len() > 2 && !words.contains(&"="));
    lists.flatten().map(str::to_owned).collect()
}

#[test]
fn documents_list_the_language() {
    let words = functions().flat_map(|word| [word.name].into_iter().chain(word.aliases.iter().copied()));
    // `i` is not in the lists: a separate sentence explains it.
    let expected: BTreeSet<String> = words.filter(|word| *word != "i").map(str::to_owned).collect();
    let root = env!("CARGO_MANIFEST_DIR");
    let mut documents = 0;
    for (file, heading) in
        [("src/lib.rs", "# Expressions"), ("README.md", "## Expressions"), ("docs/expressions.md", "# Expressions")]
    {
        let text = std::fs::read_to_string(format!("{root}/{file}")).unwrap_or_default();
        // A document may refer to another one for the lists.
        let Some(section) = section(&text, heading).filter(|section| section.contains("argmax")) else { continue };
        documents += 1;
        let listed = listed(&section);
        assert_eq!(listed.difference(&expected).collect::<Vec<_>>(), [""; 0], "{file} lists what is not there");
        assert_eq!(expected.difference(&listed).collect::<Vec<_>>(), [""; 0], "{file} does not list");
    }
    assert!(documents > 0, "no document lists the language");
}

#[test]
fn words_are_described_once() {
    let mut names = BTreeSet::new();
    for word in functions() {
        assert!(!word.about.is_empty() && !word.about.contains('\n') && word.usage.contains(word.name), "{word:?}");
        assert!(names.insert((word.kind == FunctionKind::Reduction, word.name, word.least_arguments)), "{word:?}");
        // The usage shows the declared number of operands.
        let operands = match word.usage.split_once('(') {
            _ if word.kind == FunctionKind::Constant => 0,
            Some((_, ")")) => 0,
            Some((_, arguments)) => arguments.split(',').filter(|argument| !argument.contains('…')).count(),
            None => word.usage.matches(|c: char| c.is_ascii_alphabetic()).count(),
        };
        assert_eq!(operands, word.least_arguments, "{word:?}");
    }
}
