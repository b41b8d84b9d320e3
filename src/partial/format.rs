//! Partials as bytes.
//!
//! | bytes | |
//! | --- | --- |
//! | 8 | `OVSHPART` |
//! | 4 | the version of this format, 7 |
//! | 4 | the length of the header |
//! | … | the header, as JSON |
//! | 8 m, or 0 | the sums of the m words of chunks, unless there were none |
//! | 12 + 8 p each | the nodes of the tree of products: level, index, the p words of their sums |
//! | 12 + 8 n each | the nodes of the tree of tiles: level, index, the n words of the state |
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
use crate::ops::{Combine, Fold, State};

const MAGIC: &[u8; 8] = b"OVSHPART";
const VERSION: u32 = 7;
const CHECKSUM: usize = 16;

#[derive(Serialize, Deserialize)]
struct Header {
    job: JobId,
    rows: Vec<Range<u64>>,
    reductions: Vec<ReductionHeader>,
    /// The products over the rows, and the number of their nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    products: Vec<ReductionHeader>,
    #[serde(default, skip_serializing_if = "is_zero")]
    product_nodes: u64,
    /// The mark of the file of each output, in hexadecimal digits.
    marks: Vec<Option<String>>,
    /// The first row, the rows and the kept rows of each part.
    kept: Option<Vec<[u64; 3]>>,
    /// Of a journal, while the outputs get their names: the stamp of the file of each output.
    stamps: Option<Vec<Option<Stamp>>>,
    paths: Paths,
    work: Work,
    /// Whether there are sums of the words of chunks.
    has_sums: bool,
}

#[derive(Serialize, Deserialize)]
struct ReductionHeader {
    label: String,
    kind: String,
    dtype: String,
    /// Which reduction counts the rows that it reduces, if they are kept ones.
    counter: Option<usize>,
    /// The shape of the result, if it has a value for each element of a row.
    shape: Option<Vec<u64>>,
    /// The elements of a row.
    elements: u64,
    /// The dtype of the weights that it adds in bins, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weights: Option<String>,
}

impl ReductionHeader {
    fn of(reduction: &Reduction) -> ReductionHeader {
        ReductionHeader {
            label: reduction.label().into(),
            kind: reduction.kind().into(),
            dtype: reduction.dtype().to_string(),
            counter: reduction.counter(),
            shape: reduction.shape().map(<[u64]>::to_vec),
            elements: reduction.elements(),
            weights: reduction.weights().map(|dtype| dtype.to_string()),
        }
    }

    fn reduction(self) -> Option<Reduction> {
        let weights = self.weights.map(|dtype| dtype.parse()).transpose().ok()?;
        Reduction::parse(self.label, &self.kind, &self.dtype, self.counter, (self.elements, self.shape), weights)
    }
}

impl Partial {
    /// Returns the partial as bytes, for a file or a message.
    pub fn to_bytes(&self) -> Vec<u8> {
        let kept = self.written.kept.as_ref();
        let header = Header {
            job: self.job.clone(),
            rows: self.rows.ranges().to_vec(),
            reductions: self.state.reductions.iter().map(ReductionHeader::of).collect(),
            products: self.state.products.iter().map(ReductionHeader::of).collect(),
            product_nodes: self.state.sums.nodes().count() as u64,
            marks: self.written.marks.iter().map(|mark| mark.map(|mark| format!("{mark:x}"))).collect(),
            kept: kept.map(|kept| kept.iter().map(|range| [range.first, range.rows, range.kept]).collect()),
            stamps: self.written.stamps.clone(),
            paths: self.paths.clone(),
            work: self.work.clone(),
            has_sums: !self.state.nodes.sums().is_empty(),
        };
        // Strings, numbers and lists of them always have a JSON form.
        let header = serde_json::to_vec(&header).unwrap_or_default();
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((header.len() as u32).to_le_bytes());
        bytes.extend(header);
        bytes.extend(self.state.nodes.sums().iter().flat_map(|word| word.to_le_bytes()));
        for ((level, index), state) in self.state.sums.nodes().chain(self.state.nodes.nodes()) {
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
    let header: Header = serde_json::from_slice(header).ok()?;
    let Header { job, rows, reductions, products, product_nodes, marks, kept, stamps, paths, work, has_sums } = header;
    let rows = RowSet::of_ranges(&rows).filter(|rows| rows.ranges().last().is_none_or(|last| last.end <= job.rows))?;
    let read = |of: Vec<ReductionHeader>| of.into_iter().map(ReductionHeader::reduction).collect::<Option<Vec<_>>>();
    let (reductions, products) = (read(reductions)?, read(products)?);
    if !products.iter().all(Reduction::is_of_products) {
        return None;
    }
    let counts = |counter: usize| reductions.get(counter).is_some_and(|other| !other.is_result());
    if !reductions.iter().all(|reduction| reduction.counter().is_none_or(counts)) {
        return None;
    }
    let words_of =
        |of: &[Reduction]| of.iter().try_fold(0_usize, |words, reduction| words.checked_add(reduction.state_words()));
    let (words, product_words) = (words_of(&reductions)?, words_of(&products)?);
    let sums = if has_sums { reductions.chunk_words() } else { 0 };
    let (sums, rest) = rest.split_at_checked(sums.checked_mul(8)?)?;
    let of_products =
        usize::try_from(product_nodes).ok()?.checked_mul(product_words.checked_mul(8)?.checked_add(12)?)?;
    let (of_products, rest) = rest.split_at_checked(of_products)?;
    let product_sums = parse_nodes(of_products, product_words)?;
    let mut nodes = parse_nodes(rest, words)?;
    let sums: Vec<u64> = sums.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    nodes.add(&sums, &reductions[..]);
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
        state: State { reductions, nodes, products, sums: product_sums },
        written: Written { marks, kept, stamps },
        paths,
        work,
        checksum: false,
    })
}

