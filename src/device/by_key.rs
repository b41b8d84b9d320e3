//! The kernel that adds rows to the sums of their keys, in the order of the rows.
//!
//! The sums are the words of a chunk, to which every launch adds. Unlike counts they are floats, so the order matters:
//! on a GPU, each element of the sums has one thread, which meets all rows in order, and the host does the same.

use std::ops::Add;
use std::sync::Arc;

use super::kernel::{Code, Columns, HostKernel, Kernel, Launch, ScalarArgs, Source, TILE_THREADS, Uniform};
use super::product::{ColumnProduct, Float, Product};

/// The begin of its source, by which it is recognised.
const PREFIX: &str = "// overshot sums by key v1: ";

const ENTRY: &str = "overshot_sums_by_key";

const BODY: &str = include_str!("../../kernels/sums_by_key.cu");

/// Returns the kernel that computes `sums[key][column] = sums[key][column] + x[row][column]` for row after row.
///
/// Its inputs are the keys, an `i32` for each row, and `x`, with rows of `width` elements. Rows whose key is not from 0
/// to `keys` - 1 are skipped. The sums, `keys` rows of `width` floats, are the words of the chunk. A launch has at most
/// `tile_rows` rows. `keys` and `width` are not 0, and `keys` is less than 2^31.
pub(crate) fn sums_by_key(float: Float, keys: usize, width: usize, tile_rows: usize) -> Kernel {
    let size = float.size();
    let columns = Columns {
        inputs: vec![size_of::<i32>(), width * size],
        chunk_words: (keys * width * size).div_ceil(8),
        most_rows: tile_rows,
        tile_rows,
        ..Columns::default()
    };
    let (strips, classes) = warps(keys, width);
    // A strip has 32 columns, so no sums that fit a memory have too many blocks.
    let blocks_per_tile = (strips * classes).div_ceil(TILE_THREADS / 32) as u32;
    Kernel {
        entry: ENTRY.into(),
        code: Code::own(Source::generated(move || source(float, keys, width, tile_rows))),
        launch: Launch { blocks_per_tile, ..Launch::of(&columns, 0, 0) },
        columns,
        resident: vec![],
        values: ScalarArgs::new(vec![]),
        host: Some(Box::new(move || Box::new(SumsByKey { float, keys, width }))),
        layers: Arc::default(),
    }
}

/// Returns the strips of 32 columns that the warps of a launch have, and the classes of keys. Every warp looks at all
/// keys, so there are no more classes than a GPU needs to be busy.
fn warps(keys: usize, width: usize) -> (usize, usize) {
    let strips = width.div_ceil(32);
    (strips, (2048 / strips).clamp(1, 256).min(keys))
}

fn source(float: Float, keys: usize, width: usize, tile_rows: usize) -> String {
    let (name, element) = match float {
        Float::F32 => ("f32", "float"),
        Float::F64 => ("f64", "double"),
    };
    let (_, classes) = warps(keys, width);
    format!(
        "{PREFIX}{name} {keys} {width} {tile_rows}\n{BODY}\n\
         extern \"C\" __global__ void __launch_bounds__({TILE_THREADS}) {ENTRY}(\n    \
             long long, long long rows, const int* keys, const {element}* elements, {element}* sums)\n\
         {{\n    \
             overshot::add_by_key<{element}, {keys}, {width}, {classes}>(rows, keys, elements, sums);\n\
         }}\n"
    )
}

/// Returns the kernel if `source` is its source.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn rebuild(source: &str) -> Option<Kernel> {
    let mut words = source.lines().next()?.strip_prefix(PREFIX)?.split(' ');
    let float = match words.next()? {
        "f32" => Float::F32,
        "f64" => Float::F64,
        _ => return None,
    };
    let mut number = || words.next()?.parse().ok();
    Some(sums_by_key(float, number()?, number()?, number()?))
}

/// Returns kernels of different shapes.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn samples() -> [Kernel; 3] {
    const ROWS: usize = 1 << 16;
    [
        sums_by_key(Float::F32, 100, 1024, ROWS),
        sums_by_key(Float::F32, 1000, 3, ROWS),
        sums_by_key(Float::F64, 7, 33, ROWS),
    ]
}

struct SumsByKey {
    float: Float,
    keys: usize,
    width: usize,
}

