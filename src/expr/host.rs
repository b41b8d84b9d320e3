//! Runs a program on the host: one operation on the elements of one span at a time, in vectorised loops.

use std::ops::Range;
use std::sync::Arc;

use super::apply::{self, Block, Place, Target};
use super::dispatch;
use super::gather::InputRows;
use super::ir::{Id, Op};
use super::kept::KeptRows;
use super::program::Program;
use super::reduce::{Lanes, Reduction};
use super::scan::TileSums;
use super::shape::Extent;
use super::sweeps::{self, Sweep};
use super::tiling::{BLOCK_ELEMENTS, Span, Tiling};
use super::windows::{self, MovingWindow};
use super::within::RowReduction;
use crate::data::{Dtype, PastCache};
use crate::device::kernel::{HostKernel, Uniform};

/// The maximum number of cached row-independent results: 512 KiB of registers. Others are recomputed for every block.
const MAX_CONSTANTS: usize = 64;

/// A step of the work on a block.
#[derive(Clone, Copy, Debug)]
enum Step {
    Compute(Id),
    /// Computes a moving window.
    Move {
        window: usize,
    },
    Store {
        output: usize,
    },
    Push {
        reduction: usize,
    },
    /// Reduces each row of the block.
    ReduceRows {
        reduction: usize,
        to: Id,
    },
    /// Adds up rows.
    AddUp {
        sums: usize,
        to: Id,
    },
    /// Accumulates elements of a row that is larger than a block.
    PushOfRow {
        reduction: usize,
    },
    /// Repeats the value of such a row.
    ValueOfRow {
        reduction: usize,
        to: Id,
    },
    /// Finds the rows that the outputs keep.
    Keep,
}

/// A program with the memory to run it.
pub(super) struct HostProgram {
    program: Arc<Program>,
    sweeps: Vec<Steps>,
    /// The one that is run.
    sweep: usize,
    /// What is run instead of the only sweep where moving windows are whole.
    moving: Option<Arc<Moving>>,
    /// Whether they are, in the span that is run.
    is_moving: bool,
    /// Each register holds the values of one block; narrow dtypes use only the start of it.
    registers: Vec<Vec<u64>>,
    tiling: Tiling,
    lanes: Vec<Lanes>,
    /// The reductions within rows, in the order of the program.
    within: Vec<RowReduction>,
    /// The running sums, in the order of the program.
    sums: Vec<TileSums>,
    /// The rows that the outputs keep of the last span, if they are filtered.
    kept: KeptRows,
    /// The row-independent results, in order of computation.
    constants: Vec<Id>,
    /// The scalars from which the constants were computed; `None` before the first run.
    scalars: Option<Vec<u64>>,
    total_rows: u64,
    /// Whether the loops use the second best instruction set.
    uses_second_level: bool,
    /// Which outputs are stored past the cache.
    is_past_cache: Vec<bool>,
}

/// The steps of a program with moving windows.
struct Moving {
    windows: Vec<MovingWindow>,
    steps: Steps,
}

/// The columns of some tiles.
struct Columns<'a, 'b> {
    first_row: u64,
    /// The inputs of the program: rows of columns, and rows that are the same for all rows.
    inputs: &'a [InputRows<'a>],
    outputs: &'a mut [&'b mut [u8]],
    /// For the outputs that are stored past the cache.
    past_cache: Option<PastCache>,
    is_past_cache: &'a [bool],
    /// The words of the chunk to which counts are added.
    of_chunk: &'a mut [u64],
}

impl Columns<'_, '_> {
    fn none() -> Self {
        let (past_cache, is_past_cache, of_chunk) = (None, &[][..], &mut [][..]);
        Columns { first_row: 0, inputs: &[], outputs: &mut [], past_cache, is_past_cache, of_chunk }
    }

    /// Returns some elements of an output.
    fn target(&mut self, program: &Program, output: usize, elements: Range<usize>) -> Target<'_> {
        let size = program.outputs[output].1.size();
        let past_cache = self.past_cache.as_ref().filter(|_| self.is_past_cache[output]);
        Target::Output(&mut self.outputs[output][elements.start * size..elements.end * size], past_cache)
    }
}

