//! A parsed expression.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::axes::Axes;
use super::bind;
use super::layers::{self, Crossed, Multiplied};
use super::number::Number;
use super::parse::{self, Parsed, Tree};
use super::program::{LayerOf, Program};
use super::rank::Ranking;
use super::reduce::Reduction;
use super::scan::RunningSum;
use super::shape::RowShape;
use super::words::{self, Fixed, Function};
use crate::data::Dtype;
use crate::device::kernel::TILE_ROWS;
use crate::device::product::Product;
use crate::error::{Error, Result};

/// A parsed expression: statements that compute a value for every row, or reduce a value over all rows.
///
/// What depends on a reduction needs another pass over the rows: see [`passes`](Expression::passes).
///
/// Parse it once and use it for any number of jobs, with inputs of any dtypes. The [crate
/// documentation](crate#expressions) describes the language. Cloning is cheap. `Display` writes the text that was
/// parsed.
///
/// ```
/// use overshot::{DeviceChoice, Engine, Expression, Job};
/// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
/// let expression: Expression = "y = a * x; total = sum(y)".parse()?;
/// assert_eq!(expression.inputs().collect::<Vec<_>>(), ["a", "x"]);
/// assert_eq!(expression.outputs().collect::<Vec<_>>(), ["y"]);
/// assert_eq!(expression.reductions().collect::<Vec<_>>(), ["total"]);
/// assert!(expression.reads("y") && !expression.reads("total"));
/// for (x, total) in [(vec![1.0, 2.0], 6.0), (vec![3.0, 4.0, 5.0], 24.0)] {
///     let report = engine.run(Job::new(&expression).input("x", &x).scalar("a", 2.0))?;
///     assert_eq!(report.value("total")?.map(|total| total.as_f64()), Some(total));
/// }
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Clone)]
pub struct Expression(Arc<Inner>);

struct Inner {
    text: Arc<str>,
    /// Which pass of the text it is; `None` for the whole text.
    pass: Option<usize>,
    /// Which layer of the pass it is, and all of that; `None` if it is all layers.
    layer: Option<(LayerOf, Expression)>,
    parsed: Parsed,
}

/// The layers of an expression: see `expr/layers.rs`.
pub(crate) struct Layers {
    pub(crate) layers: Vec<Layer>,
    /// The products over the rows whose operands are of different layers.
    pub(crate) crossed: Vec<Crossed>,
}

/// A layer of an expression.
pub(crate) struct Layer {
    pub(crate) expression: Expression,
    /// The outputs that are no outputs of the job, because they are multiplied.
    pub(crate) factors: Vec<String>,
    pub(crate) multiplied: Vec<Multiplied>,
}

/// A result that is computed from those of reductions.
pub(crate) struct ComputedResult {
    /// Its name, or its text.
    pub(crate) label: String,
    /// The number of passes that must end before it.
    pub(crate) after: usize,
    /// Assigns it to its label. The results that it depends on are scalars.
    pub(crate) expression: Expression,
}

impl Expression {
    /// Parses an expression.
    ///
    /// # Errors
    /// [`Error::Expression`] with the column if the text is not a valid expression. Names and dtypes are checked when
    /// a job runs, because they depend on its inputs.
    pub fn parse(text: &str) -> Result<Expression> {
        match parse::parse(text) {
            Ok(parsed) => Ok(Expression(Arc::new(Inner { text: text.into(), pass: None, layer: None, parsed }))),
            Err(fault) => Err(fault.in_text(text)),
        }
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Returns the names that the expression reads but does not assign, in order of first use. A job needs an input
    /// or a scalar for each of them.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.parsed.inputs.iter().map(String::as_str)
    }

    /// Returns the names of the constants that the expression reads, such as `pi` and `e`, in order of first use. An
    /// input or scalar of the same name replaces the constant.
    pub fn constants(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.parsed.constants.iter().map(String::as_str)
    }