impl HostKernel for SumsByKey {
    fn run(&mut self, _: u64, _: usize, inputs: &[&[u8]], _: &mut [&mut [u8]], partials: &mut [u8], _: &Uniform<'_>) {
        match self.float {
            Float::F32 => self.add::<f32>(inputs, partials),
            Float::F64 => self.add::<f64>(inputs, partials),
        }
    }
}

impl SumsByKey {
    fn add<T: Element>(&self, inputs: &[&[u8]], sums: &mut [u8]) {
        let (keys, elements): (&[i32], &[T]) = (bytemuck::cast_slice(inputs[0]), bytemuck::cast_slice(inputs[1]));
        assert_eq!(elements.len(), keys.len() * self.width, "elements of the rows");
        let sums: &mut [T] = &mut bytemuck::cast_slice_mut(sums)[..self.keys * self.width];
        for (key, row) in keys.iter().zip(elements.chunks_exact(self.width)) {
            let Some(key) = usize::try_from(*key).ok().filter(|key| *key < self.keys) else { continue };
            let sums = &mut sums[key * self.width..][..self.width];
            sums.iter_mut().zip(row).for_each(|(sum, element)| *sum = (*sum + *element).canonical());
        }
    }
}

trait Element: bytemuck::Pod + Add<Output = Self> {
    /// Replaces a NaN by the canonical NaN, because its bits differ between processors.
    fn canonical(self) -> Self;
}

macro_rules! element {
    ($float:ident, $nan:literal) => {
        impl Element for $float {
            fn canonical(self) -> $float {
                if self.is_nan() { $float::from_bits($nan) } else { self }
            }
        }
    };
}
element!(f32, 0x7fc0_0000);
element!(f64, 0x7ff8_0000_0000_0000);