impl HostProgram {
    pub(super) fn new(program: Arc<Program>) -> HostProgram {
        let tiling = program.tiling();
        let Plan { sweeps, moving, constants, registers } =
            plan(&program, &sweeps::of(&program, tiling.has_small_rows()));
        let within = program.row_reductions();
        let within = within.map(|(_, kind, of)| RowReduction::new(kind, of, program.nodes[of].dtype)).collect();
        let sums = program.running_sums();
        let sums = sums.map(|(_, of, before)| TileSums::new(of, before, program.nodes[of].dtype)).collect();
        let lanes = program.reductions.iter().map(|reduction| Lanes::new(reduction, tiling)).collect();
        let registers = vec![vec![0; BLOCK_ELEMENTS]; registers];
        let is_past_cache = vec![false; program.outputs.len()];
        let (scalars, uses_second_level) = (None, false);
        HostProgram {
            program,
            sweeps,
            sweep: 0,
            moving,
            is_moving: false,
            registers,
            tiling,
            lanes,
            within,
            sums,
            kept: KeptRows::default(),
            constants,
            scalars,
            total_rows: 0,
            uses_second_level,
            is_past_cache,
        }
    }

    /// Computes the row-independent results, unless they are up to date.
    fn compute_constants(&mut self, scalars: &[u64], total_rows: u64) {
        if self.scalars.as_deref() == Some(scalars) && self.total_rows == total_rows {
            return;
        }
        self.total_rows = total_rows;
        (self.scalars, self.sweep, self.is_moving) = (Some(scalars.to_vec()), 0, false);
        let span = Span { row: 0, column: 0, elements: 0..BLOCK_ELEMENTS };
        for constant in 0..self.constants.len() {
            self.compute(self.constants[constant], &span, &mut Columns::none());
        }
    }

    /// The windows that are computed by loops of their own.
    #[cfg(test)]
    pub(super) fn windows(&self) -> usize {
        self.moving.as_ref().map_or(0, |moving| moving.windows.len())
    }

    /// The same program without such loops.
    #[cfg(test)]
    pub(super) fn without_windows(self) -> HostProgram {
        HostProgram { moving: None, ..self }
    }

    /// The number of registers.
    #[cfg(test)]
    pub(super) fn registers(&self) -> usize {
        self.registers.len()
    }

    /// The steps that are run.
    fn steps(&self) -> &Steps {
        match &self.moving {
            Some(moving) if self.is_moving => &moving.steps,
            _ => &self.sweeps[self.sweep],
        }
    }

    /// Computes a moving window, which is whole in all rows of a span.
    fn compute_window(&mut self, window: usize, span: &Span, columns: &mut Columns<'_, '_>) {
        let Some(moving) = self.moving.clone() else { return };
        let window = &moving.windows[window];
        let inputs = columns.inputs;
        match moving.steps.places[window.id] {
            Place::Output(output) => {
                let block = self.block(span, columns.first_row, inputs);
                window.apply(&block, columns.target(&self.program, output, span.elements.clone()));
            }
            Place::Register(register) => {
                let mut values = std::mem::take(&mut self.registers[register]);
                window.apply(&self.block(span, columns.first_row, inputs), Target::Register(&mut values));
                self.registers[register] = values;
            }
            Place::Input(_) | Place::Near { .. } => {}
        }
    }

    /// Computes a result for a span.
    fn compute(&mut self, id: Id, span: &Span, columns: &mut Columns<'_, '_>) {
        match self.steps().places[id] {
            Place::Near { view, .. } if self.block(span, columns.first_row, columns.inputs).moves(view).is_some() => {}
            Place::Register(register) | Place::Near { register, .. } => {
                let mut values = std::mem::take(&mut self.registers[register]);
                let block = self.block(span, columns.first_row, columns.inputs);
                apply::apply(&self.program, id, &block, Target::Register(&mut values));
                self.registers[register] = values;
            }
            Place::Output(output) => {
                let block = self.block(span, columns.first_row, columns.inputs);
                let target = columns.target(&self.program, output, span.elements.clone());
                apply::apply(&self.program, id, &block, target);
            }
            Place::Input(_) => {}
        }
    }

