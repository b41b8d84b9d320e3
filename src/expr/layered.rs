//! Lowering of layers: puts the kernels of several programs together to one, with the multiplications between them.

use std::collections::HashMap;
use std::sync::Arc;

use super::layers::Multiplicand;
use super::program::Program;
use super::reduce::Reduction;
use crate::device::kernel::{
    ColumnByMatrix, ColumnProduct, Columns, Kernel, Layer, LayerKernel, Resident, ScalarArgs, Side, TILE_ROWS,
};
use crate::device::layers;
use crate::device::product::{MatrixProduct, Product};

/// Bytes of the rows that are multiplied at a time: slots hold them, and a library multiplies so many fast.
const BATCH_BYTES: usize = 4 << 20;
/// The fewest rows of a batch: those of a block of threads.
const LEAST_ROWS: usize = 256;

/// The bound layers of a pass.
pub(crate) struct BoundLayers {
    /// The inputs of the job that are columns: their names, and their bytes in a row.
    pub(crate) inputs: Vec<(String, usize)>,
    pub(crate) layers: Vec<BoundLayer>,
    pub(crate) crossed: Vec<BoundProduct>,
}

/// A layer: its program, and what is multiplied after it.
pub(crate) struct BoundLayer {
    /// `None` if inputs are multiplied as they are. The last layer has one.
    pub(crate) program: Option<Program>,
    /// The resident arrays of the program.
    pub(crate) resident: Vec<Arc<Resident>>,
    pub(crate) multiplied: Vec<BoundMatrix>,
}

/// Rows times a matrix.
pub(crate) struct BoundMatrix {
    pub(crate) label: String,
    pub(crate) of: Multiplicand,
    pub(crate) product: MatrixProduct,
    pub(crate) matrix: Arc<Resident>,
}

/// A product over the rows whose operands are of different layers.
pub(crate) struct BoundProduct {
    pub(crate) reduction: Reduction,
    pub(crate) product: Product,
    pub(crate) sides: [Multiplicand; 2],
    /// Whether the left operand is keys.
    pub(crate) by_key: bool,
}

/// A column of the whole kernel.
#[derive(Clone, Copy)]
enum Column {
    Input(usize),
    Output(usize),
    Partials,
    Scratch(usize),
    Operand(usize),
}

/// What the layers have so far.
#[derive(Default)]
struct Whole {
    columns: Columns,
    /// The columns that later layers read, by their names: inputs, products, and what is multiplied.
    known: HashMap<String, Column>,
    resident: Vec<Arc<Resident>>,
    reductions: Vec<Reduction>,
}

impl BoundLayers {
    /// Returns the rows that are multiplied at a time: a power of two that depends on the widths alone.
    fn batch_rows(&self) -> usize {
        let staged: usize = self.inputs.iter().map(|(_, bytes)| bytes).sum();
        let results = self.layers.iter().flat_map(|layer| &layer.multiplied).map(|by| by.product.row_bytes());
        // Results stay on the device, so they may be larger than what slots hold.
        let of_row = staged.max(results.max().unwrap_or(0) / 4).max(1);
        1 << (BATCH_BYTES / of_row).clamp(LEAST_ROWS, TILE_ROWS).ilog2()
    }

    /// Returns the program of the last layer, whose outputs are those of the job (`outputs` of them), the kernel of
    /// all layers over so many rows, and the reductions of the products over the rows.
    pub(crate) fn compose(self, outputs: usize, total_rows: u64) -> (Arc<Program>, Kernel, Vec<Reduction>) {
        let batch_rows = self.batch_rows();
        let columns = Columns { total_rows, batch_rows, ..Columns::default() };
        let mut whole = Whole { columns, ..Whole::default() };
        for (k, (name, bytes)) in self.inputs.into_iter().enumerate() {
            whole.columns.inputs.push(bytes);
            whole.known.insert(name, Column::Input(k));
        }
        let operands: Vec<String> = self.crossed.iter().flat_map(|product| outputs_of(&product.sides)).collect();
        let values = ScalarArgs::late();
        let count = self.layers.len();
        let (mut launched, mut last) = (vec![], None);
        for (number, BoundLayer { program, resident, multiplied }) in self.layers.into_iter().enumerate() {
            let own_outputs = if number + 1 == count { outputs } else { 0 };
            let kernel = program.map(|program| {
                let program = Arc::new(program.in_batches(batch_rows));
                let first = whole.resident.len();
                let mut kernel = program.kernel_with(resident, total_rows);
                let columns = whole.add(&program, &mut kernel, own_outputs, &operands);
                whole.resident.extend(kernel.resident.iter().cloned());
                kernel.values = values.clone();
                if program.values().is_empty() {
                    values.set(vec![]);
                }
                last = Some(program);
                (Arc::new(kernel), columns, first..whole.resident.len())
            });
            let multiplied: Vec<_> = multiplied.into_iter().map(|by| whole.multiply(by)).collect();
            launched.push((kernel, multiplied));
        }
        for BoundProduct { reduction, product, sides, by_key } in self.crossed {
            let sides = sides.map(|side| whole.side(name_of(&side)));
            whole.columns.products.push(ColumnProduct { product, sides, by_key });
            whole.reductions.push(reduction);
        }
        let Some((program, of_last)) = last.zip(launched.last().and_then(|(kernel, _)| kernel.clone())) else {
            unreachable!("the last layer has what is computed from the last product")
        };
        let (of_last, ..) = of_last;
        let Columns { tile_rows, most_rows, .. } = of_last.columns;
        (whole.columns.tile_rows, whole.columns.most_rows) = (tile_rows, most_rows);
        let Whole { columns, resident, reductions, .. } = whole;
        let number = |column: Column| column.number(&columns);
        let layer = |(kernel, multiplied): (Option<_>, Vec<(MatrixProduct, Column, usize, Column)>)| Layer {
            kernel: kernel.map(|(kernel, columns, resident): (_, Vec<Column>, _)| LayerKernel {
                kernel,
                columns: columns.into_iter().map(number).collect(),
                resident,
            }),
            multiplied: multiplied
                .into_iter()
                .map(|(product, from, matrix, to)| ColumnByMatrix {
                    product,
                    from: number(from),
                    matrix,
                    to: number(to),
                })
                .collect(),
        };
        let layers = Arc::new(launched.into_iter().map(layer).collect::<Vec<_>>());
        let kernel = Kernel {
            entry: of_last.entry.clone(),
            code: of_last.code.clone(),
            launch: of_last.launch.clone(),
            host: layers::host_kernel(&layers, &columns),
            columns,
            resident,
            values,
            layers,
        };
        (program, kernel, reductions)
    }
}

