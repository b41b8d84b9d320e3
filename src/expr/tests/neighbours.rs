//! Values of neighbouring rows: the host kernel on windows of chunks, and the CUDA source.

use std::sync::Arc;

use super::super::program::Program;
use super::super::shape::{Extent, RowShape};
use super::super::{Expression, samples};
use super::Column;
use super::cuda::{Rows, run_rows_as_cpp};
use crate::data::Dtype;
use crate::device::as_cpp::has_compiler;
use crate::device::kernel::{Columns, HostKernel, Uniform};

/// Inputs `x` with all elements, and `w` with one for each row, of a whole job.
pub(super) struct Job {
    pub(super) program: Arc<Program>,
    width: usize,
    total: usize,
    inputs: [Column; 2],
}

impl Job {
    pub(super) fn new(text: &str, dtype: Dtype, width: usize, total: usize) -> Job {
        let extents = vec![Extent::Full, if width > 1 { Extent::PerRow } else { Extent::Full }];
        let row =
            RowShape { dims: if width > 1 { vec![width as u64] } else { vec![] }, extents, ..RowShape::default() };
        let inputs = [(total * width, 1), (total, 2)].map(|(count, seed)| Column::mixed(dtype, count, seed));
        Job { program: bind(text, &row, dtype).unwrap(), width, total, inputs }
    }

    pub(super) fn columns(&self) -> Columns {
        Columns { total_rows: self.total as u64, ..self.program.kernel().columns }
    }

    /// The rows at both ends of the inputs that are read around them.
    pub(super) fn ends(&self) -> Vec<Column> {
        let ends = self.program.ends().iter().map(|(input, half)| {
            let (column, width) = (&self.inputs[*input], if *input == 0 { self.width } else { 1 });
            let len = self.total.min(*half);
            let zeros = vec![0; (half - len) * width];
            let (first, last) = (column.slice(0, len * width), column.slice((self.total - len) * width, column.rows()));
            Column::from_bits(column.dtype, first.bits().chain(zeros.clone()).chain(zeros).chain(last.bits()))
        });
        ends.collect()
    }

    /// The rows of the inputs that the kernel reads for these rows.
    pub(super) fn windows(&self, first_row: usize, rows: usize) -> [Column; 2] {
        let columns = self.columns();
        [0, 1].map(|k| {
            let window = columns.window(k, &(first_row as u64..(first_row + rows) as u64));
            let width = if k == 0 { self.width } else { 1 };
            self.inputs[k].slice(window.start as usize * width, window.end as usize * width)
        })
    }

    /// The bytes of the outputs, and those of the partials.
    pub(super) fn run(&self, first_row: usize, rows: usize) -> Vec<u8> {
        self.run_on(&mut *self.program.kernel().new_host_kernel().unwrap(), first_row, rows)
    }

    /// The same of this host kernel.
    pub(super) fn run_on(&self, host: &mut dyn HostKernel, first_row: usize, rows: usize) -> Vec<u8> {
        let (windows, ends) = (self.windows(first_row, rows), self.ends());
        let outputs = self.program.outputs().iter().enumerate();
        let mut outputs: Vec<Column> =
            outputs.map(|(k, (_, dtype))| Column::zeros(*dtype, rows * self.program.output_elements(k))).collect();
        let mut partials = vec![u64::MAX; self.columns().partial_bytes(rows) / 8];
        let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(Column::bytes_mut).collect();
        let resident: Vec<&[u8]> = ends.iter().map(Column::bytes).collect();
        let uniform = Uniform { resident: &resident, total_rows: self.total as u64, ..Uniform::default() };
        let bytes = bytemuck::cast_slice_mut(&mut partials);
        let inputs: Vec<&[u8]> = windows.iter().map(Column::bytes).collect();
        host.run(first_row as u64, rows, &inputs, &mut slices, bytes, &uniform);
        let mut all: Vec<u8> = outputs.iter().flat_map(|output| output.bytes().to_vec()).collect();
        all.extend(bytemuck::cast_slice::<u64, u8>(&partials));
        all
    }
}

fn bind(text: &str, row: &RowShape, dtype: Dtype) -> crate::Result<Arc<Program>> {
    let expression = Expression::parse(text).unwrap();
    let inputs = ["x", "w"].map(|name| (name.to_owned(), dtype));
    let names = expression.outputs().filter(|name| !expression.reads(name));
    let outputs: Vec<_> = names.map(|name| (name.to_owned(), None)).collect();
    expression.bind_rows(row, &inputs, &[], &[], &outputs).map(Arc::new)
}