    /// Gives the register of a result to a function that writes it.
    fn write_register(&mut self, id: Id, write: impl FnOnce(&Self, &mut [u64])) {
        if let Place::Register(register) = self.steps().places[id] {
            let mut values = std::mem::take(&mut self.registers[register]);
            write(self, &mut values);
            self.registers[register] = values;
        }
    }

    /// Runs the sweeps over a row that is larger than a block.
    fn run_row(&mut self, row: usize, columns: &mut Columns<'_, '_>) {
        let width = self.tiling.width;
        for sweep in 0..self.sweeps.len() {
            self.sweep = sweep;
            for reduction in &self.sweeps[sweep].reduces {
                self.within[*reduction].begin();
            }
            let elements = if self.sweeps[sweep].is_of_row { 1 } else { width };
            for column in (0..elements).step_by(BLOCK_ELEMENTS) {
                let end = elements.min(column + BLOCK_ELEMENTS);
                self.run_span(&Span { row, column, elements: row * width + column..row * width + end }, columns);
            }
            for reduction in &self.sweeps[sweep].reduces {
                self.within[*reduction].end();
            }
        }
    }

    fn block<'a>(&'a self, span: &Span, first_row: u64, inputs: &'a [InputRows<'a>]) -> Block<'a> {
        let scalars = self.scalars.as_deref().unwrap_or_default();
        Block {
            places: &self.steps().places,
            registers: &self.registers,
            inputs,
            views: &self.program.near.views,
            total_rows: self.total_rows,
            scalars,
            first_row,
            width: self.tiling.width,
            row: span.row,
            column: span.column,
            start: span.elements.start,
            elements: span.elements.len(),
        }
    }

    /// Runs a span.
    fn run_span(&mut self, span: &Span, columns: &mut Columns<'_, '_>) {
        self.is_moving = self.moving.as_ref().is_some_and(|moving| {
            let rows = self.block(span, columns.first_row, columns.inputs).rows();
            moving.windows.iter().all(|window| window.is_whole(&rows, self.total_rows))
        });
        for step in 0..self.steps().steps.len() {
            match self.steps().steps[step] {
                Step::Compute(id) => self.compute(id, span, columns),
                Step::Move { window } => self.compute_window(window, span, columns),
                Step::Store { output } => self.store(output, span, columns),
                Step::Push { reduction } => {
                    let mut lanes = std::mem::take(&mut self.lanes);
                    let of = &self.program.reductions[reduction];
                    let block = self.block(span, columns.first_row, columns.inputs);
                    let weights = of.weight.map(|weight| block.values(weight)).unwrap_or_default();
                    if let Some(tally) = of.tally() {
                        let before: usize =
                            self.program.reductions[..reduction].iter().map(Reduction::chunk_words).sum();
                        tally.push(block.values(of.of), weights, &mut columns.of_chunk[before..before + tally.words()]);
                        self.lanes = lanes;
                        continue;
                    }
                    let first = if of.is_by_column() { block.first_row() } else { block.first_element() };
                    lanes[reduction].push(of, first, block.values(of.of), weights);
                    self.lanes = lanes;
                }
                Step::ReduceRows { reduction, to } => {
                    let mut within = std::mem::take(&mut self.within);
                    self.write_register(to, |program, out| {
                        let block = program.block(span, columns.first_row, columns.inputs);
                        let values = block.values(within[reduction].of);
                        within[reduction].reduce(values, block.width, &mut out[..block.elements]);
                    });
                    self.within = within;
                }
                Step::AddUp { sums, to } => {
                    let mut all = std::mem::take(&mut self.sums);
                    self.write_register(to, |program, out| {
                        let block = program.block(span, columns.first_row, columns.inputs);
                        let values = block.values(all[sums].of);
                        all[sums].next(values, &mut out[..block.elements]);
                    });
                    self.sums = all;
                }
                Step::PushOfRow { reduction } => {
                    let mut within = std::mem::take(&mut self.within);
                    let block = self.block(span, columns.first_row, columns.inputs);
                    let values = block.values(within[reduction].of);
                    within[reduction].push(span.column, values);
                    self.within = within;
                }
                Step::ValueOfRow { reduction, to } => {
                    let value = self.within[reduction].value();
                    self.write_register(to, |_, out| out[..span.elements.len()].fill(value));
                }
                Step::Keep => {
                    let mut kept = std::mem::take(&mut self.kept);
                    let block = self.block(span, columns.first_row, columns.inputs);
                    let conditions = self.program.filter.map(|condition| block.values(condition));
                    kept.find(conditions.unwrap_or_default(), block.width);
                    self.kept = kept;
                }
            }
        }
    }

    /// Moves these columns of the rows that a filter has kept of the last block, which begins with `row`, to rows from
    /// `to` on. Returns their number.
    fn move_kept(&self, row: usize, own: &Range<usize>, columns: &mut Columns<'_, '_>, to: usize) -> usize {
        let (program, width) = (&self.program, self.tiling.width);
        if program.filter.is_none() {
            return 0;
        }
        let outputs = program.outputs.iter().zip(&program.output_extents);
        for (output, ((_, dtype), extent)) in columns.outputs.iter_mut().zip(outputs) {
            let size = dtype.size();
            match extent {
                Extent::PerRow if own.start > 0 => {}
                Extent::PerRow => self.kept.move_elements(output, size, row, to),
                _ if width == 1 => self.kept.move_elements(output, size, row, to),
                _ => self.kept.move_parts(output, width * size, own.start * size..own.end * size, row, to),
            }
        }
        self.kept.count()
    }

    /// Stores a result in an output: all of its elements, or those of the first column.
    fn store(&mut self, output: usize, span: &Span, columns: &mut Columns<'_, '_>) {
        let id = self.program.output_ids[output];
        let dtype = self.program.nodes[id].dtype;
        let block = self.block(span, columns.first_row, columns.inputs);
        if self.program.output_extents[output] != Extent::PerRow {
            let target = columns.target(&self.program, output, span.elements.clone());
            apply::store(dtype, id, &block, target);
        } else if span.column == 0 {
            let rows = span.row..span.row + span.elements.len().div_ceil(block.width);
            apply::store_first_column(dtype, id, &block, &mut columns.outputs[output][of_rows(&rows, dtype)]);
        }
    }

    /// Runs rows tile by tile. Inputs, outputs and partials have the right lengths.
    fn run_tiles(&mut self, rows: usize, columns: &mut Columns<'_, '_>, partials: &mut [u64], uniform: &Uniform<'_>) {
        self.compute_constants(uniform.values, uniform.total_rows);
        let (program, tiling) = (Arc::clone(&self.program), self.tiling);
        let (tile_rows, words) = (tiling.tile_rows(), program.partial_words());
        let is_swept = self.sweeps.len() > 1;
        let columns_at_once = if is_swept { tiling.width } else { tiling.columns_at_once() };
        for tile in 0..rows.div_ceil(tile_rows) {
            let own = tile * tile_rows..rows.min((tile + 1) * tile_rows);
            for sums in &mut self.sums {
                sums.begin(columns.inputs[sums.before].rows, columns.first_row as usize / tile_rows + tile);
            }
            for first_column in (0..tiling.width).step_by(columns_at_once) {
                let own_columns = first_column..tiling.width.min(first_column + columns_at_once);
                for (lanes, reduction) in self.lanes.iter_mut().zip(&program.reductions) {
                    lanes.clear(reduction);
                }
                let mut kept = own.start;
                for row in own.clone().filter(|_| is_swept) {
                    self.run_row(row, columns);
                    kept += self.move_kept(row, &own_columns, columns, kept);
                }
                let spans = Some(tiling.spans(own.clone(), own_columns.clone())).filter(|_| !is_swept);
                for span in spans.into_iter().flatten() {
                    self.run_span(&span, columns);
                    kept += self.move_kept(span.row, &own_columns, columns, kept);
                }
                let mut rest = &mut partials[tile * words..(tile + 1) * words];
                let of_tiles = self.lanes.iter_mut().zip(&program.reductions).filter(|(_, of)| of.tally().is_none());
                for (lanes, reduction) in of_tiles {
                    let (state, behind) = rest.split_at_mut(program.words_of(reduction));
                    lanes.finish(reduction, own_columns.clone(), state);
                    rest = behind;
                }
            }
        }
    }
}

