//! Tests of rows of several elements: inputs that are broadcast, reductions of each column, and the CUDA source.

use std::sync::Arc;

use super::super::Expression;
use super::super::program::Program;
use super::super::shape::{Extent, RowShape};
use super::super::tiling::Tiling;
use super::cuda::run_wide_as_cpp;
use super::{Column, run_values};
use crate::data::Dtype;
use crate::device::as_cpp::has_compiler;
use crate::device::kernel::{TILE_THREADS, Uniform};

/// Inputs `x` with all elements, `w` with one for each row, and `m` with one row for all rows.
pub(super) struct Wide {
    pub(super) dtype: Dtype,
    pub(super) rows: usize,
    pub(super) width: usize,
    pub(super) x: Column,
    pub(super) w: Column,
    pub(super) m: Column,
}

impl Wide {
    pub(super) fn new(dtype: Dtype, rows: usize, width: usize) -> Wide {
        let [x, w, m] =
            [(rows * width, 1), (rows, 2), (width, 3)].map(|(count, seed)| Column::mixed(dtype, count, seed));
        Wide { dtype, rows, width, x, w, m }
    }

    pub(super) fn program(&self, text: &str) -> Arc<Program> {
        let extents = vec![Extent::Full, Extent::PerRow, Extent::PerColumn];
        bind(text, &RowShape { dims: vec![self.width as u64], extents, ..RowShape::default() }, self.dtype).unwrap()
    }

    pub(super) fn run(&self, program: &Arc<Program>, first_row: u64) -> (Vec<Column>, Vec<u64>) {
        let kernel = program.kernel();
        let elements = |output| self.rows * program.output_elements(output);
        let outputs = program.outputs().iter().enumerate();
        let mut outputs: Vec<Column> = outputs.map(|(k, (_, dtype))| Column::zeros(*dtype, elements(k))).collect();
        let mut partials = vec![u64::MAX; kernel.columns.partial_bytes(self.rows) / 8];
        partials[..kernel.columns.chunk_words].fill(0);
        let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(Column::bytes_mut).collect();
        let uniform = Uniform { resident: &[self.m.bytes()], ..Uniform::default() };
        let inputs = [self.x.bytes(), self.w.bytes()];
        let mut host = kernel.new_host_kernel().unwrap();
        let bytes = bytemuck::cast_slice_mut(&mut partials);
        host.run(first_row, self.rows, &inputs, &mut slices, bytes, &uniform);
        (outputs, partials)
    }

    /// The inputs with all elements.
    pub(super) fn broadcast(&self) -> [Column; 3] {
        let (w, m): (Vec<u64>, Vec<u64>) = (self.w.bits().collect(), self.m.bits().collect());
        let elements = || 0..self.rows * self.width;
        [
            self.x.clone(),
            Column::from_bits(self.dtype, elements().map(|at| w[at / self.width])),
            Column::from_bits(self.dtype, elements().map(|at| m[at % self.width])),
        ]
    }
}

/// The state of all tiles of these partials, combined one after the other.
pub(super) fn state(program: &Program, partials: &[u64]) -> Option<Vec<u64>> {
    let tiles = partials.chunks(program.partial_words()).map(|tile| program.state_of_tile(tile).into_owned());
    tiles.reduce(|mut all, tile| {
        let mut word = 0;
        for reduction in program.reductions() {
            let own = word..word + reduction.state_words();
            word = own.end;
            reduction.combine(&mut all[own.clone()], &tile[own]);
        }
        all
    })
}

pub(super) fn bind(text: &str, row: &RowShape, dtype: Dtype) -> crate::Result<Arc<Program>> {
    let expression = Expression::parse(text).unwrap();
    let inputs = ["x", "w", "m"].map(|name| (name.to_owned(), dtype));
    let names = expression.outputs().filter(|name| !expression.reads(name));
    let outputs: Vec<_> = names.map(|name| (name.to_owned(), None)).collect();
    expression.bind_rows(row, &inputs, &[], &[], &outputs).map(Arc::new)
}

/// Widths of one strip and of several, with whole rows and parts of rows in a turn.
const WIDTHS: [usize; 9] = [2, 3, 7, 100, 128, 129, 256, 300, 1300];

