//! Generates CUDA C++ from a program: a kernel that uses the operations of `kernels/math.cu`, `functions` and
//! `kernels/reduce.cu`.

use std::fmt::Write as _;

use super::bins::Bins;
use super::exact::Digits;
use super::functions;
use super::header::header;
use super::ir::{Id, Node, Op};
use super::program::Program;
use super::reduce::{Fold, Reduction};
use super::shape::Extent;
use super::sweeps::{self, Sweep};
use super::tally::{LEFT_OUT, MOST_IN_SHARED};
use super::tiling::Tiling;
use super::view::{Rule, Step};
use super::words::{Binary, Kind, Unary};
use crate::data::Dtype;
use crate::device::kernel::{Halo, TILE_ROWS, TILE_THREADS};

/// The name of the entry point.
pub(super) const ENTRY: &str = "overshot_eval";

const MATH: &str = include_str!("../../kernels/math.cu");
const HALF: &str = include_str!("../../kernels/half.cu");
const SCAN: &str = include_str!("../../kernels/scan.cu");
const FILTER: &str = include_str!("../../kernels/filter.cu");
const REDUCE: &str = include_str!("../../kernels/reduce.cu");
const TALLY: &str = include_str!("../../kernels/tally.cu");
const RANDOM: &str = include_str!("../../kernels/random.cu");
const NEIGHBOURS: &str = include_str!("../../kernels/neighbours.cu");

/// Returns the complete source of a program.
pub(super) fn source(program: &Program) -> String {
    let filter = if program.is_filtered() { FILTER } else { "" };
    let scan = if program.adds_up() { SCAN } else { "" };
    let has_tiles = program.reductions.iter().any(|of| of.tally().is_none());
    let reduce = if has_tiles || program.reduces_within() { REDUCE } else { "" };
    let tally = if program.chunk_words() > 0 { TALLY } else { "" };
    let is_function = |node: &Node| node.dtype.is_float() && functions::is_function(node.op);
    let functions = if program.nodes.iter().any(is_function) { functions::cuda() } else { String::new() };
    let is_random = |node: &Node| matches!(node.op, Op::Binary(Binary::Random, ..));
    let random = if program.nodes.iter().any(is_random) { RANDOM } else { "" };
    let near = if program.near.reads_total { NEIGHBOURS } else { "" };
    let columns = program.inputs.iter().chain(&program.outputs).chain(&program.values).map(|(_, dtype)| *dtype);
    let has_half = columns.chain(program.nodes.iter().map(|node| node.dtype)).any(Dtype::is_half);
    let half = if has_half { HALF } else { "" };
    let mut body = Body { text: String::new() };
    body.kernel(program);
    format!("{}\n{MATH}{half}{functions}{random}{near}{filter}{scan}{reduce}{tally}\n{}", header(program), body.text)
}

struct Body {
    text: String,
}