/// The bytes of rows of one element.
fn of_rows(rows: &Range<usize>, dtype: Dtype) -> Range<usize> {
    rows.start * dtype.size()..rows.end * dtype.size()
}

impl HostKernel for HostProgram {
    fn run(
        &mut self,
        first_row: u64,
        rows: usize,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        partials: &mut [u8],
        uniform: &Uniform<'_>,
    ) {
        let program = Arc::clone(&self.program);
        let (streamed, resident) = program.split_inputs();
        let own = first_row..first_row + rows as u64;
        let windows: Vec<_> = streamed.iter().map(|k| program.near.halo(*k).window(&own, uniform.total_rows)).collect();
        let of_inputs = streamed.iter().zip(&windows).map(|(k, window)| {
            let (name, row_bytes) = program.input_row(*k);
            (name, (window.end - window.start) as usize * row_bytes)
        });
        check("input", of_inputs, inputs.iter().map(|slice| slice.len()));
        let of_outputs = (0..program.outputs.len()).map(|k| program.output_row(k));
        let of_outputs = of_outputs.map(|(name, row_bytes)| (name, rows * row_bytes));
        check("output", of_outputs, outputs.iter().map(|slice| slice.len()));
        let ends = program.ends().iter().map(|(k, rows)| {
            let (name, row_bytes) = program.input_row(*k);
            (name, 2 * rows * row_bytes)
        });
        let tiles = (first_row as usize + rows).div_ceil(self.tiling.tile_rows());
        let of_resident = resident.iter().map(|k| match program.row.extent(*k) {
            // There may be more tiles behind those of the chunk.
            Extent::PerTile => (program.input_row(*k).0, tiles * program.inputs[*k].1.size()),
            _ => program.input_row(*k),
        });
        let of_rows: Vec<_> = of_resident.chain(ends).collect();
        let is_longer = |k: usize| resident.get(k).is_some_and(|k| program.row.extent(*k) == Extent::PerTile);
        let bytes = uniform.resident.iter().enumerate().map(|(k, row)| match of_rows.get(k) {
            Some((_, least)) if is_longer(k) => row.len().min(*least),
            _ => row.len(),
        });
        check("row", of_rows.iter().copied(), bytes);
        let mut of_program = vec![InputRows::default(); program.inputs.len()];
        for ((k, window), rows) in streamed.iter().zip(&windows).zip(inputs) {
            of_program[*k] = InputRows { rows, front: (first_row - window.start) as usize, ends: &[] };
        }
        let (of_resident, of_ends) = uniform.resident.split_at(resident.len());
        resident.iter().zip(of_resident).for_each(|(k, row)| of_program[*k].rows = row);
        program.ends().iter().zip(of_ends).for_each(|((k, _), ends)| of_program[*k].ends = ends);
        assert_eq!(uniform.values.len(), program.values.len(), "number of values");
        // An empty slice may have any address.
        let partials: &mut [u64] = if partials.is_empty() { &mut [] } else { bytemuck::cast_slice_mut(partials) };
        let tiles = rows.div_ceil(self.tiling.tile_rows());
        let of_chunk = program.chunk_words();
        assert_eq!(partials.len(), of_chunk + tiles * program.partial_words(), "words of the partials");
        let (of_chunk, partials) = partials.split_at_mut(of_chunk);
        let is_past_cache = std::mem::take(&mut self.is_past_cache);
        let past_cache = is_past_cache.contains(&true).then(PastCache::new);
        let inputs = &of_program;
        let mut columns = Columns { first_row, inputs, outputs, past_cache, is_past_cache: &is_past_cache, of_chunk };
        match self.uses_second_level {
            true => dispatch::at_second_level(|| self.run_tiles(rows, &mut columns, partials, uniform)),
            false => self.run_tiles(rows, &mut columns, partials, uniform),
        }
        self.is_past_cache = is_past_cache;
    }