const TEXT: &str = "y = (x - m) * w; z = where(m > w, x, m); p = w * w; sum(x), max(x + m), argmin(x * w), var(x)";

const BY_COLUMN: &str = "sum(x, axis=0), mean(x * w, axis=0), var(x - m, axis=0, keepdims=True), min(x, axis=0), \
                         argmax(x, axis=0), prod(x, axis=0), any(x > m, axis=0), sum(x)";

#[test]
fn broadcast_inputs_have_the_values_of_whole_ones() {
    for dtype in [Dtype::F32, Dtype::F64, Dtype::I16, Dtype::Bool] {
        for width in WIDTHS.into_iter().chain([70_000]) {
            let wide = Wide::new(dtype, if width < 4096 { 70 } else { 3 }, width);
            let text = if dtype == Dtype::Bool { "y = x & m | w; z = where(m, x, w); p = w" } else { TEXT };
            let (outputs, _) = wide.run(&wide.program(text), 7 << 20);
            let twin = bind(text, &RowShape::default(), dtype).unwrap();
            let count = wide.rows * width;
            let (whole, _) =
                run_values(&mut *twin.kernel().new_host_kernel().unwrap(), &twin, 0, count, &wide.broadcast(), &[]);
            assert_eq!(outputs[..2], whole[..2], "{dtype}, {width}");
            let first = Column::from_bits(whole[2].dtype, whole[2].bits().step_by(width));
            assert_eq!(outputs[2], first, "{dtype}, {width}");
        }
    }
}

/// Exact reductions of all elements, and the numbers of rows and elements.
#[test]
fn all_elements_count_once() {
    for width in WIDTHS {
        let wide = Wide::new(Dtype::I32, 3 * Tiling::of(width, true).tile_rows() + 5, width);
        let program = wide.program("sum(x), argmax(x), sum(x * w - m)");
        let (_, partials) = wide.run(&program, 0);
        let twin = bind("sum(x), argmax(x), sum(x * w - m)", &RowShape::default(), Dtype::I32).unwrap();
        let count = wide.rows * width;
        let all = run_values(&mut *twin.kernel().new_host_kernel().unwrap(), &twin, 0, count, &wide.broadcast(), &[]).1;
        assert_eq!(state(&program, &partials), state(&twin, &all), "{width}");
    }
}

/// The definition of a reduction of each column of a tile: the rows that are a turn apart in order, then halves.
#[test]
fn columns_are_reduced_in_the_documented_order() {
    for width in WIDTHS {
        let tiling = Tiling::of(width, true);
        let wide = Wide::new(Dtype::F64, tiling.tile_rows() + 3, width);
        let program = wide.program("sum(x, axis=0), argmin(x, axis=0)");
        let (_, partials) = wide.run(&program, 1 << 30);
        for (tile, states) in partials.chunks(program.partial_words()).enumerate() {
            let rows = tile * tiling.tile_rows()..wide.rows.min((tile + 1) * tiling.tile_rows());
            for column in 0..width {
                let value = |row: usize| wide.x.value(row * width + column);
                let mut lanes = vec![-0.0; tiling.rows_at_once];
                rows.clone().for_each(|row| lanes[(row - rows.start) % tiling.rows_at_once] += value(row));
                while lanes.len() > 1 {
                    let half = lanes.split_off(lanes.len() / 2);
                    lanes.iter_mut().zip(half).for_each(|(lane, other)| *lane += other);
                }
                let sum = f64::from_bits(states[column]);
                assert!(
                    sum.to_bits() == lanes[0].to_bits() || (sum.is_nan() && lanes[0].is_nan()),
                    "{width}, {column}"
                );
                let nan = rows.clone().find(|row| value(*row).is_nan());
                let least = rows.clone().reduce(|best, row| if value(row) < value(best) { row } else { best });
                let expected = nan.or(least).unwrap() as u64 + (1 << 30);
                assert_eq!(states[2 * width + column], expected, "{width}, {column}");
            }
        }
    }
}

