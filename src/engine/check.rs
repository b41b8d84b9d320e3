//! Checks that the parts of a job fit together.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::parts::Part;
use super::precision;
use super::result_outputs::ArrayKind;
use super::shapes::{self, RowNeeds, Shaped, Wide};
use crate::custom;
use crate::data::{Clash, Dtype, FileSet, Input, NewFile, Output, Scalar, Source, numpy_shape};
use crate::device::Precision;
use crate::device::kernel::{Kernel, Resident};
use crate::device::product::DEVICE_ROWS;
use crate::error::{Error, JobError, KernelError, Result};
use crate::expr::{Expression, Extent, Needs, Number, Program, Reduction, RowShape};
use crate::job::{Job, JobBody};
use crate::ops::{CustomOp, Eval, Operator};

/// A job whose parts fit together: its operator and its columns.
pub(super) struct BoundJob {
    pub(super) operator: Box<dyn Operator>,
    pub(super) rows: u64,
    /// The shape of output files, if that of the inputs is known.
    pub(super) shape: Option<Vec<u64>>,
    /// The shape of the job, if its rows have several elements.
    pub(super) wide: Option<Wide>,
    /// The rows that are run: whole tiles, and the rest of the last one.
    pub(super) range: Range<u64>,
    /// How the outputs are shared with the runs of other rows; `None` for a run of all rows.
    pub(super) part: Option<Part>,
    /// Whether the job is an expression, as opposed to a custom kernel.
    pub(super) is_expression: bool,
    /// Whether rows of a column may be resident on devices.
    pub(super) is_resident: bool,
    pub(super) inputs: Vec<Column>,
    pub(super) outputs: Vec<Column>,
    /// The scalars of an expression.
    pub(super) values: Vec<(String, Dtype)>,
    /// The bits of the numbers that the kernel receives after the scalars.
    pub(super) numbers: Vec<u64>,
    /// The rows at both ends of inputs that the kernel needs, which are read when the run begins.
    ends: Vec<Ends>,
    /// On which inputs the results depend, if not on all in all rows.
    pub(super) needs: Option<Needs>,
}

/// The first and the last rows of an input: see [`Program::ends`](crate::expr::Program).
struct Ends {
    input: usize,
    /// How many rows of each end.
    half: u64,
    bytes: Arc<Resident>,
}

/// The dtype of an input or output, and the elements of a row. A source is asked once, because a source of the caller
/// may give another answer later.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) dtype: Dtype,
    /// Number of elements of one row of the job.
    pub(super) elements: u64,
    /// Whether it is one row for all rows, which stays on the device.
    pub(super) is_resident: bool,
    /// Whether it is an output that was reduced within rows, and has no dimensions of a row.
    pub(super) is_reduced: bool,
}

impl Column {
    /// An input that is no column of the kernel: it is the same for all rows.
    pub(super) fn resident(dtype: Dtype) -> Column {
        Column { dtype, elements: 0, is_resident: true, is_reduced: false }
    }

    /// The column of an input of rows of this shape.
    pub(super) fn of_input(dtype: Dtype, row: &RowShape, input: usize) -> Column {
        let (elements, is_resident) = (row.elements(input) as u64, row.extent(input).is_resident());
        Column { dtype, elements, is_resident, is_reduced: false }
    }
}

impl BoundJob {
    /// Returns the bits of these values, which replace those of the job, in the order of the kernel's values.
    ///
    /// # Errors
    /// [`Error::InvalidJob`] if their names or dtypes differ from those of the job.
    pub(super) fn bits_of(&self, values: &[(String, Scalar)]) -> Result<Vec<u64>> {
        for (k, (name, _)) in values.iter().enumerate() {
            if !self.values.iter().any(|(own, _)| own == name) {
                return Err(JobError::UnknownValue { name: name.clone() }.into());
            }
            if values[..k].iter().any(|(other, _)| other == name) {
                return Err(JobError::GivenTwice { role: "value", name: name.clone() }.into());
            }
        }
        let bits = |(name, dtype): &(String, Dtype)| match values.iter().find(|(other, _)| other == name) {
            Some((_, value)) if value.dtype() == *dtype => Ok(value.bits()),
            Some((_, value)) => Err(value_dtype(name, *dtype, value.dtype())),
            None => {
                let message = format!("there is no value for '{name}': give it one of {dtype}");
                Err(JobError::MissingName { name: name.clone(), message }.into())
            }
        };
        self.values.iter().map(bits).chain(self.numbers.iter().copied().map(Ok)).collect()
    }
}