    fn store_past_cache(&mut self, outputs: &[bool]) -> bool {
        // Operands of products are read soon.
        self.is_past_cache[..outputs.len()].copy_from_slice(outputs);
        true
    }

    fn is_repeatable(&self) -> bool {
        true
    }

    fn use_other_instructions(&mut self) -> bool {
        self.uses_second_level = dispatch::has_second_level();
        self.uses_second_level
    }
}

/// Checks the bytes of columns, of which each has a name and bytes.
fn check<'n>(
    what: &str,
    columns: impl ExactSizeIterator<Item = (&'n str, usize)>,
    bytes: impl ExactSizeIterator<Item = usize>,
) {
    assert_eq!(bytes.len(), columns.len(), "number of {what}s");
    for ((name, expected), bytes) in columns.zip(bytes) {
        assert_eq!(bytes, expected, "bytes of {what} {name}");
    }
}

/// Where each result is stored, and the order of computation.
struct Plan {
    sweeps: Vec<Steps>,
    moving: Option<Arc<Moving>>,
    /// The row-independent results, which are computed once per set of scalars.
    constants: Vec<Id>,
    registers: usize,
}

/// The steps of a sweep over the elements of a span, or of a row that is larger than a block.
struct Steps {
    steps: Vec<Step>,
    places: Vec<Place>,
    /// The reductions within rows that are known after it.
    reduces: Vec<usize>,
    /// Whether it is computed for one element of each row.
    is_of_row: bool,
}