impl Body {
    // Writing to a string does not fail.
    fn line(&mut self, indent: usize, line: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.text, "{:indent$}{line}", "", indent = indent * 4);
    }

    fn kernel(&mut self, program: &Program) {
        let mut parameters = vec!["i64 first_row".to_owned(), "i64 rows".to_owned()];
        if program.near.reads_total {
            parameters.push("i64 total_rows".to_owned());
        }
        let (streamed, broadcast) = program.split_inputs();
        let input = |index: &usize| format!("const {}* __restrict__ in{index}", stored_type(program.inputs[*index].1));
        parameters.extend(streamed.iter().map(input));
        for (index, (_, dtype)) in program.outputs.iter().enumerate() {
            parameters.push(format!("{}* __restrict__ out{index}", stored_type(*dtype)));
        }
        if !program.reductions.is_empty() {
            parameters.push("u64* __restrict__ partials".to_owned());
        }
        for (index, (_, dtype)) in program.values.iter().enumerate() {
            parameters.push(format!("{} value{index}", stored_type(*dtype)));
        }
        parameters.extend(broadcast.iter().map(input));
        let ends = |(index, _): &(usize, usize)| {
            format!("const {}* __restrict__ ends{index}", stored_type(program.inputs[*index].1))
        };
        parameters.extend(program.ends().iter().map(ends));
        self.line(0, format_args!("using namespace overshot;"));
        self.line(0, format_args!("extern \"C\" __global__ void __launch_bounds__({TILE_THREADS}) {ENTRY}("));
        self.line(1, format_args!("{})", parameters.join(", ")));
        self.line(0, format_args!("{{"));
        let tiling = program.tiling();
        match tiling.strips {
            1 => self.line(1, format_args!("const i64 tile = blockIdx.x;")),
            strips => {
                self.line(1, format_args!("const i64 tile = blockIdx.x / {strips};"));
                self.line(1, format_args!("const i64 strip = blockIdx.x % {strips};"));
            }
        }
        for (index, reduction) in of_tiles(program) {
            let state = state_type(reduction.fold, reduction.state);
            self.line(1, format_args!("{state} state{index}; state{index}.clear();"));
        }
        self.tally(program);
        if finds_places(program, tiling) {
            self.line(1, format_args!("__shared__ int counts[{}];", TILE_THREADS / 32));
            self.line(1, format_args!("Places places(counts);"));
        } else if program.is_filtered() {
            self.line(1, format_args!("i64 kept = tile * {};", tiling.tile_rows()));
        }
        if program.adds_up() {
            self.line(1, format_args!("__shared__ u64 totals[{}];", TILE_THREADS / 32));
        }
        for (id, of, before) in program.running_sums() {
            let sums = format!("RunningSum<{}> sums{id}", program.nodes[of].dtype);
            self.line(1, format_args!("{sums}(totals, in{before}[first_row / {TILE_ROWS} + tile]);"));
        }
        let within = program.row_reductions().map(|(id, ..)| row_reduction(program, id).words());
        if let Some(most) = of_tiles(program).map(|(_, reduction)| reduction.words()).chain(within).max() {
            self.line(1, format_args!("__shared__ u64 shared[{TILE_THREADS} * {most}];"));
        }
        self.line(1, format_args!("for (int turn = 0; turn < {}; ++turn) {{", tiling.turns));
        self.place(program, tiling);
        let counts_rows = program.is_filtered() && !finds_places(program, tiling);
        if counts_rows {
            self.line(2, format_args!("bool is_kept = false;"));
        }
        match &sweeps::of(program, tiling.width <= TILE_THREADS)[..] {
            [whole] => {
                self.numbers(2, program, tiling);
                self.operations(2, program, &whole.nodes);
                self.results(2, program, tiling);
            }
            all => all.iter().enumerate().for_each(|(number, sweep)| {
                self.sweep(program, tiling, (sweep, number + 1 == all.len()));
            }),
        }
        if counts_rows {
            self.line(2, format_args!("kept += is_kept;"));
        }
        self.line(1, format_args!("}}"));
        if program.chunk_words() > 0 {
            self.line(1, format_args!("tally.finish();"));
        }
        let (words, width) = (program.partial_words(), tiling.width);
        let mut before = program.chunk_words();
        for (index, reduction) in of_tiles(program) {
            let strip = if tiling.strips > 1 { "strip" } else { "0" };
            let to = format!("partials + tile * {words} + {before}");
            if reduction.is_by_column() {
                let template = format!("reduce_columns<{width}, {}>", tiling.rows_at_once);
                self.line(1, format_args!("{template}(state{index}, shared, {to}, {strip} * {TILE_THREADS});"));
            } else if tiling.strips == 1 {
                self.line(1, format_args!("reduce(state{index}, shared, {to});"));
            } else {
                self.line(1, format_args!("reduce(state{index}, shared, {to} + strip * {});", reduction.words()));
            }
            before += program.words_of(reduction);
        }
        self.line(0, format_args!("}}"));
    }

    /// What counts elements in words of the chunk.
    fn tally(&mut self, program: &Program) {
        if program.chunk_words() == 0 {
            return;
        }
        let has_sums = program.reductions.iter().any(|reduction| reduction.weights().is_some());
        let is_small = program.tiling().elements_of_block() <= MOST_IN_SHARED;
        self.line(1, format_args!("typedef Tally<{}, {has_sums}, {is_small}> Counts;", program.chunk_words()));
        self.line(1, format_args!("__shared__ int slots[Counts::SHARED];"));
        self.line(1, format_args!("Counts tally(partials, slots);"));
        for (index, reduction) in program.reductions.iter().enumerate() {
            if let Some(Bins::Equal(edges)) = reduction.tally().and_then(|tally| tally.place) {
                let bits =
                    [edges.low, edges.high, edges.step()].map(|value| format!("f64_bits({:#x}ull)", value.to_bits()));
                let (bins, dtype) = (edges.bins, edges.dtype);
                self.line(1, format_args!("const Edges<{bins}, {dtype}> edges{index} = {{{}}};", bits.join(", ")));
            }
        }
    }

    /// Counts the element of this thread.
    fn count(&mut self, indent: usize, program: &Program, condition: &str) {
        let mut before = 0;
        for (index, reduction) in program.reductions.iter().enumerate() {
            let Some(tally) = reduction.tally() else { continue };
            let of = reduction.of;
            self.line(indent, format_args!("{condition}{{"));
            match tally.place {
                Some(Bins::Keys(keys)) => {
                    self.line(indent + 1, format_args!("const int bin = bin_of_key<{keys}>(v{of});"));
                    let left_out = LEFT_OUT as u64;
                    self.line(
                        indent + 1,
                        format_args!("if (bin < 0 && v{of} != (i64){left_out:#x}ull) tally.count({before});"),
                    );
                }
                Some(Bins::List(most)) => {
                    let listed = reduction.weight.unwrap_or(of);
                    self.line(indent + 1, format_args!("if (v{of} == 0) tally.list<{most}>({before}, v{listed});"));
                    self.line(indent, format_args!("}}"));
                    before += reduction.chunk_words();
                    continue;
                }
                _ => self.line(indent + 1, format_args!("const int bin = edges{index}.bin(v{of});")),
            }
            let word = format!("{} + bin * {}", before + tally.first_word(), tally.bin_words());
            let add = match (tally.weights, reduction.weight) {
                (Some(dtype), Some(weight)) if dtype.is_float() => {
                    let Digits { count, scale, dropped } = Digits::of(dtype);
                    format!("add_float<{count}, {scale}, {dropped}>({word}, v{weight})")
                }
                (Some(_), Some(weight)) => format!("add_value({word}, v{weight})"),
                _ => format!("count({word})"),
            };
            self.line(indent + 1, format_args!("if (bin >= 0) tally.{add};"));
            self.line(indent, format_args!("}}"));
            before += reduction.chunk_words();
        }
    }

    /// A sweep over a row that has more elements than the block has threads.
    fn sweep(&mut self, program: &Program, tiling: Tiling, (sweep, is_last): (&Sweep, bool)) {
        let width = tiling.width;
        for id in &sweep.reduces {
            self.state_of_row(2, program, *id);
        }
        if sweep.is_of_row {
            self.line(2, format_args!("if (threadIdx.x == 0) {{"));
            self.line(3, format_args!("const i64 column = 0;"));
        } else {
            // Loads do not wait for those before them.
            self.line(2, format_args!("#pragma unroll 4"));
            let step = format!("column < {width}; column += {TILE_THREADS}");
            self.line(2, format_args!("for (i64 column = threadIdx.x; {step}) {{"));
        }
        self.numbers(3, program, tiling);
        let nodes: Vec<Id> =
            sweep.nodes.iter().copied().filter(|id| !matches!(program.nodes[*id].op, Op::Reduce(..))).collect();
        self.operations(3, program, &nodes);
        for id in &sweep.reduces {
            program.nodes[*id].op.operands().for_each(|of| self.line(3, format_args!("own{id}.push(v{of}, column);")));
        }
        if is_last {
            self.results(3, program, tiling);
        }
        self.line(2, format_args!("}}"));
        for id in &sweep.reduces {
            self.operation(2, program, *id);
        }
    }

    fn operations(&mut self, indent: usize, program: &Program, ids: &[Id]) {
        for id in ids {
            if let Op::Reduce(_, of) = program.nodes[*id].op {
                self.state_of_row(indent, program, *id);
                self.line(indent, format_args!("own{id}.push(v{of}, column);"));
            }
            self.operation(indent, program, *id);
        }
    }

    fn operation(&mut self, indent: usize, program: &Program, id: Id) {
        self.line(indent, format_args!("const {} v{id} = {};", program.nodes[id].dtype, operation(program, id)));
    }

    /// The state of a reduction within rows.
    fn state_of_row(&mut self, indent: usize, program: &Program, id: Id) {
        let reduction = row_reduction(program, id);
        let state = state_type(reduction.fold, reduction.state);
        self.line(indent, format_args!("{state} own{id}; own{id}.clear();"));
    }

    /// Stores the outputs of an element, and accumulates it.
    fn results(&mut self, indent: usize, program: &Program, tiling: Tiling) {
        let width = tiling.width;
        let is_guarded = has_spare_threads(program, tiling);
        let (mut of_element, mut of_row) = match is_guarded {
            true => (("if (is_row) ", "at".to_owned()), ("if (is_row && column == 0) ", "place".to_owned())),
            false => (("", "at".to_owned()), ("if (column == 0) ", "place".to_owned())),
        };
        if let Some(condition) = program.filter {
            let (element, row) = if finds_places(program, tiling) {
                // All elements of a kept row are kept, so that places of elements are those of rows.
                let first = tiling.tile_rows() * width;
                self.line(indent, format_args!("const bool is_kept = is_row && v{condition};"));
                self.line(indent, format_args!("const i64 to = tile * {first} + places.next(is_kept);"));
                ("to".to_owned(), format!("to / {width}"))
            } else {
                self.line(indent, format_args!("is_kept = v{condition};"));
                (format!("kept * {width} + column"), "kept".to_owned())
            };
            of_element = ("if (is_kept) ", element);
            of_row = ("if (is_kept && column == 0) ", row);
        }
        for (index, (id, (_, dtype))) in program.output_ids.iter().zip(&program.outputs).enumerate() {
            let (stored, place) = match program.output_extents[index] {
                Extent::PerRow => &of_row,
                _ => &of_element,
            };
            self.line(indent, format_args!("{stored}out{index}[{place}] = ({})stored(v{id});", stored_type(*dtype)));
        }
        let counted = if is_guarded { "if (is_row) " } else { "" };
        self.count(indent, program, counted);
        for (index, reduction) in of_tiles(program) {
            match reduction.weight {
                Some(weight) => {
                    self.line(indent, format_args!("{counted}state{index}.join(v{weight}, v{}, 0);", reduction.of));
                }
                None => {
                    let number = if reduction.is_by_column() { "row" } else { element(tiling) };
                    self.line(indent, format_args!("{counted}state{index}.push(v{}, {number});", reduction.of));
                }
            }
        }
    }

    /// The place of the element of this thread in this turn, or of its row if several sweeps are made over it.
    fn place(&mut self, program: &Program, tiling: Tiling) {
        let Tiling { width, rows_at_once, .. } = tiling;
        let tile_rows = tiling.tile_rows();
        if width == 1 {
            let own = format!("tile * {tile_rows} + turn * {TILE_THREADS}");
            if has_spare_threads(program, tiling) {
                // All threads of a block find places or sums together. Those behind the last row compute it again.
                self.line(2, format_args!("if ({own} >= rows) break;"));
                self.line(2, format_args!("const bool is_row = {own} + threadIdx.x < rows;"));
                self.line(2, format_args!("const i64 at = is_row ? {own} + threadIdx.x : rows - 1;"));
            } else {
                self.line(2, format_args!("const i64 at = {own} + threadIdx.x;"));
                self.line(2, format_args!("if (at >= rows) break;"));
            }
        } else if width <= TILE_THREADS {
            self.line(2, format_args!("const i64 column = threadIdx.x % {width};"));
            let first = format!("tile * {tile_rows} + turn * {rows_at_once}");
            let own = format!("{first} + threadIdx.x / {width}");
            let lanes = tiling.lanes();
            if has_spare_threads(program, tiling) {
                // All threads of a block reduce rows together. Those without a row compute the last one again.
                self.line(2, format_args!("if ({first} >= rows) break;"));
                self.line(2, format_args!("const bool is_row = threadIdx.x < {lanes} && {own} < rows;"));
                self.line(2, format_args!("const i64 place = is_row ? {own} : rows - 1;"));
            } else {
                self.line(2, format_args!("const i64 place = {own};"));
                self.line(2, format_args!("if (threadIdx.x >= {lanes} || place >= rows) break;"));
            }
        } else {
            self.line(2, format_args!("const i64 place = tile * {tile_rows} + turn;"));
            if program.reduces_within() {
                self.line(2, format_args!("if (place >= rows) break;"));
                return;
            }
            self.line(2, format_args!("const i64 column = strip * {TILE_THREADS} + threadIdx.x;"));
            self.line(2, format_args!("if (column >= {width} || place >= rows) break;"));
        }
    }

    /// The numbers of the element of this thread.
    fn numbers(&mut self, indent: usize, program: &Program, tiling: Tiling) {
        let width = tiling.width;
        if width > 1 {
            self.line(indent, format_args!("const i64 at = place * {width} + column;"));
        }
        let reads = |op| program.nodes.iter().any(|node| node.op == op);
        let near = program.near.reads_total;
        if !program.reductions.is_empty() || reads(Op::Row) || reads(Op::Element) || near {
            let place = if width == 1 { "at" } else { "place" };
            self.line(indent, format_args!("[[maybe_unused]] const i64 row = first_row + {place};"));
            if width > 1 {
                self.line(indent, format_args!("[[maybe_unused]] const i64 element = first_row * {width} + at;"));
            }
        }
        for (number, view) in program.near.views.iter().enumerate() {
            let is_read = |node: &Node| match node.op {
                Op::At(_, view) | Op::RowAt(view) => view == number,
                _ => false,
            };
            if program.nodes.iter().any(is_read) {
                let step = |row: String, step: &Step| match step.rule {
                    Rule::Edge => format!("overshot::edge({row}, {}, total_rows)", step.by),
                    Rule::Wrap => format!("overshot::wrap({row}, {}, total_rows)", step.by),
                };
                let there = view.steps().iter().fold("row".to_owned(), step);
                self.line(indent, format_args!("const i64 row{number} = {there};"));
            }
        }
    }
}

