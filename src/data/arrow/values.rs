//! The values of a column of a record batch, in order.

use super::{Codec, Part, Span};
use crate::data::Dtype;
use crate::data::file::Opened;
use crate::data::file_rows::swap_bytes;
use lz4_flex::frame::FrameDecoder;
use std::io::{self, BufReader, Read};
use std::sync::Arc;
use zstd::stream::read::Decoder;

/// Bytes of the file that are read at once.
const READ: usize = 128 << 10;
/// Rows whose bits are in the cache until they are used.
const STEP: usize = 4096;

/// The bytes of a buffer, from some place on.
type Bytes = Box<dyn Read + Send>;

/// A position in a column of a record batch.
pub(super) struct Cursor {
    pub batch: usize,
    values: Values,
    /// Whether each row has a value, if there are nulls.
    present: Option<Bits>,
}

enum Values {
    Bits(Bits),
    Bytes(Bytes),
}

impl Cursor {
    /// A cursor at a row of a batch, which is 0 if the batch is compressed.
    pub(super) fn new(file: &Arc<Opened>, dtype: Dtype, batch: usize, part: &Part, row: u64) -> io::Result<Cursor> {
        let values = match dtype {
            Dtype::Bool => Values::Bits(Bits::new(file, part.values, part, row)?),
            _ => Values::Bytes(open(
                file,
                part.values,
                part,
                row * dtype.size() as u64,
                part.rows * dtype.size() as u64,
            )?),
        };
        let present = (part.nulls > 0).then(|| Bits::new(file, part.present, part, row)).transpose()?;
        Ok(Cursor { batch, values, present })
    }

    /// Fills `dst` with the next rows of `dtype`, and with the bytes `fill` in the place of nulls.
    pub(super) fn next(
        &mut self,
        is_swapped: bool,
        dtype: Dtype,
        fill: Option<&[u8]>,
        dst: &mut [u8],
    ) -> io::Result<()> {
        match &mut self.values {
            Values::Bits(bits) => bits.next(dst)?,
            Values::Bytes(bytes) => {
                bytes.read_exact(dst)?;
                if is_swapped {
                    swap_bytes(dst, dtype.size());
                }
            }
        }
        let Some((present, fill)) = self.present.as_mut().zip(fill) else { return Ok(()) };
        let mut step = [0; STEP];
        for rows in dst.chunks_mut(STEP * fill.len()) {
            let step = &mut step[..rows.len() / fill.len()];
            present.next(step)?;
            let rows = rows.chunks_exact_mut(fill.len()).zip(step);
            rows.filter(|(_, present)| **present == 0).for_each(|(row, _)| row.copy_from_slice(fill));
        }
        Ok(())
    }
}

/// Returns how many bytes of memory a cursor has, at most, in batches like this one.
pub(super) fn memory(file: &Opened, part: &Part) -> u64 {
    let buffers = [Some(part.values), (part.nulls > 0).then_some(part.present)].into_iter().flatten();
    let each = buffers.map(|span| {
        let read = span.len.min(file.step(READ) as u64).max(READ as u64);
        let decoded = part.codec.and_then(|codec| decoder_memory(codec, &frame_head(file, span)?));
        read.saturating_add(decoded.unwrap_or(0))
    });
    each.fold(STEP as u64, u64::saturating_add)
}

/// Returns the first bytes of a compressed buffer, behind its length. A short one has zeros at the end.
fn frame_head(file: &Opened, span: Span) -> Option<[u8; 18]> {
    let mut head = [0; 18];
    let len = head.len().min(usize::try_from(span.len.checked_sub(8)?).ok()?);
    file.read_at(&mut head[..len], span.at + 8).ok()?;
    Some(head)
}

