//! Products of `f32` with the precision [`Bf16x3`](Precision::Bf16x3): factors are split, and then multiplied as
//! `bf16`.
//!
//! A number is about `h + l`, of which `h` is the nearest `bf16`, and `l` the one that is nearest to the rest: together
//! they have 16 bits. Of the four terms of `(h + l) * (h' + l')`, `l * l'` is as small as what is lost anyway. The
//! other three are those of one product of matrices, whose factors have three numbers in place of each: `h, h, l` in
//! the first factor, and `h, l, h` in the second one.

use half::bf16;
use std::sync::Arc;

use super::kernel::{Code, Columns, HostKernel, Kernel, Launch, ScalarArgs, Source, TILE_ROWS, TILE_THREADS, Uniform};
use super::product::{ColumnProduct, Float, MatrixProduct, Precision, Product};

/// The begin of the source, by which the kernel is recognised.
const PREFIX: &str = "// overshot split v1: ";

const ENTRY: &str = "overshot_split";

const BODY: [&str; 3] = [
    include_str!("../../kernels/math.cu"),
    include_str!("../../kernels/half.cu"),
    include_str!("../../kernels/split.cu"),
];

/// The bytes of a number that is split.
const NUMBER_BYTES: usize = 3 * size_of::<bf16>();
/// The most bytes of the rows of a panel that are split at a time, unless two of them have more. The sum is read and
/// written each time.
const PIECE_BYTES: usize = 64 << 20;
const ALIGNMENT: usize = 256;

/// A factor of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Factor {
    First,
    Second,
}

impl Factor {
    fn name(self) -> &'static str {
        match self {
            Factor::First => "first",
            Factor::Second => "second",
        }
    }

    /// The thirds of a number, from its halves.
    fn thirds(self, [high, low]: [bf16; 2]) -> [bf16; 3] {
        match self {
            Factor::First => [high, high, low],
            Factor::Second => [high, low, high],
        }
    }
}

/// Returns the kernel that makes three rows of `width` numbers of `bf16` of each row of `f32`. `width` is not 0.
pub(crate) fn split(factor: Factor, width: usize) -> Kernel {
    let tile_rows = (TILE_ROWS / width).max(1);
    let columns = Columns {
        inputs: vec![width * size_of::<f32>()],
        outputs: vec![width * NUMBER_BYTES],
        tile_rows,
        ..Columns::default()
    };
    Kernel {
        entry: ENTRY.into(),
        code: Code::own(Source::generated(move || source(factor, width, tile_rows))),
        launch: Launch::of(&columns, 0, 0),
        columns,
        resident: vec![],
        values: ScalarArgs::new(vec![]),
        host: Some(Box::new(move || Box::new(Split { factor, width }))),
        layers: Arc::default(),
    }
}

fn source(factor: Factor, width: usize, tile_rows: usize) -> String {
    let (name, is_first) = (factor.name(), factor == Factor::First);
    let body = BODY.concat();
    format!(
        "{PREFIX}{name} {width}\n{body}\n\
         extern \"C\" __global__ void __launch_bounds__({TILE_THREADS}) {ENTRY}(\n    \
             long long, long long rows, const float* from, unsigned short* to)\n\
         {{\n    \
             overshot::split<{width}, {tile_rows}, {is_first}>(rows, from, to);\n\
         }}\n"
    )
}

/// Returns the kernel if `source` is its source.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn rebuild(source: &str) -> Option<Kernel> {
    let (name, width) = source.lines().next()?.strip_prefix(PREFIX)?.split_once(' ')?;
    let factor = [Factor::First, Factor::Second].into_iter().find(|factor| factor.name() == name)?;
    Some(split(factor, width.parse().ok().filter(|width| *width > 0)?))
}

/// Returns kernels of different shapes.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn samples() -> [Kernel; 3] {
    [split(Factor::First, 1), split(Factor::Second, 100), split(Factor::First, 5000)]
}

struct Split {
    factor: Factor,
    width: usize,
}