/// The reductions that have a state for each tile, with their numbers.
fn of_tiles(program: &Program) -> impl Iterator<Item = (usize, &Reduction)> {
    program.reductions.iter().enumerate().filter(|(_, reduction)| reduction.tally().is_none())
}

/// Whether threads that have no element take part in reductions of rows, in running sums or in finding places.
fn has_spare_threads(program: &Program, tiling: Tiling) -> bool {
    (program.reduces_within() && tiling.width <= TILE_THREADS) || program.adds_up() || finds_places(program, tiling)
}

/// Whether the threads of a block find the places of kept rows together. Otherwise all of them have the same row, and
/// each counts the kept ones.
fn finds_places(program: &Program, tiling: Tiling) -> bool {
    program.is_filtered() && tiling.width <= TILE_THREADS
}

/// How a reduction within rows combines elements.
fn row_reduction(program: &Program, id: Id) -> Reduction {
    match program.nodes[id].op {
        Op::Reduce(kind, of) => Reduction::new(String::new(), kind, program.nodes[of].dtype),
        _ => Reduction::new(String::new(), Kind::Sum, program.nodes[id].dtype),
    }
}

/// The variable with the number of an element.
fn element(tiling: Tiling) -> &'static str {
    if tiling.width == 1 { "row" } else { "element" }
}