impl BoundJob {
    /// Returns the job with some of its rows.
    ///
    /// # Errors
    /// [`Error::InvalidJob`] if the rows are not whole tiles, or not of the job.
    pub(super) fn of_rows(self, range: Range<u64>) -> Result<Self> {
        let (tile, rows) = (self.tile_rows(), self.rows);
        let is_border = |row: u64| row.is_multiple_of(tile) || row == rows;
        if range.start > range.end || range.end > rows || !is_border(range.start) || !is_border(range.end) {
            let (start, end) = (range.start, range.end);
            return Err(JobError::RowRange { start, end, rows, tile }.into());
        }
        Ok(BoundJob { range, ..self })
    }

    /// Returns the rows of a tile, of which parts of the job are multiples.
    pub(super) fn tile_rows(&self) -> u64 {
        let columns = &self.operator.kernel().columns;
        let unit = columns.unit_rows();
        let tile = if columns.products.is_empty() { unit } else { DEVICE_ROWS.max(unit) };
        tile as u64
    }

    /// Returns where the results of the rows that are run begin in the outputs.
    pub(super) fn first_place(&self) -> u64 {
        match self.part.as_ref().and_then(|part| part.ahead.as_ref()) {
            Some(ahead) if self.operator.compacts() => ahead.kept,
            _ => self.range.start,
        }
    }

    /// Returns the shape of an output file; `None` if it has only rows of one element.
    pub(super) fn output_shape(&self, output: usize) -> Option<Vec<u64>> {
        match (&self.wide, self.outputs[output].elements) {
            // As in NumPy, kept elements have one dimension, and kept rows those of a row.
            (Some(wide), elements) if self.operator.compacts() => {
                Some(wide.of_kept_rows(elements, self.outputs[output].is_reduced))
            }
            _ if self.is_expression && self.operator.compacts() => None,
            (Some(wide), elements) => Some(wide.of_elements(elements, self.outputs[output].is_reduced)),
            (None, elements) if self.has_shape_of_inputs(elements) => self.shape.clone(),
            (None, 1) => None,
            (None, elements) => Some(vec![self.rows, elements]),
        }
    }

    /// Whether an output of so many elements in a row has as many as the inputs, whose shape is known. Kept rows have
    /// another shape.
    fn has_shape_of_inputs(&self, elements: u64) -> bool {
        let count = |shape: &Vec<u64>| shape.iter().try_fold(1_u64, |all, len| all.checked_mul(*len));
        let count = self.shape.as_ref().and_then(count);
        count.is_some() && count == self.rows.checked_mul(elements) && !self.operator.compacts()
    }

