//! Lowering: turns a program into a kernel, which consists of CUDA C++ and a host kernel.

use std::sync::Arc;

use super::product::RowProduct;
use super::program::Program;
use super::tally::Tally;
use super::{cuda, host};
use crate::device::kernel::{
    Argument, Code, ColumnProduct, Columns, Kernel, Launch, Resident, ScalarArgs, Side, Source,
};

impl Program {
    /// The product of columns, of which the inputs are these.
    fn column_product(&self, product: &RowProduct, streamed: &[usize]) -> ColumnProduct {
        let sides = product.sides.map(|side| match side {
            Side::Input(input) => Side::Input(streamed.iter().position(|own| *own == input).unwrap_or(0)),
            operand => operand,
        });
        ColumnProduct { product: product.product, sides, by_key: product.by_key }
    }

    /// Returns the kernel of a program without inputs that are one row for all rows.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn kernel(self: &Arc<Self>) -> Kernel {
        self.kernel_with(vec![], 0)
    }

    /// Returns the kernel. Its columns are the inputs and outputs, in the order passed to `bind`. Scalars have the
    /// same order; their values are set later. `resident` are the inputs that are one row for all rows, and then the
    /// ends of inputs ([`Program::ends`]). Only kernels that read neighbours need the rows of the job.
    pub(crate) fn kernel_with(self: &Arc<Self>, resident: Vec<Arc<Resident>>, total_rows: u64) -> Kernel {
        let (program, generated) = (Arc::clone(self), Arc::clone(self));
        let (streamed, broadcast) = self.split_inputs();
        let (tiling, count) = (self.tiling(), self.outputs().len());
        let columns = Columns {
            inputs: streamed.iter().map(|input| self.input_row(*input).1).collect(),
            outputs: (0..count).map(|output| self.output_row(output).1).collect(),
            operands: (count..self.outputs.len()).map(|output| self.output_row(output).1).collect(),
            partial_words: self.partial_words(),
            chunk_words: self.chunk_words(),
            most_rows: if self.chunk_words() > 0 { Tally::MOST_ELEMENTS / tiling.width.max(1) } else { usize::MAX },
            products: self.products.iter().map(|product| self.column_product(product, &streamed)).collect(),
            tile_rows: tiling.tile_rows(),
            halos: match self.near.halos.is_empty() {
                true => vec![],
                false => streamed.iter().map(|input| self.near.halo(*input).of_rows(total_rows)).collect(),
            },
            total_rows,
            ..Columns::default()
        };
        let mut launch = Launch::of(&columns, self.values.len(), broadcast.len() + self.ends().len());
        if self.near.reads_total {
            launch.arguments.insert(2, Argument::TotalRows);
        }
        Kernel {
            entry: cuda::ENTRY.to_owned(),
            code: Code::own(Source::generated(move || cuda::source(&generated))),
            launch: Launch { blocks_per_tile: tiling.strips as u32, ..launch },
            columns,
            resident,
            values: if self.values.is_empty() { ScalarArgs::new(vec![]) } else { ScalarArgs::late() },
            host: Some(Box::new(move || Box::new(host::HostProgram::new(Arc::clone(&program))))),
            layers: Arc::default(),
        }
    }
}
