//! Panels: device memory in which the operands of products are put together from several chunks.
//!
//! A library multiplies many rows at once far faster than the rows of a chunk, which are as few as slots are small. The
//! rows of a panel are fixed, so that results do not depend on chunks. Several panels are filled and multiplied at a
//! time.

use std::ops::Range;
use std::sync::Arc;

use super::budget::Charge;
use super::pinned::{PAGE, PinnedMemory};
use super::{MemoryBudget, MemoryCache};
use crate::device::kernel::{ColumnProduct, Columns, Side};
use crate::device::product::DEVICE_ROWS;
use crate::device::{Device, WORKSPACE_BYTES};
use crate::error::Result;

/// Bytes of a panel, if its rows are neither too many nor too few.
const PANEL_BYTES: usize = 32 << 20;
/// The fewest rows of a panel: the sum is read and written for each of them.
const LEAST_ROWS: usize = 4096;
/// Sums of products: one is computed while the other is copied to the host.
pub(crate) const SUMS: usize = 2;
/// Pieces of pinned memory through which sums come to the host, and the most bytes of each.
const PIECES: usize = 2;
const PIECE_BYTES: usize = 4 << 20;
const ALIGNMENT: usize = 256;

/// Offsets of operands in a panel, and of the sums of products in their memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PanelLayout {
    /// The rows of a panel: a power of two.
    pub(crate) rows: usize,
    /// Where the operands that the kernel computes begin, and the bytes of their rows.
    pub(crate) operands: Vec<(usize, usize)>,
    /// The same for each input; `None` if it is not multiplied as it is.
    pub(crate) inputs: Vec<Option<(usize, usize)>>,
    pub(crate) panel_bytes: usize,
    /// The range of the sum of each product.
    pub(crate) sums: Vec<Range<usize>>,
    pub(crate) sum_bytes: usize,
    /// The bytes in which factors are split, some rows of a panel at a time.
    pub(crate) split_bytes: usize,
}

impl PanelLayout {
    /// Computes the layout; `None` if there are no products.
    pub(crate) fn new(columns: &Columns) -> Option<PanelLayout> {
        if columns.products.is_empty() {
            return None;
        }
        let multiplied = |input: &usize| columns.is_multiplied(*input);
        let of_inputs = (0..columns.inputs.len()).filter(multiplied).map(|input| columns.inputs[input]);
        let row_bytes = of_inputs.chain(columns.operands.iter().copied()).sum::<usize>().max(1);
        let rows = 1 << (PANEL_BYTES / row_bytes).clamp(LEAST_ROWS, DEVICE_ROWS).ilog2();
        // The rows of the job, if it is small.
        let most = usize::try_from(columns.total_rows).ok().and_then(usize::checked_next_power_of_two);
        let rows = rows.min(most.unwrap_or(rows)).max(columns.unit_rows());
        let mut layout = PanelLayout { rows, ..PanelLayout::default() };
        let mut place = |bytes: usize| {
            let offset = layout.panel_bytes;
            layout.panel_bytes += (layout.rows * bytes).next_multiple_of(ALIGNMENT);
            (offset, bytes)
        };
        let inputs = columns.inputs.iter().enumerate();
        let inputs: Vec<_> = inputs.map(|(k, bytes)| columns.is_multiplied(k).then(|| place(*bytes))).collect();
        let operands: Vec<_> = columns.operands.iter().map(|bytes| place(*bytes)).collect();
        (layout.inputs, layout.operands) = (inputs, operands);
        let split = columns.products.iter().filter(|product| product.is_split(columns.precision));
        layout.split_bytes = split.map(|split| split.product.pieces(layout.rows).bytes).max().unwrap_or(0);
        for ColumnProduct { product, .. } in &columns.products {
            let begin = layout.sum_bytes;
            layout.sums.push(begin..begin + product.bytes());
            layout.sum_bytes = (begin + product.bytes()).next_multiple_of(ALIGNMENT);
        }
        Some(layout)
    }

    /// Returns the place of an operand in a panel, and the bytes of its rows.
    pub(crate) fn side(&self, side: Side) -> Option<(usize, usize)> {
        match side {
            Side::Operand(operand) => self.operands.get(operand).copied(),
            Side::Input(input) => self.inputs.get(input).copied().flatten(),
        }
    }

    /// Returns the bytes on a device with so many panels.
    pub(crate) fn device_bytes(&self, panels: usize) -> u64 {
        (panels * self.panel_bytes + SUMS * self.sum_bytes + self.workspace_bytes()) as u64
    }

    /// Returns the bytes that the stream of products needs, with the split factors behind them.
    fn workspace_bytes(&self) -> usize {
        WORKSPACE_BYTES + self.split_bytes
    }

    /// Returns the bytes of each of the pieces of pinned memory.
    fn piece_bytes(&self) -> usize {
        self.sum_bytes.min(PIECE_BYTES).next_multiple_of(PAGE)
    }