    /// Reads the rows at both ends of inputs that the kernel needs. `inputs` are those of the job.
    ///
    /// # Errors
    /// Those of the inputs.
    pub(super) fn read_ends(&self, inputs: &[(String, Input<'_>)]) -> Result<()> {
        for Ends { input: number, half, bytes } in &self.ends {
            let (_, input) = inputs.get(*number).ok_or_else(|| Error::Internal("an array has no ends".into()))?;
            let Column { dtype, elements, .. } = self.inputs[*number];
            let row_bytes = elements as usize * dtype.size();
            let mut both = vec![0; bytes.len()];
            let len = (*half).min(self.rows);
            let own = len as usize * row_bytes;
            input.source().read(0, &mut both[..own])?;
            let behind = both.len() - own;
            input.source().read((self.rows - len) * elements, &mut both[behind..])?;
            bytes.set(&both);
        }
        Ok(())
    }

    /// Returns the results that are arrays.
    pub(super) fn arrays(&self) -> Vec<ArrayKind> {
        let state = self.operator.state();
        let shaped = state.all().filter(|one| one.is_result() && !one.keeps_tiles());
        let kind = |one: &Reduction| Some((one.label().to_owned(), one.result_dtype(), one.shape()?.to_vec()));
        shaped.filter_map(kind).collect()
    }

    /// Returns the number of rows that are run.
    pub(super) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// Returns the error for a value whose dtype differs from the one in the job.
pub(super) fn value_dtype(name: &str, dtype: Dtype, new: Dtype) -> Error {
    JobError::ValueDtype { name: name.into(), dtype: dtype.to_string(), new: new.to_string() }.into()
}

/// Checks a job before it runs.
///
/// # Errors
/// [`Error::InvalidJob`] or another error if its parts do not fit together, or if it needs several passes.
pub(super) fn bind(job: &Job<'_>) -> Result<BoundJob> {
    let checked = Checked::new(job)?;
    let bound = match &job.what {
        JobBody::Expression(expression) => {
            if !expression.is_one_pass() {
                return Err(JobError::SeveralPasses.into());
            }
            let values: Vec<_> = job.values.iter().map(|(name, value)| (name.clone(), value.dtype())).collect();
            let numbers = job.numbers.clone();
            let given = Given { inputs: checked.inputs(), values, numbers, precision: job.precision };
            let bound = checked.bind(expression, given, &job.outputs, vec![])?;
            if !job.deferred {
                bound.operator.kernel().values.set(bound.bits_of(&job.values)?);
            }
            bound
        }
        JobBody::Kernel(call) => {
            if let Some(name) = job.value_names().next() {
                return Err(JobError::KernelValue { kernel: call.entry().into(), name: name.into() }.into());
            }
            let names: Vec<_> = job.outputs.iter().map(|(name, _)| name.clone()).collect();
            let inputs = checked.inputs();
            let mut bound = call.bind(&inputs, &names)?;
            let elements: Vec<_> = bound.outputs.iter().map(|(_, elements)| *elements).collect();
            let rows = job.row_count(&checked.counts(), (&bound.inputs, &elements))?;
            bound.set_rows(rows)?;
            let custom::BoundCall { kernel, inputs: elements, outputs } = bound;
            let column = |(dtype, elements)| Column { dtype, elements, is_resident: false, is_reduced: false };
            let inputs = inputs.iter().map(|(_, dtype)| *dtype).zip(elements).map(column).collect();
            let outputs = outputs.into_iter().map(column).collect();
            let operator = Box::new(CustomOp::new(kernel));
            BoundJob {
                operator,
                rows,
                shape: checked.shape(),
                wide: None,
                range: 0..rows,
                part: None,
                is_expression: false,
                is_resident: checked.is_resident,
                inputs,
                outputs,
                values: vec![],
                numbers: vec![],
                ends: vec![],
                needs: None,
            }
        }
    };
    check_dtypes(&job.outputs, &bound.outputs, &job.what)?;
    check_verification(job, bound.operator.kernel())?;
    precision::check(job, [bound.operator.kernel()])?;
    Ok(bound)
}

/// A job whose files, shapes and row counts fit together, before its expression is bound.
pub(super) struct Checked<'j> {
    job: &'j Job<'j>,
    /// The dtype and the elements of each input, which are asked for once.
    sources: Vec<(Dtype, u64)>,
    pub(super) is_resident: bool,
    /// The shape of the job, if its rows have several elements.
    wide: Option<Wide>,
    /// Whether rows are multiplied by matrices. Each layer then has a shape of its own.
    in_layers: bool,
}

/// What an expression reads: inputs and scalars with their dtypes, and numbers; and how it multiplies.
#[derive(Default)]
pub(super) struct Given {
    pub(super) inputs: Vec<(String, Dtype)>,
    pub(super) values: Vec<(String, Dtype)>,
    pub(super) numbers: Vec<(String, Number)>,
    pub(super) precision: Precision,
}

/// The most bytes of a row that stays in memory, and on every device.
pub(super) const MOST_ROW_BYTES: u64 = 1 << 30;

/// What an earlier pass computes, and stays on the device: one row for all rows, or a value for each tile.
pub(super) struct LateRow {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) extent: Extent,
    pub(super) shape: Vec<u64>,
    pub(super) bytes: Arc<Resident>,
}

impl LateRow {
    /// Checks that it is a row of this shape.
    pub(super) fn check_shape(&self, dims: &[u64]) -> Result<()> {
        match self.extent == Extent::PerTile || shapes::is_same(&self.shape, dims) {
            true => Ok(()),
            false => Err(JobError::ArrayShape {
                name: self.name.clone(),
                shape: numpy_shape(&self.shape),
                other: format!("rows of the shape {}", numpy_shape(dims)),
            }
            .into()),
        }
    }
}

impl Given {
    /// Adds rows of earlier passes to the inputs. Returns their bytes.
    fn add(&mut self, late: Vec<LateRow>) -> Vec<Arc<Resident>> {
        let mut all = Vec::with_capacity(late.len());
        for LateRow { name, dtype, bytes, .. } in late {
            self.inputs.push((name, dtype));
            all.push(bytes);
        }
        all
    }
}

impl<'j> Checked<'j> {
    pub(super) fn new(job: &'j Job<'j>) -> Result<Self> {
        check_files(&job.inputs, &job.outputs, &job.result_outputs)?;
        check_checksums(job)?;
        let is_resident = job.inputs.iter().any(|(_, input)| input.shards().is_some())
            || job.outputs.iter().any(|(_, output)| output.shards().is_some());
        let source = |(_, input): &(String, Input<'_>)| (input.source().dtype(), input.source().rows());
        let sources = job.inputs.iter().map(source).collect();
        let mut checked = Checked { job, sources, is_resident, wide: None, in_layers: false };
        if let JobBody::Expression(expression) = &job.what {
            job.check_names(expression)?;
            if !expression.matrices().is_empty() {
                checked.in_layers = true;
                return Ok(checked);
            }
            checked.wide = checked.wide_of(expression, &(0..job.inputs.len()).collect::<Vec<_>>())?;
            // Those of outputs are compared when their elements are known.
            let outputs = if checked.wide.is_none() { job.outputs.len() } else { 0 };
            checked.rows(&vec![1; outputs])?;
        }
        Ok(checked)
    }

    /// The shape of an expression that reads these inputs; `None` if its rows have one element. The extents are those
    /// of all inputs of the job, of which it reads no others.
    fn wide_of(&self, expression: &Expression, inputs: &[usize]) -> Result<Option<Wide>> {
        let is_wide = |name: &str| {
            let input = self.job.inputs.iter().find(|(own, _)| own == name);
            input.and_then(|(_, input)| input.source().shape()).is_some_and(shapes::is_wide)
        };
        let of_rows = expression.names_of_rows(is_wide);
        let shaped = inputs.iter().map(|k| {
            let (name, input) = &self.job.inputs[*k];
            let is_of_rows = of_rows.contains(name.as_str());
            Shaped { name, count: self.sources[*k].1, shape: input.source().shape(), is_of_rows }
        });
        let needs = RowNeeds { first_axis: expression.needs_rows(), within: expression.axes_within() };
        let wide = shapes::wide(&shaped.collect::<Vec<_>>(), &needs)?;
        Ok(wide.map(|mut wide| {
            let count = self.sources.len();
            let (mut extents, mut reduced, mut lacks) = (vec![Extent::Full; count], vec![false; count], vec![0; count]);
            for (k, own) in inputs.iter().enumerate() {
                (extents[*own], reduced[*own]) = (wide.row.extent(k), wide.row.is_reduced(k));
                lacks[*own] = wide.row.lacks[k];
            }
            (wide.row.extents, wide.row.reduced, wide.row.lacks) = (extents, reduced, lacks);
            wide
        }))
    }

    /// The source of an input of the job, and the number of its elements.
    pub(super) fn source(&self, input: usize) -> (&dyn Source, u64) {
        (self.job.inputs[input].1.source(), self.sources[input].1)
    }

    /// The numbers in the job of inputs with these names.
    pub(super) fn numbers_of(&self, inputs: &[(String, Dtype)]) -> Vec<usize> {
        let number = |(name, _): &(String, Dtype)| self.job.inputs.iter().position(|(own, _)| own == name);
        inputs.iter().filter_map(number).collect()
    }

    /// Checks that the inputs with these numbers, which are these columns, and outputs have so many rows.
    pub(super) fn check_rows(&self, rows: u64, inputs: &[usize], columns: &[Column], outputs: &[Column]) -> Result<()> {
        let (mut counts, mut elements) = (vec![rows; self.sources.len()], vec![1; self.sources.len()]);
        for (k, column) in inputs.iter().zip(columns).filter(|(_, column)| !column.is_resident) {
            (counts[*k], elements[*k]) = (self.sources[*k].1, column.elements.max(1));
        }
        let of_outputs: Vec<u64> = outputs.iter().map(|output| output.elements).collect();
        self.job.row_count(&counts, (&elements, &of_outputs)).map(drop)
    }

    /// The columns of the inputs, in the order of the job. With matrices, each layer checks them.
    pub(super) fn columns(&self) -> Vec<Column> {
        if self.in_layers {
            let inputs = self.job.inputs.iter().zip(&self.sources);
            return inputs.map(|((name, input), (dtype, _))| self.column_in_layers(name, input, *dtype)).collect();
        }
        let row = self.wide.as_ref().map(|wide| wide.row.clone()).unwrap_or_default();
        self.sources.iter().enumerate().map(|(input, (dtype, _))| Column::of_input(*dtype, &row, input)).collect()
    }

    fn column_in_layers(&self, name: &str, input: &Input<'_>, dtype: Dtype) -> Column {
        let is_matrix = match &self.job.what {
            JobBody::Expression(expression) => expression.matrices().contains(name),
            JobBody::Kernel(_) => false,
        };
        match (is_matrix, input.source().shape()) {
            (true, _) => Column::resident(dtype),
            (false, shape) => {
                let elements = shape.and_then(|shape| shape.get(1..)).unwrap_or_default().iter().product();
                Column { dtype, elements, is_resident: false, is_reduced: false }
            }
        }
    }

    /// The names and dtypes of the inputs, in the order of the job, which is also the order of the columns.
    pub(super) fn inputs(&self) -> Vec<(String, Dtype)> {
        let named = self.job.inputs.iter().zip(&self.sources);
        named.map(|((name, _), (dtype, _))| (name.clone(), *dtype)).collect()
    }

    fn counts(&self) -> Vec<u64> {
        self.sources.iter().map(|(_, count)| *count).collect()
    }

    /// The rows of an expression whose outputs have so many elements in each row.
    fn rows(&self, outputs: &[u64]) -> Result<u64> {
        let (mut counts, mut elements) = (self.counts(), vec![1; self.job.inputs.len()]);
        if let Some(wide) = &self.wide {
            for ((count, elements), column) in counts.iter_mut().zip(&mut elements).zip(self.columns()) {
                (*count, *elements) = match column.is_resident {
                    true => (wide.rows, 1),
                    false => (*count, column.elements.max(1)),
                };
            }
        }
        self.job.row_count(&counts, (&elements, outputs))
    }

    /// The elements of one row for all rows, of those inputs of the job, by their numbers, that are one.
    pub(super) fn resident(
        &self,
        row: &RowShape,
        inputs: impl Iterator<Item = (usize, Extent)>,
    ) -> Result<Vec<Arc<Resident>>> {
        let read = |(k, _): (usize, Extent)| {
            let (source, (dtype, count)) = (self.job.inputs[k].1.source(), self.sources[k]);
            let name = &self.job.inputs[k].0;
            let row_bytes = (row.width() as u64).saturating_mul(dtype.size() as u64);
            if row_bytes > MOST_ROW_BYTES {
                return Err(JobError::LargeRow { name: name.clone(), bytes: row_bytes, most: MOST_ROW_BYTES }.into());
            }
            let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(dtype.size()));
            let mut bytes = vec![0; bytes.ok_or_else(|| JobError::TooLarge { name: name.clone() })?];
            source.read(0, &mut bytes)?;
            let own = [count];
            let shape = source.shape().unwrap_or(&own);
            if count != row.width() as u64 {
                bytes = shapes::broadcast(&bytes, dtype.size(), shape, &row.dims);
            }
            Ok(Arc::new(Resident::new(&bytes)))
        };
        inputs.filter(|(_, extent)| *extent == Extent::PerColumn).map(read).collect()
    }