const TEXT: &str = "y = shift(x, 1, edge) + shift(w, -3, wrap); z = moving_mean(x, 5, 1); \
                    p = shift(f64(w) * i, 40, nan); q = shift(shift(x, 70, wrap), -90, edge); \
                    r = shift(x > w, -1, False); sum(moving_max(x, 3, edge) * 1)";

const KEPT: &str = "y = x[x != shift(w, 1, wrap)]; sum(shift(x, -1, 0)[x != 0])";

#[test]
fn cuda_source_gives_the_same_bits() {
    if !has_compiler() {
        return;
    }
    // Each compilation takes a second, so few of them have wide rows.
    for (text, dtype, width) in
        [(TEXT, Dtype::F64, 1), (TEXT, Dtype::U8, 1), (TEXT, Dtype::F32, 3), (TEXT, Dtype::I16, 300)]
    {
        let job = Job::new(text, dtype, width, 1);
        let tile = job.columns().tile_rows;
        let ranges = |total: usize| [(0, tile.min(total)), (total / tile * tile, total % tile)];
        let totals = [2, 3 * tile + 7];
        let runs = totals.iter().flat_map(|total| ranges(*total).map(|(first, rows)| (*total, first, rows)));
        for (total, first_row, rows) in runs.filter(|(.., rows)| *rows > 0) {
            let job = Job::new(text, dtype, width, total);
            let range = Rows { first_row: first_row as u64, rows, total_rows: total as u64 };
            let cpp = run_rows_as_cpp(&job.program, range, (&job.windows(first_row, rows), &job.ends()), &[]);
            let bytes = job.run(first_row, rows);
            let differs = cpp.iter().zip(&bytes).position(|(one, other)| one != other);
            assert_eq!(
                (differs, cpp.len()),
                (None, bytes.len()),
                "{dtype}, rows of {width}, {total}, {first_row}, {text}"
            );
        }
    }
}

/// What a chunk computes does not depend on where it begins.
#[test]
fn chunks_have_the_values_of_the_whole() {
    for (dtype, width) in [(Dtype::F64, 1), (Dtype::Bool, 1), (Dtype::I32, 7), (Dtype::F32, 1300)] {
        let text =
            if dtype == Dtype::Bool { "y = shift(x, 1, wrap) ^ shift(w, -30, True)" } else { "y = diff(x * w, wrap)" };
        let tile = Job::new(text, dtype, width, 1).columns().tile_rows;
        for total in [1, 5 * tile / 2] {
            let job = Job::new(text, dtype, width, total);
            let whole = job.run(0, total);
            let parts = (0..total).step_by(tile).flat_map(|first| job.run(first, tile.min(total - first)));
            assert_eq!(parts.collect::<Vec<_>>(), whole, "{dtype}, rows of {width}, {total} rows");
        }
    }
}

#[test]
fn kept_rows_are_those_of_their_condition() {
    let job = Job::new(KEPT, Dtype::I32, 1, 5000);
    let bytes = job.run(0, 4096);
    let (x, w): (Vec<u64>, Vec<u64>) = (job.inputs[0].bits().collect(), job.inputs[1].bits().collect());
    let kept: Vec<u32> = (0..4096).filter(|row| x[*row] != w[(row + 4999) % 5000]).map(|row| x[row] as u32).collect();
    assert_eq!(bytes[..4 * kept.len()], *bytemuck::cast_slice::<u32, u8>(&kept));
}

#[test]
fn halos_are_as_large_as_needed() {
    let columns = |text: &str| Job::new(text, Dtype::F64, 1, 10_000).columns();
    let halos = |text: &str| columns(text).halos.iter().map(|halo| (halo.before, halo.after)).collect::<Vec<_>>();
    assert_eq!(halos("y = x + w"), []);
    assert_eq!(halos("y = shift(x, 0, edge) + w"), []);
    assert_eq!(halos("y = shift(x, 2, edge) + shift(x, -1, edge) + w"), [(2, 1), (0, 0)]);
    assert_eq!(halos("y = moving_sum(x, 9, 0) + shift(w, 1, wrap)"), [(8, 0), (1, 0)]);
    assert_eq!(halos("y = shift(i, 5, 0) + x + w"), []);
    assert!(columns("y = shift(i, 5, 0) + x + w").total_rows > 0);
    // A value that shifts have moved there and back around the ends is the value itself.
    assert_eq!(halos("y = shift(shift(x, 3, wrap), -3, wrap) + w"), []);
}

#[test]
fn kernels_without_neighbours_are_as_before() {
    let job = Job::new("y = x + w", Dtype::F64, 1, 10);
    let text = job.program.kernel().code.text().to_owned();
    assert!(!text.contains("total_rows") && samples().iter().any(|kernel| kernel.code.text().contains("total_rows")));
}
