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

/// The rows of tables, without their heads: the line of each, and its cells as plain text.
pub fn rows(text: &str) -> Vec<(usize, Vec<String>)> {
    let lines: Vec<&str> = text.lines().collect();
    let is_row = |line: &str| line.starts_with("| ") && !line.starts_with("| --- ");
    let is_head = |place: usize| lines.get(place + 1).is_some_and(|next| next.starts_with("| --- "));
    let rows = (0..lines.len()).filter(|&place| is_row(lines[place]) && !is_head(place));
    rows.map(|place| (place + 1, cells(lines[place]))).collect()
}

/// The cells of a row. A backslash keeps the sign behind it from being markup.
fn cells(row: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut signs = row.trim().trim_start_matches('|').trim_end_matches('|').chars();
    while let Some(sign) = signs.next() {
        match (sign, cells.last_mut()) {
            ('|', _) => cells.push(String::new()),
            ('\\', Some(cell)) => cell.extend(signs.next()),
            (sign, Some(cell)) => cell.push(sign),
            (_, None) => {}
        }
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}

/// Options of the command that the prose names, as `--rows`: at the start of what stands between backquotes.
pub fn options(text: &str) -> impl Iterator<Item = &str> {
    let quoted = prose(text).flat_map(|line| line.split('`').skip(1).step_by(2));
    // Those of compilers have a value behind `=`.
    let words = quoted.filter_map(|quoted| quoted.split_whitespace().next()).filter(|word| !word.contains('='));
    words.filter(|word| word.starts_with("--"))
}