fn plan(program: &Program, sweeps: &[Sweep]) -> Plan {
    let nodes = &program.nodes;
    let mut is_constant = Vec::with_capacity(nodes.len());
    let mut constants = Vec::new();
    // Constants keep their registers. Those of results that a sweep does not compute are not read.
    let mut places = vec![Place::Register(0); nodes.len()];
    for (id, node) in nodes.iter().enumerate() {
        let varies = matches!(
            node.op,
            Op::Input(_)
                | Op::At(..)
                | Op::Row
                | Op::RowAt(_)
                | Op::Element
                | Op::Column
                | Op::Reduce(..)
                | Op::RunningSum(..)
        );
        let is_kept =
            !varies && constants.len() < MAX_CONSTANTS && node.op.operands().all(|operand| is_constant[operand]);
        if is_kept {
            places[id] = Place::Register(constants.len());
            constants.push(id);
        }
        is_constant.push(is_kept);
    }
    let mut plan = Plan { sweeps: Vec::new(), moving: None, registers: constants.len(), constants };
    for (number, sweep) in sweeps.iter().enumerate() {
        let is_last = number + 1 == sweeps.len();
        let sweep = (sweep, is_last, sweeps.len() > 1);
        let (steps, registers) = steps_of(program, sweep, &[], &is_constant, places.clone());
        plan.registers = plan.registers.max(plan.constants.len() + registers);
        plan.sweeps.push(steps);
    }
    let (windows, remaining) = windows::of(program);
    if let ([sweep], false) = (sweeps, windows.is_empty()) {
        let sweep = Sweep { nodes: remaining, reduces: vec![], is_of_row: sweep.is_of_row };
        let (steps, registers) = steps_of(program, (&sweep, true, false), &windows, &is_constant, places);
        plan.registers = plan.registers.max(plan.constants.len() + registers);
        plan.moving = Some(Arc::new(Moving { windows, steps }));
    }
    plan
}