impl Whole {
    /// Adds the columns of the kernel of a layer. Returns them, in their order. Its first outputs are those of the job,
    /// and others are `operands` of products over the rows, or are multiplied by a matrix.
    fn add(&mut self, program: &Program, kernel: &mut Kernel, outputs: usize, operands: &[String]) -> Vec<Column> {
        let own = &mut kernel.columns;
        let (streamed, _) = program.split_inputs();
        let inputs = streamed.iter().map(|input| self.known[&program.inputs[*input].0]);
        let mut columns: Vec<Column> = inputs.collect();
        for (k, ((name, _), bytes)) in program.outputs().iter().zip(&own.outputs).enumerate() {
            let column = if k < outputs {
                self.columns.outputs.push(*bytes);
                Column::Output(k)
            } else if operands.contains(name) {
                self.operand(*bytes)
            } else {
                self.scratch(*bytes)
            };
            self.known.insert(name.clone(), column);
            columns.push(column);
        }
        if own.has_partials() {
            (self.columns.partial_words, self.columns.chunk_words) = (own.partial_words, own.chunk_words);
            columns.push(Column::Partials);
        }
        let first = self.columns.operands.len();
        let of_products: Vec<Column> = own.operands.iter().map(|bytes| self.operand(*bytes)).collect();
        columns.extend(of_products);
        // The products are those of the whole kernel.
        for (product, own) in program.products().iter().zip(std::mem::take(&mut own.products)) {
            let sides = product.sides.map(|side| match side {
                Side::Operand(k) => Side::Operand(first + k),
                Side::Input(input) => self.side(&program.inputs[input].0),
            });
            self.columns.products.push(ColumnProduct { sides, ..own });
            self.reductions.push(product.reduction.clone());
        }
        columns
    }

    fn scratch(&mut self, bytes: usize) -> Column {
        self.columns.scratch.push(bytes);
        Column::Scratch(self.columns.scratch.len() - 1)
    }

    fn operand(&mut self, bytes: usize) -> Column {
        self.columns.operands.push(bytes);
        Column::Operand(self.columns.operands.len() - 1)
    }

    /// Adds the result of a multiplication, and its matrix.
    fn multiply(&mut self, by: BoundMatrix) -> (MatrixProduct, Column, usize, Column) {
        let BoundMatrix { label, of, product, matrix } = by;
        let (from, to) = (self.known[name_of(&of)], self.scratch(product.row_bytes()));
        self.known.insert(label, to);
        self.resident.push(matrix);
        (product, from, self.resident.len() - 1, to)
    }

    fn side(&self, name: &str) -> Side {
        match self.known[name] {
            Column::Operand(k) => Side::Operand(k),
            Column::Input(k) => Side::Input(k),
            Column::Output(_) | Column::Partials | Column::Scratch(_) => {
                unreachable!("the operands of products are inputs or operands")
            }
        }
    }
}

impl Column {
    /// Its number among these columns.
    fn number(self, columns: &Columns) -> usize {
        let behind_outputs = columns.inputs.len() + columns.outputs.len();
        match self {
            Column::Input(k) => k,
            Column::Output(k) => columns.inputs.len() + k,
            Column::Partials => behind_outputs,
            Column::Scratch(k) => behind_outputs + usize::from(columns.has_partials()) + k,
            Column::Operand(k) => columns.first_operand() + k,
        }
    }
}

fn name_of(of: &Multiplicand) -> &str {
    match of {
        Multiplicand::Input(name) | Multiplicand::Output(name) => name,
    }
}

/// The names of those that are outputs of layers.
fn outputs_of(sides: &[Multiplicand; 2]) -> Vec<String> {
    let name = |side: &Multiplicand| if let Multiplicand::Output(name) = side { Some(name.clone()) } else { None };
    sides.iter().filter_map(name).collect()
}
