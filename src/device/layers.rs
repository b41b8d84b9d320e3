//! Kernels of several layers: kernels that are launched one after the other, and multiplications with matrices between
//! them, by a library.

use std::ops::Range;
use std::sync::Arc;

use super::WORKSPACE_BYTES;
use super::kernel::{Columns, HostKernel, Kernel, MakeHostKernel, SharedKernel, Uniform};
use super::product::{Float, MatrixProduct};
use super::split::is_split;

/// A part of a kernel, and the multiplications after it.
#[derive(Debug)]
pub(crate) struct Layer {
    /// What is launched; `None` if columns are multiplied as they are.
    pub(crate) kernel: Option<LayerKernel>,
    /// What is multiplied then.
    pub(crate) multiplied: Vec<ColumnByMatrix>,
}

/// A kernel that is a part of another one.
#[derive(Debug)]
pub(crate) struct LayerKernel {
    /// The kernel, which has the values of the whole one.
    pub(crate) kernel: SharedKernel,
    /// For each of its columns, the column of the whole kernel.
    pub(crate) columns: Vec<usize>,
    /// Its resident arrays, among those of the whole kernel.
    pub(crate) resident: Range<usize>,
}

/// A column of the whole kernel times a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnByMatrix {
    /// The product.
    pub(crate) product: MatrixProduct,
    /// The column with the rows.
    pub(crate) from: usize,
    /// The resident array with the matrix.
    pub(crate) matrix: usize,
    /// The column of the result.
    pub(crate) to: usize,
}

/// Returns what makes the host kernel of these layers, if they all have one.
pub(crate) fn host_kernel(layers: &Arc<Vec<Layer>>, columns: &Columns) -> Option<MakeHostKernel> {
    let kernels = || layers.iter().filter_map(|layer| layer.kernel.as_ref());
    if !kernels().all(|layer| layer.kernel.host.is_some()) {
        return None;
    }
    let (layers, columns) = (layers.clone(), columns.clone());
    Some(Box::new(move || {
        let kernel = |layer: &Layer| layer.kernel.as_ref().and_then(|layer| layer.kernel.new_host_kernel());
        Box::new(HostLayers {
            kernels: layers.iter().map(kernel).collect(),
            layers: layers.clone(),
            scratch: vec![vec![]; columns.scratch.len()],
            columns: columns.clone(),
        })
    }))
}

/// The host kernels of layers, and the memory of the columns between them.
struct HostLayers {
    layers: Arc<Vec<Layer>>,
    kernels: Vec<Option<Box<dyn HostKernel>>>,
    columns: Columns,
    /// The scratch columns, in words.
    scratch: Vec<Vec<u64>>,
}

/// What the host kernel is run on.
struct Batch<'a, 'b> {
    first_row: u64,
    rows: usize,
    inputs: &'a [&'a [u8]],
    /// The outputs, then the operands of products over the rows.
    outputs: &'a mut [&'b mut [u8]],
    partials: &'a mut [u8],
    uniform: &'a Uniform<'a>,
}

/// Where the bytes of a column are.
#[derive(Clone, Copy)]
enum Place {
    Input(usize),
    /// An output, or an operand behind them.
    Output(usize),
    Partials,
    Scratch(usize),
}

impl HostLayers {
    fn place(&self, column: usize) -> Place {
        let Columns { inputs, outputs, scratch, .. } = &self.columns;
        let behind_outputs = inputs.len() + outputs.len();
        let first_scratch = behind_outputs + usize::from(self.columns.has_partials());
        match column {
            _ if column < inputs.len() => Place::Input(column),
            _ if column < behind_outputs => Place::Output(column - inputs.len()),
            _ if column < first_scratch => Place::Partials,
            _ if column < first_scratch + scratch.len() => Place::Scratch(column - first_scratch),
            _ => Place::Output(column - first_scratch - scratch.len() + outputs.len()),
        }
    }