#[test]
fn cuda_source_gives_the_same_bits() {
    if !has_compiler() {
        return;
    }
    for (dtype, widths) in [(Dtype::F32, &WIDTHS[..]), (Dtype::U8, &[3, 300])] {
        for &width in widths {
            let wide = Wide::new(dtype, Tiling::of(width, true).tile_rows() + 3, width);
            for text in [TEXT, BY_COLUMN, "y = x + i; z = i * 2; q = rand(3) * m"] {
                compare_with_cpp(&wide, text);
            }
        }
    }
}

/// Compares the outputs and partials of the host kernel with those of the CUDA source.
pub(super) fn compare_with_cpp(wide: &Wide, text: &str) {
    let program = wide.program(text);
    let (outputs, partials) = wide.run(&program, 3 << 30);
    let inputs = [wide.x.clone(), wide.w.clone()];
    let cpp = run_wide_as_cpp(&program, (3 << 30, wide.rows), (&inputs, std::slice::from_ref(&wide.m)), &[]);
    let mut bytes: Vec<u8> = outputs.iter().flat_map(|output| output.bytes().to_vec()).collect();
    bytes.extend(bytemuck::cast_slice::<u64, u8>(&partials));
    let differs = cpp.iter().zip(&bytes).position(|(one, other)| one != other);
    assert_eq!((differs, cpp.len()), (None, bytes.len()), "{}, {}, {text}", wide.dtype, wide.width);
}

#[test]
fn values_that_rows_do_not_have_are_refused() {
    let row = RowShape {
        dims: vec![3],
        extents: vec![Extent::Full, Extent::PerRow, Extent::PerColumn],
        ..RowShape::default()
    };
    for (text, reason) in [
        ("y = m * 2", "the same for all rows"),
        ("argmax(w)", "of a value with one element for each row is not supported"),
        ("sum(w, axis=0)", "one element for each row"),
        ("max(m, axis=0)", "one row for all rows"),
        ("y = x[x > 0]", "a filter keeps whole rows"),
    ] {
        let error = bind(text, &row, Dtype::F64).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
    assert_eq!(Tiling::of(1, true).lanes(), TILE_THREADS);
}

/// `m` has the last of two dimensions of a row.
#[test]
fn values_without_all_dimensions_of_a_row_are_refused() {
    let extents = vec![Extent::Full, Extent::PerRow, Extent::PerColumn];
    let row = RowShape { dims: vec![2, 3], extents, lacks: vec![0, 0, 1], ..RowShape::default() };
    for text in ["y = w * m", "sum(w * m)", "s = max(w * m, axis=(1, 2))", "sum(i * m)", "bincount(w * m, 4)"] {
        let error = bind(text, &row, Dtype::I32).unwrap_err().to_string();
        assert!(error.contains("does not have all dimensions"), "{text}: {error}");
    }
    for text in ["y = w * m + x", "sum(w * m + x)", "sum(x * i)", "sum(rand(1) * m)", "mean(w * m - x, axis=0)"] {
        assert!(bind(text, &row, Dtype::I32).is_ok(), "{text}");
    }
}

#[test]
fn a_constant_has_the_elements_of_what_it_was_made_from() {
    let wide = Wide::new(Dtype::U16, 10, 3);
    for (text, elements) in [
        ("y = x >= -1", 3),
        ("y = (x != 70000) & (w > 0)", 3),
        ("y = isfinite(x) * w", 3),
        ("y = where(w < 70000, w, 0)", 1),
        ("y = isnan(w)", 1),
        ("y = f32(x) ** 0 * w", 3),
    ] {
        let program = wide.program(text);
        assert_eq!(program.output_elements(0), elements, "{text}");
        let inputs = wide.broadcast().map(|column| Column::from_bits(Dtype::U16, column.bits().step_by(3 / elements)));
        let whole = |column: &Column| column.bits().count() == 10 * elements;
        assert!(inputs.iter().all(whole), "{text}");
        let width_one = bind(text, &RowShape::default(), Dtype::U16).unwrap();
        let mut host = width_one.kernel().new_host_kernel().unwrap();
        let (twin, _) = run_values(&mut *host, &width_one, 0, 10 * elements, &inputs, &[]);
        assert_eq!(wide.run(&program, 0).0, twin, "{text}");
    }
}