/// Reads nodes with states of so many words.
fn parse_nodes(bytes: &[u8], words: usize) -> Option<Fold> {
    let nodes = bytes.chunks_exact(words.checked_mul(8)?.checked_add(12)?);
    if !nodes.remainder().is_empty() {
        return None;
    }
    let nodes = nodes.map(|node| {
        let (level, rest) = take_u32(node)?;
        let (index, state) = rest.split_first_chunk::<8>()?;
        let state = state.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        Some(((level, u64::from_le_bytes(*index)), state))
    });
    Some(Fold::of_nodes(nodes.collect::<Option<Vec<_>>>()?))
}

fn is_zero(count: &u64) -> bool {
    *count == 0
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::report::tests::example;

    const ROWS: u64 = 40_960;

    /// The partial of some rows of a job with these reductions along `width` columns.
    fn partial(reductions: &[Reduction], width: u64, rows: Range<u64>) -> Partial {
        let job = JobId {
            version: "1".into(),
            text: "mean(x, axis=0)".into(),
            kernel: None,
            rows: ROWS,
            inputs: vec![],
            values: vec![],
            outputs: vec![],
            precision: None,
        };
        let paths = Paths { inputs: vec![], outputs: vec![] };
        let written = Written { marks: vec![], kept: None, stamps: None };
        let states: Vec<u64> =
            (rows.start / 4096..rows.end.div_ceil(4096)).flat_map(|tile| state(width, tile)).collect();
        let len = (rows.end - rows.start) as usize;
        let nodes = Fold::of_tiles((rows.start, len), 4096, &states, reductions);
        let state = State { reductions: reductions.to_vec(), nodes, ..State::default() };
        Partial::new((job, paths), rows, state, written, Work::of(example()))
    }

    fn reductions(width: u64) -> [Reduction; 3] {
        let of = |kind: &str, shape| Reduction::parse(kind.into(), kind, "f64", None, (1, shape), None).unwrap();
        [of("mean", Some(vec![width])), of("sum", None), of("var", Some(vec![1, width]))]
    }

    fn state(width: u64, tile: u64) -> Vec<u64> {
        let float = |k: u64| (k as f64 / 7.0).to_bits();
        let counts = std::iter::repeat_n(4096.0_f64.to_bits(), width as usize);
        let means = (0..1 + width).map(|k| float(k + 100 * tile));
        means.chain(counts).chain((0..2 * width).map(|k| float(k * k + tile))).collect()
    }

    /// The results of all tiles, in parts of `tiles` that are sent as bytes and merged from the last one on.
    fn merged(width: u64, tiles: u64) -> (String, Vec<u8>) {
        let reductions = reductions(width);
        let all = ROWS / 4096;
        let parts = (0..all.div_ceil(tiles)).rev().map(|part| {
            let own = part * tiles..all.min((part + 1) * tiles);
            let part = partial(&reductions, width, own.start * 4096..own.end * 4096);
            let bytes = part.to_bytes();
            let read = Partial::from_bytes(&bytes).unwrap();
            assert_eq!(read.to_bytes(), bytes);
            read
        });
        let whole = parts.reduce(|mut all, part| {
            all.merge(part).unwrap();
            all
        });
        let whole = whole.unwrap();
        let bytes = whole.to_bytes();
        let report = whole.finish().unwrap();
        assert_eq!(report.arrays[1].1.as_ref().unwrap().shape(), [1, width]);
        (format!("{:?} {:?}", report.results, report.arrays), bytes)
    }

    #[test]
    fn parts_of_arrays_are_merged_to_the_bits_of_all_rows() {
        for width in [1, 2, 5, 1000] {
            let (expected, _) = merged(width, ROWS);
            for tiles in [1, 2, 3, 7] {
                assert_eq!(merged(width, tiles).0, expected, "{width} columns, {tiles} tiles in a part");
            }
        }
    }

    /// The states of the columns, of the nodes that are left, and what a partial has in any case.
    #[test]
    fn a_partial_of_arrays_has_the_size_of_their_states() {
        let of = |width: u64| merged(width, 3).1.len() as u64;
        // Ten tiles are two nodes.
        let added = of(1000) - of(1);
        assert!((2 * 4 * 999 * 8..2 * 4 * 999 * 8 + 100).contains(&added), "{added} bytes more");
    }

    /// Changes the header and sets the checksum anew, as damage by accident never would.
    fn with_header(bytes: &[u8], change: impl Fn(&mut Vec<u8>)) -> Result<Partial> {
        let length = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
        let mut header = bytes[16..16 + length].to_vec();
        change(&mut header);
        let nodes = &bytes[16 + length..bytes.len() - CHECKSUM];
        let mut other = [&bytes[..12], &(header.len() as u32).to_le_bytes(), &header, nodes].concat();
        other.extend(XxHash3_128::oneshot(&other).to_le_bytes());
        Partial::from_bytes(&other)
    }

    fn replaced(bytes: &[u8], from: &str, to: &str) -> Result<Partial> {
        with_header(bytes, |header| {
            let text = String::from_utf8(header.clone()).unwrap();
            assert!(text.contains(from), "no {from} in {text}");
            *header = text.replacen(from, to, 1).into_bytes();
        })
    }

    #[test]
    fn shapes_that_do_not_fit_the_states_are_refused() {
        let (_, bytes) = merged(5, 3);
        assert!(replaced(&bytes, "[5]", "[5]").is_ok());
        assert!(replaced(&bytes, "[5]", "[1,5]").is_ok(), "the same number of columns");
        let sizes = ["4", "6", "0", "16777217", "18446744073709551615", "4294967296,4294967296", "1e3", "-1", "null"];
        let many = format!("[5{}]", ",1".repeat(64));
        for shape in sizes.map(|size| format!("[{size}]")).into_iter().chain(["null".into(), "5".into(), many]) {
            let error = replaced(&bytes, "[5]", &shape).unwrap_err();
            assert!(matches!(error, Error::InvalidPartial(PartialError::Damaged)), "{shape}: {error}");
        }
        assert!(replaced(&bytes, "\"counter\":null", "\"counter\":0").is_err(), "a count that is none");
        // Without nodes, nothing says what the shape is. It takes little memory all the same.
        let empty = partial(&reductions(5), 5, 0..0).to_bytes();
        assert!(replaced(&empty, "[5]", "[16777216]").is_ok());
        assert!(replaced(&empty, "[5]", "[16777217]").is_err());
    }

    #[test]
    fn partials_with_other_reductions_are_not_merged() {
        let (first, second) = (0..4096, 4096..ROWS);
        let of = |width: u64, rows: &Range<u64>| partial(&reductions(width), width, rows.clone());
        let mut all = of(5, &first);
        let other = all.merge(of(6, &second)).unwrap_err();
        assert!(matches!(other, Error::InvalidPartial(PartialError::Damaged)), "{other}");
        let mut fewer = of(5, &second);
        fewer.state.reductions.truncate(2);
        all.merge(fewer).unwrap_err();
        assert_eq!(all.rows(), [first]);
        all.merge(of(5, &second)).unwrap();
    }

    #[test]
    fn every_damaged_bit_of_an_array_is_found() {
        let bytes = partial(&reductions(3), 3, 0..4096).to_bytes();
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Partial::from_bytes(&other), Err(Error::InvalidPartial(_))), "bit {bit}");
        }
    }
}