impl HostKernel for Split {
    fn run(&mut self, _: u64, _: usize, inputs: &[&[u8]], outputs: &mut [&mut [u8]], _: &mut [u8], _: &Uniform<'_>) {
        let (from, to): (&[f32], &mut [bf16]) = (bytemuck::cast_slice(inputs[0]), bytemuck::cast_slice_mut(outputs[0]));
        for (from, to) in from.chunks_exact(self.width).zip(to.chunks_exact_mut(3 * self.width)) {
            for (place, number) in from.iter().enumerate() {
                let thirds = self.factor.thirds(halves(*number));
                thirds.into_iter().enumerate().for_each(|(row, third)| to[row * self.width + place] = third);
            }
        }
    }
}

/// Returns the nearest `bf16`, and the one that is nearest to the rest. A finite number stays finite.
fn halves(number: f32) -> [bf16; 2] {
    let nearest = |number: f32| if number.is_nan() { bf16::from_bits(0x7fc0) } else { bf16::from_f32(number) };
    let mut high = nearest(number);
    if !number.is_finite() {
        return [high, bf16::ZERO];
    }
    if high.is_infinite() {
        high = bf16::from_bits((number.to_bits() >> 16) as u16);
    }
    [high, nearest(number - high.to_f32())]
}

/// The memory in which factors of a product over the rows are split, some rows at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pieces {
    /// The rows of a piece: a power of two from 2 on.
    pub(crate) rows: usize,
    /// Where the second factor begins. The first one begins at 0.
    pub(crate) second: usize,
    /// The bytes of both.
    pub(crate) bytes: usize,
}

impl Product {
    /// Returns the pieces of panels of so many rows.
    pub(crate) fn pieces(&self, panel_rows: usize) -> Pieces {
        let rows = 1 << (PIECE_BYTES / (NUMBER_BYTES * (self.left + self.right))).clamp(2, panel_rows.max(2)).ilog2();
        let [first, second] = [self.left, self.right].map(|numbers| numbers * NUMBER_BYTES * rows);
        let begin = first.next_multiple_of(ALIGNMENT);
        Pieces { rows, second: begin, bytes: begin + second }
    }
}

impl ColumnProduct {
    /// Returns whether its factors are split with this precision.
    pub(crate) fn is_split(&self, precision: Precision) -> bool {
        !self.by_key && is_split(self.product.float, precision)
    }
}

impl MatrixProduct {
    /// Returns the bytes of the matrix when it is split.
    pub(crate) fn split_matrix_bytes(&self) -> usize {
        self.inner * self.width * NUMBER_BYTES
    }

    /// Returns the bytes of so many rows when they are split.
    pub(crate) fn split_bytes(&self, rows: usize) -> usize {
        rows * self.inner * NUMBER_BYTES
    }

    /// Returns the product of split factors.
    pub(crate) fn of_split(&self) -> MatrixProduct {
        MatrixProduct { inner: 3 * self.inner, ..*self }
    }
}

