//! Jobs whose rows are multiplied by matrices: each layer is bound to the shapes of its own rows, which have as many
//! elements as the matrix before it has columns.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::check::{BoundJob, Checked, Column, Given, LateRow, MOST_ROW_BYTES, outputs_of, values_of};
use super::shapes::{self, RowNeeds, Shaped, Wide};
use super::transpose::transpose;
use crate::data::{Dtype, numpy_shape};
use crate::device::kernel::Resident;
use crate::device::product::MatrixProduct;
use crate::error::{JobError, Result};
use crate::expr::{
    BoundLayer, BoundLayers, BoundMatrix, BoundProduct, Extent, Layer, Layers, Multiplicand, Multiplied, Program,
    RowShape, float_of,
};
use crate::ops::Eval;

/// A value that is multiplied: its dtype, and its dimensions in each row, one or none.
type Factor = (Dtype, Vec<u64>);

/// The binding of layers, one after the other.
struct Binding<'j> {
    checked: &'j Checked<'j>,
    given: Given,
    /// The arrays of the job that the layers read: for each of the inputs given, its number in the job.
    arrays: Vec<usize>,
    /// What each of them is for the kernel, as far as a layer has read it.
    columns: Vec<Option<Column>>,
    late: Vec<LateRow>,
    /// Values that are multiplied and products with matrices, of the layers so far.
    factors: HashMap<String, Factor>,
    /// The number of rows, and what has as many.
    rows: Option<(u64, String)>,
}

/// A program that is bound to the shape of its rows.
struct BoundProgram {
    program: Program,
    resident: Vec<Arc<Resident>>,
    wide: Option<Wide>,
}

impl<'j> Checked<'j> {
    /// Binds the layers of an expression, to outputs that may have dtypes. The values of the kernel are not set.
    pub(super) fn bind_layers(
        &'j self,
        Layers { mut layers, crossed }: Layers,
        given: Given,
        outputs: &[(String, Option<Dtype>)],
        late: Vec<LateRow>,
    ) -> Result<BoundJob> {
        let arrays = self.numbers_of(&given.inputs);
        let (columns, factors) = (vec![None; arrays.len()], HashMap::new());
        let mut binding = Binding { checked: self, given, arrays, columns, late, factors, rows: None };
        binding.mark_matrices(&layers)?;
        let last = layers.pop().ok_or(JobError::SeveralPasses)?;
        let mut bound = Vec::with_capacity(layers.len() + 1);
        for layer in &layers {
            let own = if layer.expression.is_empty() { None } else { Some(binding.bind(layer, &[])?) };
            let (program, resident) = own.map_or((None, vec![]), |own| (Some(own.program), own.resident));
            let multiplied = layer.multiplied.iter().map(|by| binding.multiply(by)).collect::<Result<_>>()?;
            bound.push(BoundLayer { program, resident, multiplied });
        }
        let BoundProgram { program, resident, wide } = binding.bind(&last, outputs)?;
        let mut products = Vec::with_capacity(crossed.len());
        for product in &crossed {
            let [(other, left), (dtype, right)] = binding.sides(&product.label, &product.sides)?;
            let other = if product.is_by_key() { dtype } else { other };
            check_dtypes(&product.label, ("the left operand", other), ("the right operand", dtype))?;
            let (reduction, of_sides) = last.expression.bind_crossed(product, dtype, [left, right])?;
            let (sides, by_key) = (product.sides.clone(), product.is_by_key());
            products.push(BoundProduct { reduction, product: of_sides, sides, by_key });
        }
        let of_job = outputs_of(&program, outputs.len());
        let values = values_of(&program, &binding.given.values, &binding.given.numbers);
        let rows = binding.rows.as_ref().map_or(0, |(rows, _)| *rows);
        let inputs = binding.all_columns();
        self.check_rows(rows, &binding.arrays, &inputs, &of_job)?;
        bound.push(BoundLayer { program: Some(program), resident, multiplied: vec![] });
        let layers = BoundLayers { inputs: binding.streamed(), layers: bound, crossed: products };
        let shape = Some(wide.as_ref().map_or_else(|| vec![rows], Wide::whole));
        let operator = Box::new(Eval::in_layers(layers, outputs.len(), rows, binding.given.precision));
        let mut job = BoundJob::of_expression(operator, (rows, shape), (inputs, of_job), values, self.is_resident);
        job.wide = wide;
        Ok(job)
    }
}

