//! The kernel that measures device memory and launches: `out = in`, on 64-bit words.

use std::sync::Arc;

use crate::device::kernel::{Code, Columns, HostKernel, Kernel, Launch, ScalarArgs, Uniform};

/// The first line of its source, by which it is recognised.
const SOURCE: &str = include_str!("../../kernels/copy.cu");

/// The kernel.
pub(crate) fn copy_kernel() -> Kernel {
    let columns = Columns { inputs: vec![8], outputs: vec![8], ..Columns::default() };
    Kernel {
        entry: "overshot_copy".into(),
        code: Code::own(SOURCE),
        launch: Launch::of(&columns, 0, 0),
        columns,
        resident: vec![],
        values: ScalarArgs::new(vec![]),
        host: Some(Box::new(|| Box::new(CopyTwin))),
        layers: Arc::default(),
    }
}

/// Returns the kernel if `source` is its source.
#[cfg(feature = "testing")]
pub(crate) fn rebuild(source: &str) -> Option<Kernel> {
    (source.lines().next() == SOURCE.lines().next()).then(copy_kernel)
}

struct CopyTwin;

impl HostKernel for CopyTwin {
    fn run(&mut self, _: u64, _: usize, inputs: &[&[u8]], outputs: &mut [&mut [u8]], _: &mut [u8], _: &Uniform<'_>) {
        outputs[0].copy_from_slice(inputs[0]);
    }
}