/// The type of an element in memory. Any nonzero byte is `true`.
fn stored_type(dtype: Dtype) -> &'static str {
    if dtype == Dtype::Bool { "u8" } else { dtype.name() }
}

fn state_type(fold: Fold, dtype: Dtype) -> String {
    let name = match fold {
        Fold::Sum => "Sum",
        Fold::Product => "Product",
        Fold::Min => "Min",
        Fold::Max => "Max",
        Fold::ArgMin => "ArgMin",
        Fold::ArgMax => "ArgMax",
        Fold::Moments => "Moments",
        Fold::Tally => "Tally",
    };
    format!("{name}<{dtype}>")
}

/// The source of one operation. Names are qualified, because CUDA has functions with the same names.
fn operation(program: &Program, id: Id) -> String {
    let node = program.nodes[id];
    match node.op {
        Op::Input(input) => {
            let place = match program.row.extent(input) {
                Extent::PerRow if program.row.width() > 1 => "place",
                Extent::PerColumn if program.row.width() > 1 => "column",
                Extent::PerColumn => "0",
                _ => "at",
            };
            format!("in{input}[{place}]{}", bool_of(node.dtype))
        }
        Op::At(input, view) => format!("{}{}", input_at(program, input, view), bool_of(node.dtype)),
        Op::RowAt(view) => format!("row{view}"),
        Op::TotalRows => "total_rows".to_owned(),
        Op::Value(value) if node.dtype == Dtype::Bool => format!("value{value} != 0"),
        Op::Value(value) => format!("value{value}"),
        Op::Row => "row".to_owned(),
        Op::Element => "element".to_owned(),
        Op::Column => "column".to_owned(),
        Op::Constant(bits) => match node.dtype {
            Dtype::Bool => (bits != 0).to_string(),
            Dtype::F16 | Dtype::Bf16 => format!("{}_bits({bits:#x}u)", node.dtype),
            Dtype::F32 => format!("f32_bits({bits:#x}u)"),
            Dtype::F64 => format!("f64_bits({bits:#x}ull)"),
            dtype => format!("({dtype}){bits:#x}ull"),
        },
        Op::Cast(a) => format!("overshot::cast<{}>(v{a})", node.dtype),
        Op::Unary(op, a) => match op {
            Unary::Neg => format!("overshot::neg(v{a})"),
            Unary::Not => format!("overshot::not_(v{a})"),
            Unary::Key => format!("overshot::key(v{a})"),
            _ => format!("overshot::{}(v{a})", op.name()),
        },
        Op::Binary(op, a, b) => format!("overshot::{}(v{a}, v{b})", binary(op)),
        Op::Reduce(kind, _) => {
            let result = if matches!(kind, Kind::ArgMin | Kind::ArgMax) { "row" } else { "value" };
            format!("({})reduce_row<{}>(own{id}, shared).{result}", node.dtype, program.row.width())
        }
        Op::RunningSum(of, _) => format!("sums{id}.next(v{of})"),
        Op::Select(condition, then, otherwise) => format!("v{condition} ? v{then} : v{otherwise}"),
    }
}

