//! As much of Markdown as the documents use.

/// A block between fences.
pub struct Block {
    /// What stands behind the opening fence.
    pub info: String,
    pub text: String,
    /// The line of the opening fence, from 1.
    pub line: usize,
}

/// The blocks of a document.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (line, content) in (1..).zip(text.lines()) {
        match (content.strip_prefix("```"), open.as_mut()) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(info), None) => open = Some(Block { info: info.into(), text: String::new(), line }),
            (None, Some(block)) => {
                block.text += content;
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is never closed");
    blocks
}

/// The commands of a block of shell, a line each; a line that ends with `\` goes on in the next one.
pub fn commands(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    joined.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// The text outside of blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_block = false;
    text.lines().filter(move |line| {
        let is_fence = line.starts_with("```");
        is_block ^= is_fence;
        !is_block && !is_fence
    })
}

/// Where links lead, and images.
pub fn links(text: &str) -> impl Iterator<Item = &str> {
    prose(text).flat_map(|line| line.split("](").skip(1).filter_map(|rest| rest.split(')').next()))
}

/// The names of headings as links name them.
pub fn headings(text: &str) -> impl Iterator<Item = String> {
    let headings = prose(text).filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    headings.map(|heading| {
        let kept =
            heading.to_lowercase().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>();
        kept.replace(' ', "-")
    })
}

/// Options of the command that the prose names, as `--rows`: at the start of what stands between backquotes.
pub fn options(text: &str) -> impl Iterator<Item = &str> {
    let quoted = prose(text).flat_map(|line| line.split('`').skip(1).step_by(2));
    // Those of compilers have a value behind `=`.
    let words = quoted.filter_map(|quoted| quoted.split_whitespace().next()).filter(|word| !word.contains('='));
    words.filter(|word| word.starts_with("--"))
}