/// Whether products of this dtype have split factors.
pub(crate) fn is_split(float: Float, precision: Precision) -> bool {
    (float, precision) == (Float::F32, Precision::Bf16x3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::as_cpp::{self, has_compiler};

    /// Numbers of every size, and special ones.
    fn numbers(count: usize) -> Vec<f32> {
        let special = [0.0, -0.0, f32::MAX, f32::MIN, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE];
        let bits = |place: usize| (place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        let any =
            |place: usize| f32::from_bits(u32::from_le_bytes([bits(place)[3], bits(place)[4], 7, 63 ^ bits(place)[7]]));
        let ordinary = |place: usize| (place as f32 - 700.5) / 3.0;
        let number = |place: usize| match place % 16 {
            0..8 => ordinary(place),
            8 => special[place / 16 % 8],
            _ => any(place),
        };
        (0..count).map(number).collect()
    }

    fn run(kernel: &Kernel, width: usize, numbers: &[f32]) -> Vec<bf16> {
        let mut split = vec![bf16::ZERO; 3 * numbers.len()];
        let mut host = kernel.new_host_kernel().unwrap();
        let outputs = &mut [bytemuck::cast_slice_mut(&mut split)];
        host.run(0, numbers.len() / width, &[bytemuck::cast_slice(numbers)], outputs, &mut [], &Uniform::default());
        split
    }

    #[test]
    fn halves_have_sixteen_bits() {
        for number in numbers(5000).into_iter().chain([3.389_6e38, 1e-40]) {
            let [high, low] = halves(number).map(f64::from);
            let number = f64::from(number);
            if number.is_finite() {
                // What is lost is half of the last of 16 bits, or of the least number.
                let most = (number.abs() * f64::from(2.0_f32.powi(-16))).max(2.0_f64.powi(-133));
                assert!((high + low - number).abs() <= most, "{number}: {high} and {low}");
            } else {
                assert!((high == number || number.is_nan() && high.is_nan()) && low == 0.0, "{number}");
            }
        }
        assert_eq!(halves(1.0 + 2.0_f32.powi(-10)).map(f32::from), [1.0, 2.0_f32.powi(-10)]);
        assert_eq!(halves(f32::MAX).map(|half| half.is_finite()), [true, true]);
    }

    #[test]
    fn rows_become_three_rows() {
        let numbers = [1.0 + 2.0_f32.powi(-10), 2.0, 3.0, 4.0];
        let [one, rest] = [1.0, 2.0_f32.powi(-10)];
        let split = |factor, width| run(&split(factor, width), width, &numbers).into_iter().map(f32::from);
        let right = [one, 2.0, one, 2.0, rest, 0.0, 3.0, 4.0, 3.0, 4.0, 0.0, 0.0];
        assert!(split(Factor::First, 2).eq(right));
        let right = [one, 2.0, rest, 0.0, one, 2.0, 3.0, 4.0, 0.0, 0.0, 3.0, 4.0];
        assert!(split(Factor::Second, 2).eq(right));
        assert!(split(Factor::First, 1).take(6).eq([one, one, rest, 2.0, 2.0, 0.0]));
    }

    #[test]
    fn pieces_have_room_for_both_factors() {
        for (left, right, panel_rows) in
            [(1, 1, 1), (3, 5, 4096), (4096, 4096, 4096), (100_000, 1, 8), (1 << 23, 2, 64)]
        {
            let product = Product { float: Float::F32, left, right };
            let Pieces { rows, second, bytes } = product.pieces(panel_rows);
            assert!(rows.is_power_of_two() && (2..=panel_rows.max(2)).contains(&rows), "{product:?}");
            assert!(second >= left * rows * 6 && second.is_multiple_of(256) && bytes == second + right * rows * 6);
            assert!(bytes <= PIECE_BYTES + 256 || rows == 2, "{product:?}");
        }
    }

    #[test]
    fn a_kernel_is_known_by_its_source() {
        for kernel in samples() {
            let again = rebuild(kernel.code.text()).unwrap();
            assert_eq!((again.columns, again.launch), (kernel.columns, kernel.launch));
        }
        for other in
            ["", "// overshot split v1: first", "// overshot split v1: first 0", "// overshot split v1: third 1"]
        {
            assert!(rebuild(other).is_none(), "{other}");
        }
    }

    #[test]
    fn cuda_source_gives_the_same_bits() {
        if !has_compiler() {
            return;
        }
        for (factor, width, rows) in [(Factor::First, 1, 9000), (Factor::Second, 7, 1300), (Factor::First, 5000, 3)] {
            let (kernel, numbers) = (split(factor, width), numbers(width * rows));
            let functions = format!(
                "static Columns columns() {{ return {{{{{}}}, {{0}}, {{{}}}, 0, 0, {{}}, {}, 1}}; }}\n\
                 static void launch(long long first_row, long long rows, std::vector<Column>& at) {{\n    \
                     overshot_split(first_row, rows, (float*)at[0], (unsigned short*)at[1]);\n\
                 }}\n",
                numbers.len() * 4,
                width * NUMBER_BYTES,
                kernel.columns.tile_rows,
            );
            let given = [bytemuck::cast_slice(&[0_u64, rows as u64]), bytemuck::cast_slice::<_, u8>(&numbers)].concat();
            let found = as_cpp::run(kernel.code.text(), &functions, &given);
            let right = run(&kernel, width, &numbers);
            assert!(found == bytemuck::cast_slice::<_, u8>(&right), "{factor:?}, rows of {width}");
        }
    }
}
