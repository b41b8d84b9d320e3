//! Partials as bytes.
//!
//! | bytes | |
//! | --- | --- |
//! | 8 | `OVSHPART` |
//! | 4 | the version of this format, 4 |
//! | 4 | the length of the header |
//! | … | the header, as JSON |
//! | 12 + 8 n each | the nodes of the tree: level, index, the n words of the state |
//! | 16 | the checksum of all bytes before it (XXH3, 128 bits) |
//!
//! Integers are little-endian.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use super::rows::RowSet;
use super::{JobId, Partial, Paths, Work, Written};
use crate::data::{Kept, Mark, Stamp};
use crate::error::{PartialError, Result};
use crate::expr::Reduction;
use crate::ops::Fold;

const MAGIC: &[u8; 8] = b"OVSHPART";
const VERSION: u32 = 4;
const CHECKSUM: usize = 16;

#[derive(Serialize, Deserialize)]
struct Header {
    job: JobId,
    rows: Vec<Range<u64>>,
    /// The label, the kind and the dtype of each reduction, and which one counts the rows that it reduces.
    reductions: Vec<(String, String, String, Option<usize>)>,
    /// The mark of the file of each output, in hexadecimal digits.
    marks: Vec<Option<String>>,
    /// The first row, the rows and the kept rows of each part.
    kept: Option<Vec<[u64; 3]>>,
    /// Of a journal, while the outputs get their names: the stamp of the file of each output.
    stamps: Option<Vec<Option<Stamp>>>,
    paths: Paths,
    work: Work,
}

impl Partial {
    /// Returns the partial as bytes, for a file or a message.
    pub fn to_bytes(&self) -> Vec<u8> {
        let reductions = self.reductions.iter();
        let reductions =
            reductions.map(|each| (each.label().into(), each.kind().into(), each.dtype().to_string(), each.counter()));
        let kept = self.written.kept.as_ref();
        let header = Header {
            job: self.job.clone(),
            rows: self.rows.ranges().to_vec(),
            reductions: reductions.collect(),
            marks: self.written.marks.iter().map(|mark| mark.map(|mark| format!("{mark:x}"))).collect(),
            kept: kept.map(|kept| kept.iter().map(|range| [range.first, range.rows, range.kept]).collect()),
            stamps: self.written.stamps.clone(),
            paths: self.paths.clone(),
            work: self.work.clone(),
        };
        // Strings, numbers and lists of them always have a JSON form.
        let header = serde_json::to_vec(&header).unwrap_or_default();
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((header.len() as u32).to_le_bytes());
        bytes.extend(header);
        for ((level, index), state) in self.nodes.nodes() {
            bytes.extend(level.to_le_bytes());
            bytes.extend(index.to_le_bytes());
            bytes.extend(state.iter().flat_map(|word| word.to_le_bytes()));
        }
        let checksum = XxHash3_128::oneshot(&bytes);
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    /// Reads the bytes of a partial.
    ///
    /// # Errors
    /// [`Error::InvalidPartial`](crate::Error::InvalidPartial) if they are not those of a partial, or of another
    /// version of this format, or damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Partial> {
        let Some(rest) = bytes.strip_prefix(MAGIC) else { return Err(PartialError::NoPartial.into()) };
        let damaged = || PartialError::Damaged;
        let (version, rest) = take_u32(rest).ok_or_else(damaged)?;
        if version != VERSION {
            return Err(PartialError::Version { version, own: VERSION }.into());
        }
        let end = bytes.len().checked_sub(CHECKSUM).ok_or_else(damaged)?;
        let (content, checksum) = bytes.split_at(end);
        if XxHash3_128::oneshot(content).to_le_bytes() != checksum {
            return Err(damaged().into());
        }
        let rest = &rest[..rest.len().saturating_sub(CHECKSUM)];
        Ok(parse(rest).ok_or_else(damaged)?)
    }
}

/// Reads what is between the version and the checksum.
fn parse(bytes: &[u8]) -> Option<Partial> {
    let (length, rest) = take_u32(bytes)?;
    let (header, rest) = rest.split_at_checked(length as usize)?;
    let Header { job, rows, reductions, marks, kept, stamps, paths, work } = serde_json::from_slice(header).ok()?;
    let rows = RowSet::of_ranges(&rows).filter(|rows| rows.ranges().last().is_none_or(|last| last.end <= job.rows))?;
    let reductions = reductions.into_iter();
    let reductions = reductions.map(|(label, kind, dtype, counter)| Reduction::parse(label, &kind, &dtype, counter));
    let reductions = reductions.collect::<Option<Vec<_>>>()?;
    let words: usize = reductions.iter().map(Reduction::words).sum();
    let nodes = rest.chunks_exact(12 + 8 * words);
    if !nodes.remainder().is_empty() {
        return None;
    }
    let nodes = nodes.map(|node| {
        let (level, rest) = take_u32(node)?;
        let (index, state) = rest.split_first_chunk::<8>()?;
        let state = state.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        Some(((level, u64::from_le_bytes(*index)), state))
    });
    let nodes = Fold::of_nodes(nodes.collect::<Option<Vec<_>>>()?);
    let each = (job.outputs.len(), job.outputs.len(), job.inputs.len());
    if (marks.len(), paths.outputs.len(), paths.inputs.len()) != each
        || stamps.as_ref().is_some_and(|stamps| stamps.len() != job.outputs.len())
    {
        return None;
    }
    let mark = |mark: Option<String>| mark.map(|mark| Mark::from_str_radix(&mark, 16).ok());
    let marks = marks.into_iter().map(|text| match mark(text) {
        None => Some(None),
        Some(mark) => mark.map(Some),
    });
    let marks = marks.collect::<Option<Vec<_>>>()?;
    let kept = match kept {
        None => None,
        Some(kept) => Some(parse_kept(&kept, &rows)?),
    };
    Some(Partial {
        job,
        rows,
        reductions,
        nodes,
        written: Written { marks, kept, stamps },
        paths,
        work,
        checksum: false,
    })
}

/// Reads the kept rows of the parts, which together have these rows.
fn parse_kept(kept: &[[u64; 3]], rows: &RowSet) -> Option<Vec<Kept>> {
    let ranges = kept.iter().map(|[first, rows, _]| Some(*first..first.checked_add(*rows)?));
    let ranges = ranges.collect::<Option<Vec<_>>>()?;
    let is_whole = RowSet::of_ranges(&ranges).as_ref() == Some(rows) && kept.iter().all(|[_, rows, kept]| kept <= rows);
    is_whole.then(|| kept.iter().map(|&[first, rows, kept]| Kept { first, rows, kept }).collect())
}

fn take_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*word), rest))
}