impl ColumnProduct {
    /// Returns the kernel that adds up rows by their keys, at most so many rows at a time; `None` if the left operand
    /// is no keys.
    pub(crate) fn kernel(&self, rows: usize) -> Option<Kernel> {
        let Product { float, left, right } = self.product;
        self.by_key.then(|| sums_by_key(float, left, right, rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::as_cpp::{self, has_compiler};

    /// Runs the host kernel on these rows. The sums begin with 0.
    fn run<T: bytemuck::Pod>(kernel: &Kernel, keys: &[i32], elements: &[T]) -> Vec<u64> {
        let mut words = vec![0_u64; kernel.columns.chunk_words];
        let inputs = [bytemuck::cast_slice(keys), bytemuck::cast_slice(elements)];
        let mut host = kernel.new_host_kernel().unwrap();
        host.run(0, keys.len(), &inputs, &mut [], bytemuck::cast_slice_mut(&mut words), &Uniform::default());
        words
    }

    #[test]
    fn rows_are_added_to_the_sums_of_their_keys_in_order() {
        let kernel = sums_by_key(Float::F64, 3, 1, 100);
        // 1 is lost behind 1e16, and not in front of it.
        let words = run(&kernel, &[2, 0, 2, 0, 2], &[1e16, 5.0, 1.0, 0.25, -1e16]);
        assert_eq!(bytemuck::cast_slice::<u64, f64>(&words), [5.25, 0.0, 0.0]);
        let words = run(&kernel, &[2, 2, 2], &[1e16, -1e16, 1.0]);
        assert_eq!(bytemuck::cast_slice::<u64, f64>(&words), [0.0, 0.0, 1.0]);
    }

    #[test]
    fn rows_without_a_key_are_skipped() {
        let kernel = sums_by_key(Float::F32, 2, 1, 100);
        assert_eq!(run(&kernel, &[-1, 2, i32::MIN, i32::MAX], &[1.0_f32; 4]), [0]);
    }

    #[test]
    fn a_sum_that_is_nan_has_the_same_bits_on_every_processor() {
        let own = [f32::from_bits(0xffc0_1234), f32::INFINITY, f32::NEG_INFINITY, 2.0];
        let words = run(&sums_by_key(Float::F32, 2, 1, 100), &[0, 1, 1, 0], &own);
        assert_eq!(words, [0x7fc0_0000_7fc0_0000]);
        let own = [f64::from_bits(0xfff8_0000_0000_1234), 2.0];
        assert_eq!(run(&sums_by_key(Float::F64, 1, 1, 100), &[0, 0], &own), [0x7ff8_0000_0000_0000]);
    }

    #[test]
    fn a_launch_has_about_two_thousand_warps() {
        let shapes = [(1000, 1024), (1000, 1), (1000, 33), (1000, 100_000), (3, 32), (1, 1)];
        assert_eq!(
            shapes.map(|(keys, width)| warps(keys, width)),
            [(32, 64), (1, 256), (2, 256), (3125, 1), (1, 3), (1, 1)]
        );
        let kernel = sums_by_key(Float::F32, 5, 33, 4096);
        assert_eq!((kernel.launch.blocks_per_tile, kernel.launch.threads), (2, 256));
        // 165 floats, two in a word.
        assert_eq!((kernel.columns.chunk_words, &kernel.columns.inputs), (83, &vec![4, 132]));
    }

    #[test]
    fn a_kernel_is_known_by_its_source() {
        for kernel in samples() {
            let again = rebuild(kernel.code.text()).unwrap();
            assert_eq!((again.columns, again.launch), (kernel.columns, kernel.launch));
        }
        for other in ["", "// overshot copy v1", "// overshot sums by key v1: i32 1 1 1", BODY] {
            assert!(rebuild(other).is_none(), "{other}");
        }
    }

    /// Compiles the CUDA source as plain C++, to check without a GPU that it gives the same bits as the host kernel.
    #[test]
    fn cuda_source_gives_the_same_bits() {
        if !has_compiler() {
            return;
        }
        // More rows than a block looks at together; runs of a key, alternating keys, and keys that are none. Of 300
        // keys, 2 and 258 are of one class. If there is one key, the last group of the kernel is full.
        const ROWS: usize = 2048 + 112;
        let key = |row: usize, keys: usize| match row % 7 {
            0 => [-1, keys as i32, i32::MIN, i32::MAX][row / 7 % 4],
            1..4 => ([2, 2, 2, 258][row / 70 % 4] % keys) as i32,
            other => ((row / 3 * 31 + other) % keys) as i32,
        };
        let element = |place: usize| (place * 7919 % 1013) as f64 / 7.0 * [1.0, -1e6, 1e-6][place % 3];
        let mut elements: Vec<f64> = (0..ROWS * 35).map(element).collect();
        // Other bits than those of the canonical NaN; with three columns, one is among the last rows.
        [37, 2068 * 3 + 2].iter().for_each(|&place| elements[place] = f64::from_bits(0xfff8_0000_0000_1234));
        // Two strips, the last one of three columns; then one strip of three.
        for (keys, width) in [(9, 35), (9, 3), (300, 3), (1, 3)] {
            let row_keys: Vec<i32> = (0..ROWS).map(|row| key(row, keys)).collect();
            let elements = &elements[..ROWS * width];
            compare(&sums_by_key(Float::F64, keys, width, 4096), "double", &row_keys, elements);
            let elements: Vec<f32> = elements.iter().map(|&x| x as f32).collect();
            compare(&sums_by_key(Float::F32, keys, width, 4096), "float", &row_keys, &elements);
        }
    }

    fn compare<T: bytemuck::Pod>(kernel: &Kernel, element: &str, keys: &[i32], elements: &[T]) {
        let words = run(kernel, keys, elements);
        let inputs: [&[u8]; 2] = [bytemuck::cast_slice(keys), bytemuck::cast_slice(elements)];
        let functions = format!(
            "static Columns columns() {{ return {{{{{}, {}}}, {{0, 0}}, {{}}, {}, 0, {{}}, 4096, {}}}; }}\n\
             static void launch(long long first_row, long long rows, std::vector<Column>& at) {{\n    \
                 overshot_sums_by_key(first_row, rows, (int*)at[0], ({element}*)at[1], ({element}*)at[2]);\n\
             }}\n",
            inputs[0].len(),
            inputs[1].len(),
            words.len() * 8,
            kernel.launch.blocks_per_tile,
        );
        let range = [0, keys.len() as u64];
        let given = [bytemuck::bytes_of(&range), inputs[0], inputs[1]].concat();
        let found = as_cpp::run(kernel.code.text(), &functions, &given);
        assert_eq!(found, bytemuck::cast_slice::<u64, u8>(&words), "{:?}", kernel.columns);
    }
}
