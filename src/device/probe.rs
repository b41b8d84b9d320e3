//! A kernel for tests of devices.

use std::sync::Arc;

use super::kernel::{Code, Columns, HostKernel, Kernel, Launch, ScalarArgs, TILE_ROWS, Uniform};

/// The first line of [`probe`]'s source.
const PROBE: &str = "// overshot probe v1";

const PROBE_BODY: &str = r#"
typedef unsigned long long word;
extern "C" __global__ void overshot_probe(long long first_row, long long rows, const word *in, word *out, word *sums)
{
    __shared__ word workers[256];
    const long long start = blockIdx.x * 4096ll;
    const long long end = start + 4096 < rows ? start + 4096 : rows;
    word sum = 0;
    for (long long i = start + threadIdx.x; i < end; i += 256) {
        out[i] = in[i] * 3 + (word)(first_row + i);
        sum += in[i];
    }
    workers[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) workers[threadIdx.x] += workers[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = workers[0];
}
"#;

/// The kernel that tests of devices run: `out = in * 3 + row` on 64-bit words, and the sum of `in` of each tile.
pub(crate) fn probe() -> Kernel {
    let columns = Columns { inputs: vec![8], outputs: vec![8], partial_words: 1, ..Columns::default() };
    Kernel {
        entry: "overshot_probe".into(),
        code: Code::own(format!("{PROBE}{PROBE_BODY}")),
        launch: Launch::of(&columns, 0, 0),
        columns,
        resident: vec![],
        values: ScalarArgs::new(vec![]),
        host: Some(Box::new(|| Box::new(ProbeHostKernel))),
        layers: Arc::default(),
    }
}

struct ProbeHostKernel;

impl HostKernel for ProbeHostKernel {
    fn run(
        &mut self,
        first_row: u64,
        rows: usize,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        partials: &mut [u8],
        _: &Uniform<'_>,
    ) {
        let input: &[u64] = bytemuck::cast_slice(inputs[0]);
        let output: &mut [u64] = bytemuck::cast_slice_mut(outputs[0]);
        assert_eq!((input.len(), output.len()), (rows, rows));
        for (row, (out, &value)) in (first_row..).zip(output.iter_mut().zip(input)) {
            *out = value.wrapping_mul(3).wrapping_add(row);
        }
        let sums: &mut [u64] = bytemuck::cast_slice_mut(partials);
        for (sum, tile) in sums.iter_mut().zip(input.chunks(TILE_ROWS)) {
            *sum = tile.iter().fold(0, |sum, &value| sum.wrapping_add(value));
        }
    }
}

/// Returns the kernel if `source` is its source.
pub(crate) fn rebuild(source: &str) -> Option<Kernel> {
    (source.lines().next() == Some(PROBE)).then(probe)
}
