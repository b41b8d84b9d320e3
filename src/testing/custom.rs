//! Custom kernels for tests. The stand-in driver knows them, too.

use crate::custom::{Call, CustomKernel};
use crate::data::Dtype;
use crate::device::kernel::Kernel;

/// The source of [`everything`].
pub const EVERYTHING: &str = "// overshot foreign sample: everything
extern \"C\" __global__ void everything(const float (*x)[3], float a, const double *table, long long first_row,
                                      long long rows, double *y, float (*z)[2], double *work)
{
    for (long long i = blockIdx.x * 100ll + threadIdx.x; i < rows && i < (blockIdx.x + 1) * 100ll; i += blockDim.x) {
        work[i] = table[(first_row + i) % 7];
        y[i] = work[i] + (double)(x[i][0] + x[i][1]) * (double)a;
        z[i][0] = x[i][2];
        z[i][1] = x[i][0];
    }
}
";

/// The source of [`keep`].
pub const KEEP: &str = "// overshot foreign sample: keep
extern \"C\" __global__ void keep(const double *x, long long first_row, long long rows, double *big, long long *where,
                                unsigned long long *num_selected)
{
    if (threadIdx.x > 0) return;
    long long begin = blockIdx.x * 512ll, end = begin + 512 < rows ? begin + 512 : rows, n = begin;
    for (long long i = begin; i < end; ++i) {
        if (x[i] > 50) {
            big[n] = x[i];
            where[n++] = first_row + i;
        }
    }
    num_selected[blockIdx.x] = n - begin;
}
";

/// The source of [`around`].
pub const AROUND: &str = "// overshot foreign sample: around
extern \"C\" __global__ void around(const float (*x)[2], const int *w, const double *v, long long total_rows,
                                  long long first_row, long long rows, double *y)
{
    long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i >= rows) return;
    double sum = 0;
    for (long long k = i - 20; k <= i + 30; ++k) {
        if (first_row + k >= 0 && first_row + k < total_rows) sum += (double)(x[k][0] - x[k][1]);
    }
    y[i] = sum + (first_row + i + 1 < total_rows ? w[i + 1] : -1) * v[i];
}
";

/// The array of [`everything`].
pub const TABLE: [f64; 7] = [0.5, -1.0, 1e10, 3.25, 0.0, 7.0, 1e-3];
/// The scalar of [`everything`].
pub const FACTOR: f32 = 2.5;

/// A kernel with inputs and outputs of several sizes, a scalar, an array and scratch: `y = table[row % 7] + (x₀ +
/// x₁) a`, `z = (x₂, x₀)`.
///
/// # Panics
/// Never panics, because the source is correct.
pub fn everything() -> Call {
    // SAFETY: it touches the rows of its columns, in blocks of 100, and the first seven numbers of its table, which
    // `resident` below provides.
    let kernel = unsafe {
        let kernel = CustomKernel::cuda("everything.cu", EVERYTHING, "everything").expect("a valid kernel");
        kernel.threads(64).rows_per_block(100)
    };
    let kernel = kernel.on_host(|rows| {
        let (x, a, table) = (rows.input::<f32>("x"), rows.value::<f32>("a"), rows.resident::<f64>("table"));
        let first = rows.first_row();
        let (y, z) = (rows.output::<f64>("y"), rows.output::<f32>("z"));
        for (i, x) in x.as_chunks::<3>().0.iter().enumerate() {
            y[i] = table[((first + i as u64) % 7) as usize] + f64::from(x[0] + x[1]) * f64::from(a);
            (z[2 * i], z[2 * i + 1]) = (x[2], x[0]);
        }
    });
    // SAFETY: the kernel reads seven numbers of its table, and this one has seven.
    unsafe { kernel.call().scalar("a", FACTOR).resident("table", &TABLE) }.scratch("work")
}

/// A compacting kernel that selects the values over 50, and their row numbers.
///
/// # Panics
/// Never panics, because the source is correct.
pub fn keep() -> CustomKernel {
    // SAFETY: a block touches only existing rows among its 512 rows of the columns, only the selected rows of the
    // outputs, and its number in `num_selected`.
    let kernel = unsafe {
        let kernel = CustomKernel::cuda("keep.cu", KEEP, "keep").expect("a valid kernel");
        kernel.threads(32).rows_per_block(512)
    };
    kernel.on_host(|rows| {
        let (x, first, tile_rows) = (rows.input::<f64>("x"), rows.first_row(), rows.tile_rows());
        let (big, at, kept) = (rows.output::<f64>("big"), rows.output::<i64>("where"), rows.num_selected());
        for (tile, (kept, x)) in kept.iter_mut().zip(x.chunks(tile_rows)).enumerate() {
            let mut n = tile * tile_rows;
            for (i, &value) in x.iter().enumerate().filter(|(_, value)| **value > 50.0) {
                (big[n], at[n]) = (value, (first as usize + tile * tile_rows + i) as i64);
                n += 1;
            }
            *kept = (n - tile * tile_rows) as u64;
        }
    })
}

/// A kernel that reads neighbours: `y` is the sum of `x₀ - x₁` in the 20 rows before to the 30 rows behind, as far as
/// they exist, and `v` times `w` of the next row, or -1 in the last one.
///
/// # Panics
/// Never panics, because the source is correct.
pub fn around() -> CustomKernel {
    // SAFETY: it touches the rows of its columns, and those rows of the halos that exist.
    let kernel = unsafe {
        let kernel = CustomKernel::cuda("around.cu", AROUND, "around").expect("a valid kernel");
        kernel.halo("x", 20, 30).halo("w", 0, 1)
    };
    kernel.on_host(|rows| {
        let (x, front) = (rows.input::<f32>("x").as_chunks::<2>().0, rows.halo_before("x"));
        let (w, v, y) = (rows.input::<i32>("w"), rows.input::<f64>("v"), rows.output::<f64>("y"));
        for (i, y) in y.iter_mut().enumerate() {
            let near = &x[(front + i).saturating_sub(20)..x.len().min(front + i + 31)];
            let sum = near.iter().fold(0.0, |sum, x| sum + f64::from(x[0] - x[1]));
            *y = sum + f64::from(*w.get(i + 1).unwrap_or(&-1)) * v[i];
        }
    })
}

/// Returns the kernels, bound.
pub fn samples() -> Vec<Kernel> {
    [EVERYTHING, KEEP, AROUND].into_iter().filter_map(rebuild).collect()
}

/// Returns the kernel with this source, as tests bind it.
pub(super) fn rebuild(source: &str) -> Option<Kernel> {
    let (call, inputs, outputs): (Call, &[_], &[&str]) = match source {
        EVERYTHING => (everything(), &[("x", Dtype::F32)], &["y", "z"]),
        KEEP => (Call::from(&keep()), &[("x", Dtype::F64)], &["big", "where"]),
        AROUND => (Call::from(&around()), &[("x", Dtype::F32), ("w", Dtype::I32), ("v", Dtype::F64)], &["y"]),
        _ => return None,
    };
    let inputs: Vec<_> = inputs.iter().map(|(name, dtype)| ((*name).to_owned(), *dtype)).collect();
    let outputs: Vec<_> = outputs.iter().map(|name| (*name).to_owned()).collect();
    Some(call.bind(&inputs, &outputs).ok()?.kernel)
}