/// Makes a stored value one of its dtype.
fn bool_of(dtype: Dtype) -> &'static str {
    if dtype == Dtype::Bool { " != 0" } else { "" }
}

/// The element of an input in the row that a view gives.
fn input_at(program: &Program, input: usize, view: usize) -> String {
    let (width, column) = match program.row.extent(input) {
        Extent::Full if program.row.width() > 1 => (program.row.width(), "column"),
        _ => (1, "0"),
    };
    if !program.near.views[view].wraps() {
        return match width {
            1 => format!("in{input}[row{view} - first_row]"),
            _ => format!("in{input}[(row{view} - first_row) * {width} + {column}]"),
        };
    }
    let half = program.ends().iter().find(|(own, _)| *own == input).map_or(0, |(_, rows)| *rows);
    let Halo { before, after } = program.near.halo(input);
    let window = format!("first_row - {before}, first_row + rows - 1 + {after}");
    let columns = format!("in{input}, ends{input}, row{view}");
    format!("overshot::row_of({columns}, first_row, {window}, {half}, total_rows, {width})[{column}]")
}

fn binary(op: Binary) -> &'static str {
    match op {
        Binary::Add => "add",
        Binary::Sub => "sub",
        Binary::Mul => "mul",
        Binary::Div => "div",
        Binary::FloorDiv => "floor_div",
        Binary::Rem => "rem",
        Binary::Pow => "power",
        Binary::And => "and_",
        Binary::Or => "or_",
        Binary::Xor => "xor_",
        Binary::Shl => "shl",
        Binary::Shr => "shr",
        Binary::Eq => "eq",
        Binary::Ne => "ne",
        Binary::Lt => "lt",
        Binary::Le => "le",
        Binary::Gt => "gt",
        Binary::Ge => "ge",
        Binary::Min | Binary::Max | Binary::Atan2 | Binary::Hypot => op.name(),
        Binary::Fmod | Binary::CopySign | Binary::NextAfter => op.name(),
        Binary::Random => "random",
    }
}