    /// Launches a kernel: takes the columns that it writes out of their places meanwhile.
    fn launch(&mut self, layer: &LayerKernel, kernel: &mut dyn HostKernel, batch: &mut Batch<'_, '_>) {
        let Batch { first_row, rows, inputs, ref mut outputs, ref mut partials, uniform } = *batch;
        let own = &layer.kernel.columns;
        let read = own.inputs.len();
        // The columns behind the inputs, in the order of a host kernel: outputs, then operands. Partials are apart.
        let operands = own.first_operand()..own.first_operand() + own.operands.len();
        let written: Vec<usize> = (read..read + own.outputs.len()).chain(operands).map(|k| layer.columns[k]).collect();
        let mut taken: Vec<(usize, Vec<u64>)> = vec![];
        for column in &written {
            if let Place::Scratch(k) = self.place(*column) {
                taken.push((k, std::mem::take(&mut self.scratch[k])));
            }
        }
        let scratch_rows = |k: usize| rows * self.columns.scratch[k];
        let ins: Vec<&[u8]> = layer.columns[..read]
            .iter()
            .map(|column| match self.place(*column) {
                Place::Input(k) => inputs[k],
                Place::Scratch(k) => &bytemuck::cast_slice(&self.scratch[k])[..scratch_rows(k)],
                // A kernel reads no column that one writes for the job.
                Place::Output(_) | Place::Partials => &[],
            })
            .collect();
        let mut scratch = taken.iter_mut().map(|(k, words)| {
            words.resize(scratch_rows(*k).div_ceil(8), 0);
            &mut bytemuck::cast_slice_mut::<u64, u8>(words)[..scratch_rows(*k)]
        });
        let mut own_outputs: Vec<Option<&mut [u8]>> = outputs.iter_mut().map(|output| Some(&mut **output)).collect();
        let mut outs: Vec<&mut [u8]> = written
            .iter()
            .filter_map(|column| match self.place(*column) {
                Place::Output(k) => own_outputs[k].take(),
                _ => scratch.next(),
            })
            .collect();
        let resident = &uniform.resident[layer.resident.clone()];
        let partials = if own.has_partials() { &mut **partials } else { &mut [] };
        kernel.run(first_row, rows, &ins, &mut outs, partials, &Uniform { resident, ..*uniform });
        for (k, words) in taken {
            self.scratch[k] = words;
        }
    }

    fn multiply(&mut self, by: &ColumnByMatrix, batch: &Batch<'_, '_>) {
        let Batch { rows, inputs, ref outputs, uniform, .. } = *batch;
        let Place::Scratch(to) = self.place(by.to) else { return };
        let mut result = std::mem::take(&mut self.scratch[to]);
        let bytes = rows * self.columns.scratch[to];
        result.resize(bytes.div_ceil(8), 0);
        let from = match self.place(by.from) {
            Place::Input(k) => inputs[k],
            Place::Output(k) => &*outputs[k],
            Place::Scratch(k) => bytemuck::cast_slice(&self.scratch[k]),
            Place::Partials => &[],
        };
        by.product.multiply(
            rows,
            from,
            uniform.resident[by.matrix],
            &mut bytemuck::cast_slice_mut(&mut result)[..bytes],
        );
        self.scratch[to] = result;
    }
}

impl HostKernel for HostLayers {
    /// # Panics
    /// If there are more rows than those of a batch: it multiplies them at a time.
    fn run(
        &mut self,
        first_row: u64,
        rows: usize,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        partials: &mut [u8],
        uniform: &Uniform<'_>,
    ) {
        assert!(rows <= self.columns.unit_rows(), "rows of a batch");
        let layers = self.layers.clone();
        let mut batch = Batch { first_row, rows, inputs, outputs, partials, uniform };
        for (number, layer) in layers.iter().enumerate() {
            if let (Some(own), Some(mut kernel)) = (&layer.kernel, self.kernels[number].take()) {
                self.launch(own, &mut *kernel, &mut batch);
                self.kernels[number] = Some(kernel);
            }
            layer.multiplied.iter().for_each(|by| self.multiply(by, &batch));
        }
    }
}

impl Kernel {
    /// Returns the kernels that are loaded and launched: that of each layer, or the kernel itself.
    pub(crate) fn launched(self: &Arc<Self>) -> Vec<SharedKernel> {
        match self.layers.is_empty() {
            true => vec![self.clone()],
            false => self.layers.iter().filter_map(|layer| Some(layer.kernel.as_ref()?.kernel.clone())).collect(),
        }
    }

    /// Returns the bytes that stay on a device for the whole job: the arrays, and what a stream needs to multiply.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let arrays: usize = self.resident.iter().map(|array| array.len()).sum();
        let split: usize = self.split_by_matrices().map(MatrixProduct::split_matrix_bytes).sum();
        (arrays + split + self.workspace_bytes().unwrap_or(0)) as u64
    }

    /// Returns the products of rows with matrices.
    pub(crate) fn by_matrices(&self) -> impl Iterator<Item = &MatrixProduct> {
        self.layers.iter().flat_map(|layer| &layer.multiplied).map(|by| &by.product)
    }

    /// Returns those whose factors are split, if the device has the precision of the kernel.
    fn split_by_matrices(&self) -> impl Iterator<Item = &MatrixProduct> {
        self.by_matrices().filter(|product| is_split(product.float, self.columns.precision))
    }

    /// Returns whether it multiplies matrices of `f32`. To add rows up by their keys is no multiplication.
    pub(crate) fn multiplies_f32(&self) -> bool {
        let mut over_rows = self.columns.products.iter().filter(|product| !product.by_key);
        self.by_matrices().any(|product| product.float == Float::F32)
            || over_rows.any(|column| column.product.float == Float::F32)
    }

    /// Returns the bytes that the stream of the kernel needs to multiply, with the split rows of a batch behind them;
    /// `None` if no rows are multiplied.
    pub(crate) fn workspace_bytes(&self) -> Option<usize> {
        let rows = self.columns.batch_rows;
        let split = self.split_by_matrices().map(|product| product.split_bytes(rows)).max();
        (rows > 0).then(|| WORKSPACE_BYTES + split.unwrap_or(0))
    }
}