    /// Returns the names to which the expression assigns row values, in text order. Each of them needs an output, or
    /// must be read later in the text. The output of a filtered value, as in `y = x[x > 0]`, has room for all rows;
    /// [`OutputReport::rows`](crate::report::OutputReport::rows) tells how many of them it has.
    ///
    /// ```
    /// use overshot::{Engine, Job};
    /// let (x, mut y) = ([3.0, -1.0, 4.0, -1.5, 5.0], [0.0; 5]);
    /// let job = Job::eval("y = x[x > 0]; mean(y)")?.input("x", &x).output("y", &mut y);
    /// let report = Engine::builder().build()?.run(job)?;
    /// let kept = report.outputs[0].rows as usize;
    /// assert_eq!(y[..kept], [3.0, 4.0, 5.0]);
    /// assert_eq!(report.value("mean(y)")?.map(|mean| mean.as_f64()), Some(4.0));
    /// # Ok::<(), overshot::Error>(())
    /// ```
    pub fn outputs(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.parsed.assigned.iter().map(String::as_str)
    }

    /// Returns whether the expression reads `name` anywhere. An assigned name that it does not read needs an output.
    pub fn reads(&self, name: &str) -> bool {
        self.0.parsed.terms.iter().any(|term| matches!(&term.tree, Tree::Name(read) if read == name))
    }

    /// Returns the names of the results in reports, in text order: those of reductions, and of what is computed from
    /// reductions alone. The name of an unnamed one is its text, with every run of whitespace replaced by one space.
    pub fn reductions(&self) -> impl Iterator<Item = &str> {
        self.0.parsed.results()
    }

    /// Returns the most passes over the rows that it takes. It is 1, unless a value depends on a reduction, or is found
    /// by its rank, as a median is. How many passes that takes depends on the dtype and on the values.
    ///
    /// ```
    /// # use overshot::Expression;
    /// let passes = |text: &str| text.parse().map(|expression: Expression| expression.passes());
    /// assert_eq!(passes("mean(x), std(x)")?, 1);
    /// assert_eq!(passes("sum(a * b) / sum(b)")?, 1);
    /// assert_eq!(passes("y = (x - mean(x)) / std(x)")?, 2);
    /// # Ok::<(), overshot::Error>(())
    /// ```
    pub fn passes(&self) -> usize {
        self.0.parsed.passes()
    }

    /// Returns whether one pass computes everything.
    pub(crate) fn is_one_pass(&self) -> bool {
        self.0.parsed.is_one_pass()
    }

    /// Returns the running sums in it.
    pub(crate) fn running_sums(&self) -> Vec<RunningSum> {
        self.0.parsed.running_sums()
    }

    /// Returns the part that one pass computes, counted from 0: reductions, and these outputs. What earlier passes
    /// found are scalars of it.
    pub(crate) fn pass(&self, number: usize, outputs: &[&str]) -> Expression {
        let Inner { text, parsed, .. } = &*self.0;
        let (text, parsed) = (text.clone(), parsed.pass(number, outputs));
        Expression(Arc::new(Inner { text, pass: Some(number), layer: None, parsed }))
    }

    /// Returns the layers of a text of one pass, of which these are outputs; `None` if no rows are multiplied by a
    /// matrix.
    pub(crate) fn layers(&self, outputs: &[&str]) -> Option<Layers> {
        let Inner { text, pass, parsed, .. } = &*self.0;
        let layers::Divided { layers, crossed } = parsed.divide(outputs)?;
        let outputs: Vec<String> = outputs.iter().map(|name| (*name).to_owned()).collect();
        let layer = |(number, layers::Layer { parsed, factors, multiplied })| {
            let of = LayerOf { number, outputs: outputs.clone(), batch_rows: TILE_ROWS };
            let (text, layer) = (text.clone(), Some((of, self.clone())));
            Layer { expression: Expression(Arc::new(Inner { text, pass: *pass, layer, parsed })), factors, multiplied }
        };
        Some(Layers { layers: layers.into_iter().enumerate().map(layer).collect(), crossed })
    }

    /// Returns the reduction and the product of a product over the rows whose operands are of different layers. They
    /// have this dtype, and these dimensions in each row: one, or none.
    ///
    /// # Errors
    /// [`Error::Expression`] if neither has one, or if the product is too large.
    pub(crate) fn bind_crossed(
        &self,
        crossed: &Crossed,
        dtype: Dtype,
        sides: [Vec<u64>; 2],
    ) -> Result<(Reduction, Product)> {
        crossed.bind(dtype, sides).map_err(|fault| fault.in_text(self.text()))
    }