    /// Returns the bytes of pinned memory.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        (PIECES * self.piece_bytes()) as u64
    }
}

/// The memory of the products of one device in one run.
pub(crate) struct PanelMemory<D: Device> {
    pub(crate) layout: PanelLayout,
    pub(crate) panels: Vec<D::Memory>,
    /// [`SUMS`] of them.
    pub(crate) sums: Vec<D::Memory>,
    pub(crate) workspace: D::Memory,
    pieces: PinnedMemory,
    _charged: [Charge; 4],
}

impl<D: Device> PanelMemory<D> {
    /// Allocates and charges the memory of so many panels.
    pub(crate) fn new(
        cache: &MemoryCache<D>,
        layout: PanelLayout,
        panels: usize,
        memory: &Arc<MemoryBudget>,
        pinned: &Arc<MemoryBudget>,
    ) -> Result<Self> {
        let (device, bytes, of_pieces) = (cache.device(), layout.device_bytes(panels), layout.pinned_bytes());
        let _charged = [
            memory.charge(bytes)?,
            cache.device_budget().charge(bytes)?,
            pinned.charge(of_pieces)?,
            cache.pinned_budget().charge(of_pieces)?,
        ];
        let allocate = |count: usize, bytes: usize| (0..count).map(|_| device.allocate(bytes)).collect::<Result<_>>();
        Ok(PanelMemory {
            panels: allocate(panels, layout.panel_bytes)?,
            sums: allocate(SUMS, layout.sum_bytes)?,
            workspace: device.allocate(layout.workspace_bytes())?,
            pieces: PinnedMemory::new(Some(&**device), PIECES * layout.piece_bytes())?,
            _charged,
            layout,
        })
    }

    /// Returns everything but the pieces, and the pieces.
    pub(crate) fn split(&mut self) -> (PanelParts<'_, D>, impl Iterator<Item = &mut [u8]>) {
        let PanelMemory { layout, panels, sums, workspace, pieces, .. } = self;
        let bytes = layout.piece_bytes();
        (PanelParts { layout, panels, sums, workspace }, pieces.bytes.chunks_exact_mut(bytes).take(PIECES))
    }
}

/// The device memory of products.
pub(crate) struct PanelParts<'r, D: Device> {
    pub(crate) layout: &'r PanelLayout,
    pub(crate) panels: &'r [D::Memory],
    pub(crate) sums: &'r [D::Memory],
    pub(crate) workspace: &'r D::Memory,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::product::{Float, Product};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn operands_and_sums_do_not_overlap(
            inputs in prop::collection::vec(1usize..3000, 1..4), operands in prop::collection::vec(1usize..3000, 0..3),
            total_rows in prop::option::of(1u64..10_000_000), tile in 0u32..13,
        ) {
            let bytes = |widths: &[usize]| widths.iter().map(|width| width * 8).collect::<Vec<_>>();
            let sides: Vec<Side> =
                (0..operands.len()).map(Side::Operand).chain([Side::Input(0)]).collect();
            let product = |side: &Side| {
                let left = match side {
                    Side::Operand(k) => operands[*k],
                    Side::Input(k) => inputs[*k],
                };
                let product = Product { float: Float::F64, left, right: inputs[0] };
                ColumnProduct { product, sides: [*side, Side::Input(0)], by_key: false }
            };
            let columns = Columns {
                inputs: bytes(&inputs),
                operands: bytes(&operands),
                products: sides.iter().map(product).collect(),
                tile_rows: 1 << tile,
                total_rows: total_rows.unwrap_or(0),
                ..Columns::default()
            };
            let layout = PanelLayout::new(&columns).unwrap();
            prop_assert!(layout.rows.is_power_of_two() && DEVICE_ROWS.is_multiple_of(layout.rows));
            prop_assert!(layout.rows.is_multiple_of(columns.tile_rows));
            prop_assert!(layout.side(Side::Input(inputs.len())).is_none());
            prop_assert!(layout.inputs[1..].iter().all(Option::is_none));
            let mut places: Vec<_> = sides.iter().map(|side| layout.side(*side).unwrap()).collect();
            places.sort_unstable();
            let ends: Vec<usize> = places.iter().map(|(offset, bytes)| offset + bytes * layout.rows).collect();
            let next = places[1..].iter().map(|(offset, _)| *offset).chain([layout.panel_bytes]);
            prop_assert!(ends.iter().zip(next).all(|(end, next)| *end <= next));
            let sums = layout.sums.windows(2).all(|pair| pair[0].end <= pair[1].start);
            prop_assert!(sums && layout.sums.last().unwrap().end <= layout.sum_bytes);
            let has_room = |(range, of): (&Range<usize>, &ColumnProduct)| range.len() == of.product.bytes();
            prop_assert!(layout.sums.iter().zip(&columns.products).all(has_room));
        }
    }

    #[test]
    fn without_products_there_are_no_panels() {
        assert_eq!(PanelLayout::new(&Columns { inputs: vec![8], ..Columns::default() }), None);
    }
}