/// Returns the steps of a sweep, and the number of registers that it needs besides those of constants. In the last one
/// outputs are stored. A row is swept if it is larger than a block. Moving windows read no results.
fn steps_of(
    program: &Program,
    (sweep, is_last, is_swept): (&Sweep, bool, bool),
    windows: &[MovingWindow],
    is_constant: &[bool],
    mut places: Vec<Place>,
) -> (Steps, usize) {
    let nodes = &program.nodes;
    let first_register = is_constant.iter().filter(|is_constant| **is_constant).count();
    // The stores and reductions of each result.
    let mut uses: Vec<Vec<Step>> = vec![Vec::new(); nodes.len()];
    let mut last_use: Vec<Id> = (0..nodes.len()).collect();
    let is_reduction = |id: Id| matches!(nodes[id].op, Op::Reduce(..));
    let window_of = |id: Id| windows.iter().position(|window| window.id == id);
    let operands = |id: Id| nodes[id].op.operands().filter(move |_| window_of(id).is_none());
    for id in sweep.nodes.iter().filter(|id| !is_swept || !is_reduction(**id)) {
        operands(*id).for_each(|operand| last_use[operand] = *id);
    }
    let (mut reduces, mut number_of) = (Vec::new(), vec![None; nodes.len()]);
    for (reduction, (id, _, of)) in program.row_reductions().enumerate() {
        number_of[id] = Some(reduction);
        if sweep.reduces.contains(&id) {
            uses[of].push(Step::PushOfRow { reduction });
            reduces.push(reduction);
        }
    }
    if is_last {
        program.output_ids.iter().enumerate().for_each(|(output, of)| uses[*of].push(Step::Store { output }));
        program.filter.into_iter().for_each(|condition| uses[condition].push(Step::Keep));
        for (reduction, of) in program.reductions.iter().enumerate() {
            let weight = of.weight.unwrap_or(of.of);
            let (first, last) = (weight.min(of.of), weight.max(of.of));
            uses[last].push(Step::Push { reduction });
            last_use[first] = last_use[first].max(last);
        }
    }
    // The output of a result that is used for nothing else.
    let only_output = |id: Id| match uses[id][..] {
        [Step::Store { output }]
            if last_use[id] == id
                && apply::goes_to_outputs(nodes[id])
                && program.output_extents[output] != Extent::PerRow =>
        {
            Some(output)
        }
        _ => None,
    };
    let only_outputs: Vec<Option<usize>> = (0..nodes.len()).map(only_output).collect();
    let (mut steps, mut registers, mut free) = (Vec::new(), 0, Vec::new());
    for &id in &sweep.nodes {
        let node = nodes[id];
        places[id] = match node.op {
            _ if is_constant[id] => places[id],
            // In a column any nonzero byte is `true`; in a register `true` is 1.
            Op::Input(input) if node.dtype != Dtype::Bool && program.row.extent(input) == Extent::Full => {
                Place::Input(input)
            }
            op => match only_outputs[id] {
                Some(output) => Place::Output(output),
                None => {
                    let register = free.pop().unwrap_or_else(|| {
                        registers += 1;
                        first_register + registers - 1
                    });
                    match op {
                        Op::At(input, view)
                            if node.dtype != Dtype::Bool && program.row.extent(input) == Extent::Full =>
                        {
                            Place::Near { input, view, register }
                        }
                        _ => Place::Register(register),
                    }
                }
            },
        };
        if let Some(sums) = program.running_sums().position(|(own, ..)| own == id) {
            steps.push(Step::AddUp { sums, to: id });
        }
        match (places[id], number_of[id]) {
            _ if is_constant[id] || matches!(node.op, Op::RunningSum(..)) => {}
            (_, Some(reduction)) if is_swept => steps.push(Step::ValueOfRow { reduction, to: id }),
            (_, Some(reduction)) => steps.push(Step::ReduceRows { reduction, to: id }),
            (Place::Register(_) | Place::Near { .. } | Place::Output(_), None) => steps.push(match window_of(id) {
                Some(window) => Step::Move { window },
                None => Step::Compute(id),
            }),
            (Place::Input(_), None) => {}
        }
        if !matches!(places[id], Place::Output(_)) {
            steps.append(&mut uses[id]);
        }

        // A register is free after the last operation that reads it, and not earlier: that operation writes to
        // another one.
        let is_read = |of: &Id| *of == id || !is_swept || !is_reduction(id);
        let mut done: Vec<Id> = operands(id).chain([id]).filter(is_read).filter(|of| last_use[*of] == id).collect();
        done.sort_unstable();
        done.dedup();
        for of in done.into_iter().filter(|of| !is_constant[*of]) {
            if let Place::Register(register) | Place::Near { register, .. } = places[of] {
                free.push(register);
            }
        }
    }
    (Steps { steps, places, reduces, is_of_row: sweep.is_of_row }, registers)
}