/// Returns how many bytes of memory a decoder needs for a frame that begins like this; `None` if it is no frame.
fn decoder_memory(codec: Codec, head: &[u8; 18]) -> Option<u64> {
    match (codec, head) {
        // <https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md>: a block, compressed and not, behind others that
        // it may repeat.
        (Codec::Lz4, [0x04, 0x22, 0x4D, 0x18, _, block, ..]) => Some((3 << (8 + 2 * (block >> 4 & 7))) + (64 << 10)),
        // <https://datatracker.ietf.org/doc/html/rfc8878#section-3.1.1.1>: what later values may repeat, and blocks.
        (Codec::Zstd, [0x28, 0xB5, 0x2F, 0xFD, flags, window, ..]) => {
            const BLOCKS: u64 = 3 * (128 << 10);
            if flags & 0x20 == 0 {
                let base = 1u64 << (10 + (window >> 3));
                return Some(base + base / 8 * u64::from(window & 7) + BLOCKS);
            }
            // A single segment may repeat all that is before: its size is behind the number of a dictionary.
            let size = head.get(5 + [0, 1, 2, 4][usize::from(flags & 3)]..)?;
            let size = match flags >> 6 {
                0 => u64::from(*size.first()?),
                1 => u64::from(u16::from_le_bytes(*size.first_chunk()?)) + 256,
                2 => u64::from(u32::from_le_bytes(*size.first_chunk()?)),
                _ => u64::from_le_bytes(*size.first_chunk()?),
            };
            Some(size.saturating_add(BLOCKS))
        }
        _ => None,
    }
}

/// Bits of a buffer, the lowest one of a byte first.
struct Bits {
    bytes: Bytes,
    /// The bits of the last byte that are left, in its lowest bits.
    byte: u8,
    left: usize,
    buffer: Vec<u8>,
}

impl Bits {
    fn new(file: &Arc<Opened>, span: Span, part: &Part, row: u64) -> io::Result<Bits> {
        let bytes = open(file, span, part, row / 8, part.rows.div_ceil(8))?;
        let mut bits = Bits { bytes, byte: 0, left: 0, buffer: vec![] };
        bits.next(&mut [0; 8][..(row % 8) as usize])?;
        Ok(bits)
    }

    /// Fills `dst` with the next bits, each of which is a byte there.
    fn next(&mut self, dst: &mut [u8]) -> io::Result<()> {
        let (of_last, dst) = dst.split_at_mut(self.left.min(dst.len()));
        self.take(of_last);
        self.buffer.resize(dst.len().div_ceil(8), 0);
        self.bytes.read_exact(&mut self.buffer)?;
        let (whole, rest) = dst.as_chunks_mut::<8>();
        for (rows, byte) in whole.iter_mut().zip(&self.buffer) {
            for (k, row) in rows.iter_mut().enumerate() {
                *row = byte >> k & 1;
            }
        }
        if let (Some(byte), 1..) = (self.buffer.last(), rest.len()) {
            (self.byte, self.left) = (*byte, 8);
            self.take(rest);
        }
        Ok(())
    }

    /// Fills `dst` with bits of the last byte, which has as many left.
    fn take(&mut self, dst: &mut [u8]) {
        for row in &mut *dst {
            *row = self.byte & 1;
            self.byte >>= 1;
        }
        self.left -= dst.len();
    }
}

/// Returns the bytes of a buffer, which has `needed`, from the place `skipped` on. That is 0 if they are compressed.
fn open(file: &Arc<Opened>, span: Span, part: &Part, skipped: u64, needed: u64) -> io::Result<Bytes> {
    let from = |at: u64, len: u64| {
        // A short buffer needs no long one.
        let step = file.step(READ).min(usize::try_from(len).unwrap_or(usize::MAX)).max(READ);
        BufReader::with_capacity(step, Opened::from(file, at).up_to(at.saturating_add(len))).take(len)
    };
    let Some(codec) = part.codec else {
        return Ok(Box::new(from(span.at + skipped, span.len - skipped)));
    };
    // In front of the compressed bytes is their length when they are not, or -1 if they are not.
    let mut len = [0; 8];
    let packed = Span { at: span.at + 8, len: span.len.checked_sub(8).ok_or(io::ErrorKind::UnexpectedEof)? };
    file.read_at(&mut len, span.at)?;
    let len = i64::from_le_bytes(len);
    let has = if len == -1 { packed.len } else { u64::try_from(len).unwrap_or(0) };
    if has < needed {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let packed = from(packed.at, packed.len);
    Ok(match codec {
        _ if len == -1 => Box::new(packed),
        Codec::Zstd => Box::new(Decoder::with_buffer(packed)?),
        Codec::Lz4 => Box::new(FrameDecoder::new(packed)),
    })
}