    /// Returns the names of the arrays by which rows are multiplied.
    pub(crate) fn matrices(&self) -> HashSet<&str> {
        self.0.parsed.matrices().collect()
    }

    /// Returns whether nothing is computed.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.parsed.statements.is_empty()
    }

    /// Returns what is found by its rank.
    pub(crate) fn rankings(&self) -> Vec<Ranking> {
        self.0.parsed.rankings()
    }

    /// Returns the results that are computed from those of reductions, each after those that it depends on.
    pub(crate) fn computed_results(&self) -> impl Iterator<Item = ComputedResult> {
        let Inner { text, parsed, .. } = &*self.0;
        parsed.computed_results().map(|(label, after, parsed)| {
            let expression = Expression(Arc::new(Inner { text: text.clone(), pass: None, layer: None, parsed }));
            ComputedResult { label: label.to_owned(), after, expression }
        })
    }

    /// Returns which pass of the text it is, counted from 0; `None` for the whole text.
    pub(crate) fn pass_number(&self) -> Option<usize> {
        self.0.pass
    }

    /// Checks that every assigned row value is read, or is one of these outputs.
    ///
    /// # Errors
    /// [`Error::Expression`] for the first that is not.
    pub(crate) fn check_used<'n>(&'n self, outputs: impl Iterator<Item = &'n str>) -> Result<()> {
        self.0.parsed.check_used(outputs).map_err(|fault| fault.in_text(self.text()))
    }

    /// The result of parsing.
    pub(super) fn parsed(&self) -> &Parsed {
        &self.0.parsed
    }

    /// Binds the inputs and the scalars to dtypes, adds numbers that adapt, and infers all other dtypes. Rows have one
    /// element.
    ///
    /// `outputs` are the assigned names that are written. A value is converted to the dtype of its output, if that
    /// has one. All other assigned names must be read later in the text.
    ///
    /// # Errors
    /// [`Error::Expression`] if dtypes do not match, names are missing, or the expression has several passes.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn bind(
        &self,
        inputs: &[(String, Dtype)],
        scalars: &[(String, Dtype)],
        numbers: &[(String, Number)],
        outputs: &[(String, Option<Dtype>)],
    ) -> Result<Program> {
        self.bind_rows(&RowShape::default(), inputs, scalars, numbers, outputs)
    }

    /// The same for rows of this shape.
    ///
    /// # Errors
    /// Those of [`bind`](Expression::bind), and [`Error::Expression`] for values that rows of several elements do not
    /// have.
    pub(crate) fn bind_rows(
        &self,
        row: &RowShape,
        inputs: &[(String, Dtype)],
        scalars: &[(String, Dtype)],
        numbers: &[(String, Number)],
        outputs: &[(String, Option<Dtype>)],
    ) -> Result<Program> {
        let Inner { text, pass, layer, parsed } = &*self.0;
        let (whole, computed) = match layer {
            Some((_, all)) => (&all.0.parsed, all.0.parsed.labels_of_products()),
            None => (parsed, vec![]),
        };
        let layer = layer.as_ref().map(|(layer, _)| layer.clone());
        let part = bind::Part { text, pass: *pass, layer, parsed, whole, computed: &computed };
        let bound = bind::bind(part, row, inputs, scalars, numbers, outputs);
        bound.map_err(|fault| fault.in_text(text))
    }

    /// Whether a value depends on where rows begin: it is the number of a row, that of another row, or reduced over the
    /// rows.
    pub(crate) fn needs_rows(&self) -> bool {
        let is_number = |tree: &Tree| match tree {
            Tree::Name(name) => matches!(words::constant(name), Some(Fixed::Index)),
            Tree::Call(function, _) => *function == Function::Index,
            Tree::Near(..) | Tree::RunningSum { .. } => true,
            _ => false,
        };
        self.0.parsed.reduces_rows() || self.0.parsed.terms.iter().any(|term| is_number(&term.tree))
    }

    /// Returns the axes of the reductions within rows.
    pub(crate) fn axes_within(&self) -> Vec<Axes> {
        self.0.parsed.axes_within().collect()
    }
}

impl FromStr for Expression {
    type Err = Error;

    fn from_str(text: &str) -> Result<Expression> {
        Expression::parse(text)
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.text()).finish()
    }
}