    fn shape(&self) -> Option<Vec<u64>> {
        self.job.inputs.iter().find_map(|(_, input)| input.source().shape()).map(<[u64]>::to_vec)
    }

    /// Binds an expression over the rows of the job: its own, or one pass of it, which may read rows that earlier
    /// passes compute. The values of the kernel are not set.
    pub(super) fn bind(
        &self,
        expression: &Expression,
        mut given: Given,
        outputs: &[(String, Output<'_>)],
        late: Vec<LateRow>,
    ) -> Result<BoundJob> {
        let casts = outputs.iter().map(|(name, output)| {
            let target = output.target();
            (name.clone(), target.dtype().filter(|_| target.cast()))
        });
        let casts: Vec<_> = casts.collect();
        let names: Vec<&str> = casts.iter().map(|(name, _)| name.as_str()).collect();
        if let Some(layers) = expression.layers(&names) {
            // A layer has nothing that is not used.
            expression.check_used(names.iter().copied())?;
            return self.bind_layers(layers, given, &casts, late);
        }
        let own = self.numbers_of(&given.inputs);
        let of_part = match self.in_layers {
            true => self.wide_of(expression, &own)?,
            false => self.wide.clone(),
        };
        late.iter().try_for_each(|late| late.check_shape(of_part.as_ref().map_or(&[], |wide| &wide.row.dims)))?;
        let Some(wide) = &of_part else {
            let rows = match self.in_layers {
                // The other passes have as many.
                true => own.first().map_or(0, |k| self.sources[*k].1),
                false => self.rows(&vec![1; self.job.outputs.len()])?,
            };
            let own = given.inputs.iter().map(|_| Extent::Full);
            let extents = own.chain(late.iter().map(|row| row.extent)).collect();
            let row = (RowShape { extents, ..RowShape::default() }, given.add(late));
            let shape = if self.in_layers { Some(vec![rows]) } else { self.shape() };
            return bind_expression(expression, given, &casts, rows, shape, self.is_resident, row);
        };
        let extents = own.iter().map(|k| wide.row.extent(*k)).chain(late.iter().map(|row| row.extent)).collect();
        let reduced = own.iter().map(|k| wide.row.is_reduced(*k)).collect();
        let lacks = own.iter().map(|k| wide.row.lacks[*k]).collect();
        let row = RowShape { extents, reduced, lacks, ..wide.row.clone() };
        let of_inputs = own.iter().map(|k| (*k, wide.row.extent(*k)));
        let mut resident = self.resident(&wide.row, of_inputs)?;
        resident.extend(given.add(late));
        let shape = Some(wide.whole());
        let bound = bind_expression(expression, given, &casts, wide.rows, shape, self.is_resident, (row, resident))?;
        if !outputs.is_empty() && !self.in_layers {
            self.rows(&bound.outputs.iter().map(|column| column.elements).collect::<Vec<_>>())?;
        }
        Ok(BoundJob { wide: Some(wide.clone()), ..bound })
    }
}

/// Binds an expression over so many rows, to outputs that may have dtypes.
pub(super) fn bind_expression(
    expression: &Expression,
    given: Given,
    outputs: &[(String, Option<Dtype>)],
    rows: u64,
    shape: Option<Vec<u64>>,
    is_resident: bool,
    (row, mut resident): (RowShape, Vec<Arc<Resident>>),
) -> Result<BoundJob> {
    let Given { inputs, values, numbers, precision } = given;
    let program = expression.bind_rows(&row, &inputs, &values, &numbers, outputs)?;
    let ends = program.ends().iter().map(|(input, half)| {
        let Column { dtype, elements, .. } = Column::of_input(inputs[*input].1, &row, *input);
        let bytes = Arc::new(Resident::late(2 * half * elements as usize * dtype.size()));
        Ends { input: *input, half: *half as u64, bytes }
    });
    let ends: Vec<Ends> = ends.collect();
    resident.extend(ends.iter().map(|ends| ends.bytes.clone()));
    let inputs: Vec<Column> =
        inputs.iter().enumerate().map(|(k, (_, dtype))| Column::of_input(*dtype, &row, k)).collect();
    let given = values_of(&program, &values, &numbers);
    let columns = (inputs, outputs_of(&program, outputs.len()));
    let needs = Needs::of(&program);
    let operator = Box::new(Eval::new(program, resident, rows, precision));
    Ok(BoundJob { ends, needs, ..BoundJob::of_expression(operator, (rows, shape), columns, given, is_resident) })
}

/// The columns of the first outputs of a program, which are those of the job.
pub(super) fn outputs_of(program: &Program, count: usize) -> Vec<Column> {
    let output = |(k, (_, dtype)): (usize, &(String, Dtype))| Column {
        dtype: *dtype,
        elements: program.output_elements(k) as u64,
        is_resident: false,
        is_reduced: program.is_reduced(k),
    };
    program.outputs().iter().take(count).enumerate().map(output).collect()
}

/// Scalars, and the bits of numbers that the kernel receives after them.
type Values = (Vec<(String, Dtype)>, Vec<u64>);

/// The scalars of a program, and the bits of the numbers that its kernel receives after them.
pub(super) fn values_of(program: &Program, values: &[(String, Dtype)], numbers: &[(String, Number)]) -> Values {
    let received = program.values()[values.len()..].iter();
    let received = received.filter_map(|(name, _)| numbers.iter().find(|(own, _)| own == name));
    (values.to_vec(), received.map(|(_, number)| number.as_f64().to_bits()).collect())
}

impl BoundJob {
    /// A job of an expression: its rows and the shape of outputs, the columns of its inputs and outputs, and its
    /// scalars and the bits of its numbers, and whether rows of a column may be resident.
    pub(super) fn of_expression(
        operator: Box<dyn Operator>,
        (rows, shape): (u64, Option<Vec<u64>>),
        (inputs, outputs): (Vec<Column>, Vec<Column>),
        (values, numbers): Values,
        is_resident: bool,
    ) -> BoundJob {
        BoundJob {
            operator,
            rows,
            shape,
            wide: None,
            range: 0..rows,
            part: None,
            is_expression: true,
            is_resident,
            inputs,
            outputs,
            values,
            numbers,
            ends: vec![],
            needs: None,
        }
    }
}

/// Checks that the outputs have the dtypes of their values.
pub(super) fn check_dtypes(outputs: &[(String, Output<'_>)], bound: &[Column], what: &JobBody) -> Result<()> {
    let mut pairs = outputs.iter().zip(bound);
    let mismatch = pairs.find_map(|((name, output), column)| mismatch((name, output), column.dtype, what));
    mismatch.map_or(Ok(()), Err)
}

/// Returns the error for an output that needs another dtype than that of its values.
pub(super) fn mismatch((name, output): (&str, &Output<'_>), dtype: Dtype, what: &JobBody) -> Option<Error> {
    let own = output.target().dtype().filter(|own| *own != dtype)?;
    let remedy = match what {
        JobBody::Expression(_) => format!("cast it in the expression ({name} = {own}(…)) or pass one of {dtype}"),
        JobBody::Kernel(_) => format!("pass one of {dtype}"),
    };
    let (own, result) = (own.to_string(), dtype.to_string());
    let target = output.target().name();
    Some(JobError::OutputDtype { name: name.to_owned(), target, own, result, remedy }.into())
}

/// Checks that the job can be verified as it asks for.
pub(super) fn check_verification(job: &Job<'_>, kernel: &Kernel) -> Result<()> {
    if !(0.0..=1.0).contains(&job.verify) {
        return Err(JobError::VerifyFraction { fraction: job.verify.to_string() }.into());
    }
    if job.verify > 0.0 && kernel.columns.are_multiplied() {
        return Err(JobError::VerifyProduct.into());
    }
    match job.verify > 0.0 && kernel.host.is_none() {
        true => Err(KernelError::CannotVerify { kernel: kernel.entry.clone() }.into()),
        false => Ok(()),
    }
}

/// Checks that all outputs can be read back if they are to have checksums.
fn check_checksums(job: &Job<'_>) -> Result<()> {
    let refused = job.all_outputs().find(|(_, output)| job.checksum && !output.target().can_read_back());
    match refused {
        Some((name, output)) => {
            Err(JobError::ChecksumOutput { name: name.clone(), target: output.target().name() }.into())
        }
        None => Ok(()),
    }
}

/// Checks that no output is the file of an input or of another output. Outputs of rows may be columns of one file.
fn check_files(
    inputs: &[(String, Input<'_>)],
    outputs: &[(String, Output<'_>)],
    results: &[(String, Output<'_>)],
) -> Result<()> {
    let mut files = FileSet::new();
    let refused = |path: &Path, name: &str, Clash(other): Clash| {
        Error::from(JobError::FileClash { path: path.into(), other, output: name.into() })
    };
    for (name, input) in inputs {
        for path in input.source().files() {
            files.read(path, name).map_err(|clash| refused(path, name, clash))?;
        }
    }
    let mut tables = HashSet::new();
    let is_first = |(_, output): &&(String, Output<'_>)| match output.target().new_file().and_then(NewFile::table) {
        Some(table) => tables.insert(table),
        None => true,
    };
    for (name, output) in outputs.iter().filter(is_first).chain(results) {
        if let Some(path) = output.target().path() {
            files.write(path, name).map_err(|clash| refused(path, name, clash))?;
        }
    }
    Ok(())
}

/// Checks that the journal of a run, which is replaced and removed, is no file of the job.
pub(super) fn check_journal(job: &Job<'_>, journal: &Path) -> Result<()> {
    let inputs = job.inputs.iter().flat_map(|(name, input)| {
        let files = input.source().files();
        files.into_iter().map(move |path| (name, path))
    });
    let outputs = job.all_outputs().filter_map(|(name, output)| Some((name, output.target().path()?)));
    let mut files = FileSet::new();
    for (name, path) in inputs.chain(outputs) {
        // Those that are read clash with none.
        let _ = files.read(path, name);
    }
    let clash = |Clash(other)| JobError::JournalClash { path: journal.into(), other };
    Ok(files.write(journal, "the journal").map_err(clash)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job<'static> {
        Job::eval("sum(i * b + a)").unwrap().rows(1).scalar("a", 1i8).scalar("b", 2.0)
    }

    /// A source of zeros with a shape, or of six zeros.
    struct Shaped(Dtype, Option<Vec<u64>>);

    impl crate::data::Source for Shaped {
        fn dtype(&self) -> Dtype {
            self.0
        }
        fn rows(&self) -> u64 {
            self.1.as_ref().map_or(6, |shape| shape.iter().product())
        }
        fn name(&self) -> String {
            "zeros".into()
        }
        fn shape(&self) -> Option<&[u64]> {
            self.1.as_deref()
        }
        fn read(&self, _: u64, dst: &mut [u8]) -> Result<()> {
            dst.fill(0);
            Ok(())
        }
    }

    #[test]
    fn shapes_are_equal_or_broadcast() {
        let bound = |a: Option<&[u64]>, b: Option<&[u64]>| {
            let [a, b] = [a, b].map(|shape| Shaped(Dtype::U8, shape.map(<[u64]>::to_vec)));
            bind(&Job::eval("sum(a + b)").unwrap().input("a", a).input("b", b)).map(|_| ())
        };
        for (a, b) in [(Some(&[2, 3][..]), Some(&[2, 3][..])), (Some(&[2, 3]), None), (Some(&[6]), None), (None, None)]
        {
            bound(a, b).unwrap();
            bound(b, a).unwrap();
        }
        let refused: [[&[u64]; 2]; 5] =
            [[&[6], &[2, 3]], [&[6], &[3, 2]], [&[2, 3], &[3, 2]], [&[6, 1], &[2, 3]], [&[1, 6], &[2, 3]]];
        for [a, b] in refused {
            for (one, other) in [(a, b), (b, a)] {
                let text = bound(Some(one), Some(other)).unwrap_err().to_string();
                assert!(text.contains("NumPy's rules do not broadcast one to the other"), "{text}");
            }
        }
        let broadcast: [[&[u64]; 2]; 3] = [[&[6], &[6, 1]], [&[6], &[1, 6]], [&[6, 1], &[1, 6]]];
        for [a, b] in broadcast {
            bound(Some(a), Some(b)).unwrap();
            bound(Some(b), Some(a)).unwrap();
        }
    }

    #[test]
    fn an_output_of_a_kernel_has_the_shape_of_its_own_rows() {
        let shapes = |shape: Vec<u64>| {
            let (mut y, mut z) = (vec![0f64; 10], vec![0f32; 20]);
            let job = Job::kernel(crate::testing::custom::everything()).input("x", Shaped(Dtype::F32, Some(shape)));
            let bound = bind(&job.output("y", &mut y[..]).output("z", &mut z[..])).unwrap();
            [bound.output_shape(0), bound.output_shape(1)]
        };
        assert_eq!(shapes(vec![10, 3]), [None, Some(vec![10, 2])]);
        assert_eq!(shapes(vec![5, 6]), [None, Some(vec![10, 2])]);
    }

    #[test]
    fn values_come_with_the_job_or_late() {
        let bits = [1, 2f64.to_bits()];
        assert_eq!(bind(&job()).unwrap().operator.kernel().values.wait(), Some(&bits[..]));
        let deferred = bind(&Job { deferred: true, ..job() }).unwrap();
        let values = &deferred.operator.kernel().values;
        assert!(!values.are_known());
        values.set(deferred.bits_of(&[("b".into(), Scalar::F64(0.5)), ("a".into(), Scalar::I8(-1))]).unwrap());
        assert_eq!(values.wait(), Some(&[255, 0.5f64.to_bits()][..]));
    }

    #[test]
    fn every_path_is_looked_up_once() {
        use crate::data::{LOOKED_UP, Raw};
        let dir = tempfile::tempdir().unwrap();
        let read = dir.path().join("read");
        std::fs::write(&read, [0]).unwrap();
        let inputs = [("a".to_owned(), Raw::open(&read, Dtype::U8).unwrap().into())];
        let outputs: Vec<_> =
            (0..500).map(|k| (format!("out{k}"), Raw::create(dir.path().join(k.to_string())).into())).collect();
        LOOKED_UP.set(0);
        check_files(&inputs, &outputs, &[]).unwrap();
        assert_eq!(LOOKED_UP.get(), 501);
        let twice = [("b".to_owned(), Raw::create(dir.path().join("./read")).into())];
        let error = check_files(&inputs, &twice, &[]).unwrap_err().to_string();
        assert!(error.contains("is both 'a' and the output 'b'"), "{error}");
    }

    #[test]
    fn later_values_are_as_the_first() {
        let bound = bind(&job()).unwrap();
        let (a, b) = (("a".to_owned(), Scalar::I8(3)), ("b".to_owned(), Scalar::F64(4.0)));
        for (values, problem) in [
            (vec![a.clone()], "there is no value for 'b': give it one of f64"),
            (vec![a.clone(), b.clone(), a.clone()], "value 'a' is given twice: leave one out"),
            (vec![a, b.clone(), ("c".to_owned(), Scalar::I8(3))], "the job has no value 'c' to begin with"),
            (vec![("a".to_owned(), Scalar::I64(3)), b], "the value 'a' is i8 to begin with, but i64 later: convert it"),
        ] {
            let Err(Error::InvalidJob(error)) = bound.bits_of(&values) else { panic!("no error: {problem}") };
            let text = error.to_string();
            assert!(text.contains(problem), "{text}");
        }
    }
}
