//! Lowering: turns a program into a kernel, which consists of CUDA C++ and a host kernel.

use std::sync::Arc;

use super::program::Program;
use super::reduce::Reduction;
use super::{cuda, host};
use crate::device::kernel::{Code, Columns, Kernel, Launch, ScalarArgs, Source};

impl Program {
    /// Returns the kernel. Its columns are the inputs and outputs, in the order passed to `bind`. Scalars have the
    /// same order; their values are set later.
    pub(crate) fn kernel(self: &Arc<Self>) -> Kernel {
        let (program, generated) = (Arc::clone(self), Arc::clone(self));
        let columns = Columns {
            inputs: self.inputs.iter().map(|(_, dtype)| dtype.size()).collect(),
            outputs: self.outputs.iter().map(|(_, dtype)| dtype.size()).collect(),
            partial_words: self.reductions.iter().map(Reduction::state_words).sum(),
            ..Columns::default()
        };
        Kernel {
            entry: cuda::ENTRY.to_owned(),
            code: Code::own(Source::generated(move || cuda::source(&generated))),
            launch: Launch::of(&columns, self.values.len()),
            columns,
            resident: vec![],
            values: if self.values.is_empty() { ScalarArgs::new(vec![]) } else { ScalarArgs::late() },
            host: Some(Box::new(move || Box::new(host::HostProgram::new(Arc::clone(&program))))),
        }
    }
}