impl Binding<'_> {
    fn name(&self, input: usize) -> &str {
        &self.given.inputs[input].0
    }

    /// The number of an input, by its name.
    fn input(&self, name: &str) -> Option<usize> {
        self.given.inputs.iter().position(|(own, _)| own == name)
    }

    /// The shape of an array of the job; its length if it has no other.
    fn shape(&self, input: usize) -> Vec<u64> {
        let (source, count) = self.checked.source(self.arrays[input]);
        source.shape().map_or_else(|| vec![count], <[u64]>::to_vec)
    }

    /// Marks the arrays that are matrices, which are no columns.
    ///
    /// # Errors
    /// [`JobError::MatrixIsRead`] for one whose rows a layer reads, too.
    fn mark_matrices(&mut self, layers: &[Layer]) -> Result<()> {
        let all: Vec<&str> = layers.iter().flat_map(|layer| &layer.multiplied).map(|by| by.matrix.as_str()).collect();
        let read = layers.iter().flat_map(|layer| layer.expression.inputs());
        let multiplied = layers.iter().flat_map(|layer| &layer.multiplied).filter_map(|by| match &by.of {
            Multiplicand::Input(name) => Some(name.as_str()),
            Multiplicand::Output(_) => None,
        });
        if let Some(name) = read.chain(multiplied).find(|name| all.contains(name)) {
            return Err(JobError::MatrixIsRead { name: name.into() }.into());
        }
        for (input, (name, dtype)) in self.given.inputs.iter().enumerate() {
            if all.contains(&name.as_str()) {
                self.columns[input] = Some(Column::resident(*dtype));
            }
        }
        Ok(())
    }

    /// Binds the text of a layer, whose outputs are those of the job and then those that are multiplied.
    fn bind(&mut self, layer: &Layer, outputs: &[(String, Option<Dtype>)]) -> Result<BoundProgram> {
        let expression = &layer.expression;
        let read: HashSet<&str> = expression.inputs().chain(expression.constants()).collect();
        let own: Vec<usize> = (0..self.arrays.len()).filter(|input| read.contains(self.name(*input))).collect();
        let mut products: Vec<(&str, &Factor)> =
            self.factors.iter().map(|(name, factor)| (name.as_str(), factor)).collect();
        products.retain(|(name, _)| read.contains(name));
        products.sort_unstable_by_key(|(name, _)| *name);

        let rows = self.rows.as_ref().map_or(0, |(rows, _)| *rows);
        let shapes: Vec<Vec<u64>> = products.iter().map(|(_, (_, dims))| [&[rows], &dims[..]].concat()).collect();
        let shape_of = |input: usize| self.checked.source(self.arrays[input]).0.shape();
        let is_wide = |name: &str| {
            let of_array = own.iter().find(|input| self.name(**input) == name).and_then(|input| shape_of(*input));
            let of_product =
                || products.iter().zip(&shapes).find(|((own, _), _)| *own == name).map(|(_, shape)| &**shape);
            of_array.or_else(of_product).is_some_and(shapes::is_wide)
        };
        let of_rows = expression.names_of_rows(is_wide);
        let of_arrays = own.iter().map(|input| {
            let ((source, count), name) = (self.checked.source(self.arrays[*input]), self.name(*input));
            Shaped { name, count, shape: source.shape(), is_of_rows: of_rows.contains(name) }
        });
        let of_products = products.iter().zip(&shapes).map(|((name, _), shape)| {
            let count = shape.iter().fold(1_u64, |all, dim| all.saturating_mul(*dim));
            Shaped { name, count, shape: Some(shape), is_of_rows: true }
        });
        let shaped: Vec<Shaped<'_>> = of_arrays.chain(of_products).collect();
        let wide = shapes::wide(&shaped, &RowNeeds { first_axis: true, within: expression.axes_within() })?;
        let counts = shaped.iter().map(|shaped| (shaped.name, shaped.count));
        let own_rows: Vec<(u64, String)> = match &wide {
            Some(wide) => vec![(wide.rows, shaped.first().map_or_else(String::new, |first| first.name.to_owned()))],
            None => counts.map(|(name, count)| (count, name.to_owned())).collect(),
        };
        let mut extents =
            wide.as_ref().map_or_else(|| vec![Extent::Full; shaped.len()], |wide| wide.row.extents.clone());
        let reduced = wide.as_ref().map_or_else(Vec::new, |wide| wide.row.reduced.clone());
        let dims = wide.as_ref().map_or_else(Vec::new, |wide| wide.row.dims.clone());

        let products: Vec<(String, Dtype)> =
            products.iter().map(|(name, (dtype, _))| ((*name).to_owned(), *dtype)).collect();
        for (rows, what) in own_rows {
            self.set_rows(rows, what)?;
        }
        let rows = self.rows.as_ref().map_or(0, |(rows, _)| *rows);

        let mut inputs: Vec<(String, Dtype)> = own.iter().map(|input| self.given.inputs[*input].clone()).collect();
        inputs.extend(products);
        let of_arrays = own.iter().map(|input| self.arrays[*input]).zip(extents.iter().copied());
        let lacks = wide.as_ref().map_or_else(Vec::new, |wide| wide.row.lacks.clone());
        let row = RowShape { dims, outer: 0, extents: extents.clone(), reduced, lacks };
        let mut resident = self.checked.resident(&row, of_arrays)?;
        for late in self.late.iter().filter(|late| read.contains(late.name.as_str())) {
            late.check_shape(&row.dims)?;
            inputs.push((late.name.clone(), late.dtype));
            extents.push(late.extent);
            resident.push(late.bytes.clone());
        }
        let row = RowShape { extents, ..row };
        let factors = layer.factors.iter().map(|name| (name.clone(), None));
        let requested: Vec<_> = outputs.iter().cloned().chain(factors).collect();
        let Given { values, numbers, .. } = &self.given;
        let program = expression.bind_rows(&row, &inputs, values, numbers, &requested)?;

        for (k, input) in own.into_iter().enumerate() {
            self.set_column(input, Column::of_input(self.given.inputs[input].1, &row, k))?;
        }
        for name in &layer.factors {
            let factor = program.factor(name).ok_or_else(|| JobError::MatrixShape {
                product: expression.text().to_owned(),
                what: name.clone(),
                shape: numpy_shape(&[&[rows], &row.dims[..]].concat()),
                needed: NEEDED.to_owned(),
            })?;
            self.factors.insert(name.clone(), factor);
        }
        Ok(BoundProgram { program, resident, wide })
    }

    /// Checks that all layers have as many rows.
    fn set_rows(&mut self, rows: u64, what: String) -> Result<()> {
        let (first_rows, first) = self.rows.get_or_insert_with(|| (rows, what.clone()));
        match *first_rows == rows {
            true => Ok(()),
            false => {
                let (first, rows, other_rows) = (first.clone(), *first_rows, rows);
                Err(JobError::RowsDiffer { first, rows, other: what, other_rows }.into())
            }
        }
    }

    /// Sets what an array is for the kernel, which is the same for all layers.
    fn set_column(&mut self, input: usize, column: Column) -> Result<()> {
        let known = *self.columns[input].get_or_insert(column);
        match (known.elements, known.is_resident) == (column.elements, column.is_resident) {
            true => Ok(()),
            false => Err(JobError::MatrixIsRead { name: self.name(input).to_owned() }.into()),
        }
    }

    /// The dtype and the dimensions of what is multiplied. An input has whole rows.
    fn factor(&mut self, label: &str, of: &Multiplicand) -> Result<Factor> {
        let name = match of {
            Multiplicand::Output(name) => {
                return Ok(self.factors.get(name).cloned().ok_or(JobError::SeveralPasses)?);
            }
            Multiplicand::Input(name) => name,
        };
        let no_rows = |shape: &[u64]| JobError::MatrixShape {
            product: label.to_owned(),
            what: format!("'{name}'"),
            shape: numpy_shape(shape),
            needed: NEEDED.to_owned(),
        };
        // A value of the job has no rows, and neither has what an earlier pass has found.
        let input = self.input(name).ok_or_else(|| no_rows(&[]))?;
        let (shape, dtype) = (self.shape(input), self.given.inputs[input].1);
        let [rows, dims @ ..] = &shape[..] else { return Err(no_rows(&shape).into()) };
        if dims.len() > 1 || dims == [0] {
            return Err(no_rows(&shape).into());
        }
        let elements = dims.first().copied().unwrap_or(1);
        self.set_rows(*rows, name.clone())?;
        self.set_column(input, Column { dtype, elements, is_resident: false, is_reduced: false })?;
        Ok((dtype, dims.to_vec()))
    }

    fn sides(&mut self, label: &str, [left, right]: &[Multiplicand; 2]) -> Result<[Factor; 2]> {
        Ok([self.factor(label, left)?, self.factor(label, right)?])
    }

    /// Reads a matrix, by which rows are multiplied.
    fn multiply(&mut self, by: &Multiplied) -> Result<BoundMatrix> {
        let Multiplied { label, of, matrix: name, is_transposed } = by;
        let (dtype, dims) = self.factor(label, of)?;
        let wrong = |what: String, shape: &[u64], needed: String| JobError::MatrixShape {
            product: label.clone(),
            what,
            shape: numpy_shape(shape),
            needed,
        };
        let input = self.input(name).ok_or_else(|| wrong(format!("'{name}'"), &[], "pass an array".into()))?;
        let (shape, own_dtype) = (self.shape(input), self.given.inputs[input].1);
        check_dtypes(label, ("what is multiplied", dtype), (&format!("'{name}'"), own_dtype))?;
        let [elements] = dims[..] else {
            let rows = self.rows.as_ref().map_or(0, |(rows, _)| *rows);
            return Err(wrong("what is multiplied".into(), &[&[rows], &dims[..]].concat(), NEEDED.into()).into());
        };
        let (inner, width) = match (&shape[..], is_transposed) {
            ([inner], false) => (*inner, None),
            ([inner, width], false) | ([width, inner], true) => (*inner, Some(*width)),
            _ => return Err(wrong(format!("'{name}'"), &shape, "a matrix has two dimensions".into()).into()),
        };
        if inner != elements || width == Some(0) {
            let needed = format!("rows of {elements} elements are multiplied by {elements} rows of a matrix");
            return Err(wrong(format!("'{name}'"), &shape, needed).into());
        }
        let product =
            MatrixProduct { float: float_of(dtype), inner: inner as usize, width: width.unwrap_or(1) as usize };
        let bytes = product.matrix_bytes();
        if bytes as u64 > MOST_ROW_BYTES {
            return Err(JobError::LargeRow { name: name.clone(), bytes: bytes as u64, most: MOST_ROW_BYTES }.into());
        }
        let source = self.checked.source(self.arrays[input]).0;
        let matrix = Resident::filled(bytes, |matrix| match is_transposed {
            false => source.read(0, matrix),
            true => {
                let mut rows = vec![0; bytes];
                source.read(0, &mut rows)?;
                transpose(&rows, product.float, product.inner, matrix)
            }
        })?;
        self.factors.insert(label.clone(), (dtype, width.into_iter().collect()));
        Ok(BoundMatrix { label: label.clone(), of: of.clone(), product, matrix: Arc::new(matrix) })
    }

    /// The columns of all inputs: arrays of the job, then those of earlier passes.
    fn all_columns(&self) -> Vec<Column> {
        let own = self.columns.iter().zip(&self.given.inputs);
        let own = own.map(|(column, (_, dtype))| column.unwrap_or_else(|| Column::resident(*dtype)));
        own.chain(self.late.iter().map(|late| Column::resident(late.dtype))).collect()
    }

    /// The names of the inputs that are columns of the kernel, and their bytes in a row.
    fn streamed(&self) -> Vec<(String, usize)> {
        let all = self.columns.iter().zip(&self.given.inputs);
        let streamed = all.filter_map(|(column, (name, dtype))| {
            let column = column.filter(|column| !column.is_resident)?;
            Some((name.clone(), column.elements as usize * dtype.size()))
        });
        streamed.collect()
    }
}

/// What the rows of a value must be to be multiplied.
const NEEDED: &str = "rows that are multiplied are those of an array of two dimensions, like (n, d)";

/// Checks that both factors of a product have the same dtype, of which there are products.
fn check_dtypes(label: &str, (what, dtype): (&str, Dtype), (other, other_dtype): (&str, Dtype)) -> Result<()> {
    match dtype == other_dtype && matches!(dtype, Dtype::F32 | Dtype::F64) {
        true => Ok(()),
        false => {
            let factors = format!("{what} is {dtype} and {other} is {other_dtype}");
            Err(JobError::MatrixDtype { product: label.to_owned(), factors }.into())
        }
    }
}
