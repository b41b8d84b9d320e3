//! Binding: turns terms into a program by resolving names and inferring dtypes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::axes::Along;
use super::bins::{Bins, Edges};
use super::border::{Border, Neighbours};
use super::fault::Fault;
use super::filter::Rows;
use super::ir::{Id, Nodes, Op};
use super::neighbours::Neighbourhood;
use super::number::Number;
use super::parse::{Parsed, Statement, Term, TermId, Tree};
use super::product::{self, Factor, Factors};
use super::program::{LayerOf, Program};
use super::random::NORMAL_FROM;
use super::rank::{Bound, Order};
use super::reduce::Reduction;
use super::shape::{self, Extent, RowShape, TermShape};
use super::tally::Tally;
use super::typing::{self, common_of, constant_bits, default_dtype, float_of};
use super::view::{Rule, Step};
use super::words::{self, Binary, Distribution, Fixed, Function, Kind, Near, Unary, Weak, Window};
use super::{filter, fold, hints, neighbours, rank, scan};
use crate::data::Dtype;

/// The bits of the key of a row that has none: -1.
const NO_KEY: u64 = u64::MAX;

/// The value of a term.
#[derive(Clone, Copy, Debug)]
enum Value {
    /// A number of the text or of the job, known now.
    Weak(Weak),
    /// A float that adapts as a number of the text does, but which the kernel receives: an `f64`.
    Loose(Id),
    Node(Id),
}

/// A value with the position of its term.
#[derive(Clone, Copy, Debug)]
struct Operand {
    at: usize,
    value: Value,
}

impl Operand {
    /// The same float, adapting to what it meets.
    fn loose(self) -> Operand {
        match self.value {
            Value::Node(id) => Operand { value: Value::Loose(id), ..self },
            _ => self,
        }
    }

    /// Whether the dtype is that of the other operand: a number, and no bool.
    fn adapts(self) -> bool {
        matches!(self.value, Value::Weak(Weak::Int(_) | Weak::Float(_)) | Value::Loose(_))
    }
}

/// An assigned name, with its position.
struct Assigned {
    at: usize,
    value: Value,
    rows: Rows,
    shape: TermShape,
}

struct Binder<'a> {
    nodes: Nodes,
    /// Inputs, and values that the kernel receives.
    given: HashMap<&'a str, (Op, Dtype)>,
    /// Numbers that adapt; `None` for those that the kernel receives.
    numbers: HashMap<&'a str, Option<Number>>,
    assigned: HashMap<&'a str, Assigned>,
    terms: &'a [Term],
    /// The values of the terms that are bound so far.
    operands: Vec<Operand>,
    /// The rows of these terms.
    rows: Vec<Rows>,
    /// The shapes of these terms.
    shapes: Vec<TermShape>,
    row_shape: &'a RowShape,
    /// The number of an element.
    element: Op,
}

/// The part of a text that is bound.
pub(super) struct Part<'a> {
    pub(super) text: &'a Arc<str>,
    pub(super) pass: Option<usize>,
    pub(super) layer: Option<LayerOf>,
    pub(super) parsed: &'a Parsed,
    /// All layers of the part, whose kernels receive the same values.
    pub(super) whole: &'a Parsed,
    /// The inputs that are products of earlier layers.
    pub(super) computed: &'a [String],
}

/// See [`Expression::bind`](super::Expression::bind).
pub(super) fn bind(
    part: Part<'_>,
    row_shape: &RowShape,
    inputs: &[(String, Dtype)],
    scalars: &[(String, Dtype)],
    numbers: &[(String, Number)],
    requested: &[(String, Option<Dtype>)],
) -> Result<Program, Fault> {
    let Part { text, pass, layer, parsed, whole, computed } = part;
    let number =
        |(name, number): &(String, Number)| (name.clone(), (!number.is_received(name, whole)).then_some(*number));
    let numbers: Vec<(String, Option<Number>)> = numbers.iter().map(number).collect();
    let received = numbers.iter().filter(|(_, part)| part.is_none()).map(|(name, _)| (name.clone(), Dtype::F64));
    let values: Vec<(String, Dtype)> = scalars.iter().cloned().chain(received).collect();
    // An input takes precedence over a scalar of the same name.
    let values_given = values.iter().enumerate().map(|(k, (name, dtype))| (name.as_str(), (Op::Value(k), *dtype)));
    let inputs_given = inputs.iter().enumerate().map(|(k, (name, dtype))| (name.as_str(), (Op::Input(k), *dtype)));
    let mut binder = Binder {
        nodes: Nodes::default(),
        given: values_given.chain(inputs_given).collect(),
        numbers: numbers.iter().map(|(name, part)| (name.as_str(), *part)).collect(),
        assigned: HashMap::new(),
        terms: &parsed.terms,
        operands: Vec::with_capacity(parsed.terms.len()),
        rows: Vec::with_capacity(parsed.terms.len()),
        shapes: Vec::with_capacity(parsed.terms.len()),
        row_shape,
        element: if row_shape.width() == 1 { Op::Row } else { Op::Element },
    };
    let (mut reductions, mut reduced_at, mut products) = (Vec::new(), Vec::new(), Vec::new());
    for statement in &parsed.statements {
        match statement {
            Statement::Assign { at, name, value: term } => {
                let value = binder.up_to(*term)?.value;
                let (rows, shape) = (binder.rows[*term], binder.shapes[*term]);
                binder.assigned.insert(name, Assigned { at: *at, value, rows, shape });
            }
            Statement::Result { at, label, .. } => return Err(undivided(*at, label)),
            Statement::Reduce { label, kind, along: Along::Bins(bins), of: term } => {
                let of = binder.reduced(*term)?;
                let reduction = binder.tally((label, *kind), *bins, *term)?;
                reduced_at.push(of.at);
                reductions.push((reduction, None));
            }
            Statement::Reduce { label, along: Along::Order(_), of: term, .. } => {
                return Err(undivided(parsed.terms[*term].at, label));
            }
            Statement::Reduce { label, along: Along::Ranked(order, pass), of: term, .. } => {
                binder.reduced(*term)?;
                for reduction in binder.ranked(label, (*order, *pass), *term)? {
                    reduced_at.push(parsed.terms[*term].at);
                    reductions.push((reduction, None));
                }
            }
            Statement::Reduce { label, along: Along::Tiles, of: term, .. } => {
                let of = binder.up_to(*term)?;
                reductions.push((binder.sums_of_tiles(label, *term)?, None));
                reduced_at.push(of.at);
            }
            Statement::Reduce { label, along: Along::Product, of: term, .. } => {
                binder.up_to(*term)?;
                products.push(binder.product(label, *term)?);
            }
            Statement::Reduce { label, kind, along, of: term } => {
                let of = binder.reduced(*term)?;
                let dtype = binder.dtype(of.value);
                let mut reduction = Reduction::new(label.clone(), *kind, dtype);
                let row = binder.strong(of, dtype)?;
                let row = if reduction.counts() { binder.cast(row, Dtype::Bool) } else { row };
                reduction.of = binder.cast(row, reduction.state);
                let is_per_row = binder.is_per_row([row]);
                // Without dimensions of a row, the rows are all that there is.
                let is_flat =
                    (is_per_row || row_shape.width() == 1) && binder.shapes[*term].is_reduced && *along == Along::ROWS;
                let shape = row_shape.of_result(*along).filter(|_| !is_flat);
                let is_one_value = shape.is_none();
                if let Some(shape) = shape {
                    if !Reduction::is_possible(&shape) {
                        return Err(Fault::new(of.at, shape::TOO_MANY_COLUMNS));
                    }
                    reduction = reduction.along_rows(shape);
                }
                let kept = binder.rows[*term].condition();
                let (elements, condition) = match is_one_value {
                    true => binder.counted(*term, [row]),
                    false => (row_shape.width() as u64, kept),
                };
                reduction.elements = elements;
                if let Some(condition) = condition {
                    filter::keep((of.at, kept.is_some()), &mut binder.nodes, &mut reduction, condition)?;
                }
                reduced_at.push(of.at);
                reductions.push((reduction, kept));
            }
        }
    }
    if let Some(layer) = &layer {
        binder.check_layer(layer, requested)?;
    }
    let (mut outputs, mut output_ids, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    let (mut output_rows, mut outputs_at, mut reduced_outputs) = (Vec::new(), Vec::new(), Vec::new());
    for (name, dtype) in requested {
        let known = binder.assigned.get(name.as_str());
        let Some(known) = known.filter(|_| seen.insert(name)) else {
            let message = format!("the output `{name}` is not assigned in the expression");
            return Err(Fault::new(0, message));
        };
        let operand = Operand { at: known.at, value: known.value };
        let own = binder.dtype(operand.value);
        let row = binder.strong(operand, own)?;
        let dtype = dtype.unwrap_or(own);
        output_ids.push(binder.cast(row, dtype));
        outputs.push((name.clone(), dtype));
        outputs_at.push(operand.at);
        let Assigned { rows, shape, .. } = binder.assigned[name.as_str()];
        row_shape.check_dims(operand.at, shape)?;
        output_rows.push((name.as_str(), operand.at, rows));
        reduced_outputs.push(shape.is_reduced);
    }
    parsed.check_used(requested.iter().map(|(name, _)| name.as_str()))?;
    let mut filter = filter::of_outputs(output_rows)?;
    if let (Some(_), Some(product)) = (filter, products.first()) {
        return Err(Fault::new(product.operands[0].at, product::BESIDE_FILTER));
    }
    let mut reductions = filter::count(&mut binder.nodes, row_shape.width() > 1, filter, reductions);
    let in_reductions = reductions.iter_mut().flat_map(Reduction::operands_mut);
    let in_products = products.iter_mut().flat_map(|product: &mut Factors| product.operands.iter_mut());
    let in_products = in_products.map(|operand| &mut operand.id);
    let results = output_ids.iter_mut().chain(&mut filter);
    let mut operands: Vec<&mut Id> = results.chain(in_reductions).chain(in_products).collect();
    let roots: Vec<Id> = operands.iter().map(|id| **id).collect();
    let views = std::mem::take(&mut binder.nodes.views);
    let (nodes, moved) = binder.nodes.keep(&roots);
    let near = Neighbourhood::of(&nodes, views, inputs.len());
    operands.iter_mut().zip(moved).for_each(|(id, moved)| **id = moved);
    let as_it_is = |input: usize| near.halo(input).is_empty() && !computed.contains(&inputs[input].0);
    let (products, operands) = product::numbered(products, &nodes, as_it_is);
    for Factor { name, at, id, dtype, shape } in operands {
        output_ids.push(id);
        outputs.push((name, dtype));
        outputs_at.push(at);
        reduced_outputs.push(shape.is_reduced);
    }
    let extents = row_shape.of_nodes(&nodes);
    let of_outputs = outputs_at.iter().zip(&output_ids).map(|(at, id)| (*at, extents[*id]));
    let output_extents =
        of_outputs.map(|(at, extent)| row_shape.of_output(at, extent)).collect::<Result<_, Fault>>()?;
    // Those that count kept rows are in front, and are of all elements.
    let counters = reductions.len() - reduced_at.len();
    let reduced = reductions[counters..].iter().zip(reduced_at);
    let is_within = nodes.iter().any(|node| matches!(node.op, Op::Reduce(..)));
    for (of, at) in reduced {
        row_shape.check_reduced(at, of, (extents[of.of], is_within))?;
    }
    let program = Program {
        text: text.clone(),
        pass,
        layer,
        inputs: inputs.to_vec(),
        row: row_shape.clone(),
        values,
        numbers,
        requested: requested.to_vec(),
        nodes,
        outputs,
        output_ids,
        output_extents,
        reduced_outputs,
        products,
        filter,
        reductions,
        near,
    };
    program.near.check(|input| program.input_row(input).1)?;
    Ok(program)
}

impl Binder<'_> {
    /// Checks that a layer reads no rows but its own, and that what is multiplied has all rows.
    fn check_layer(&self, layer: &LayerOf, requested: &[(String, Option<Dtype>)]) -> Result<(), Fault> {
        let reads_others = |term: &&Term| matches!(term.tree, Tree::Near(..) | Tree::RunningSum { .. });
        if let Some(term) = self.terms.iter().find(reads_others) {
            return Err(Fault::new(term.at, hints::OTHER_ROWS_BESIDE_PRODUCT));
        }
        let factors = requested.iter().filter(|(name, _)| !layer.outputs.contains(name));
        let mut factors = factors.filter_map(|(name, _)| self.assigned.get(name.as_str()));
        match factors.find(|factor| factor.rows.condition().is_some()) {
            Some(factor) => Err(Fault::new(factor.at, hints::FILTERED_FACTOR)),
            None => Ok(()),
        }
    }

    fn dtype(&self, value: Value) -> Dtype {
        match value {
            Value::Weak(weak) => default_dtype(weak),
            Value::Loose(id) | Value::Node(id) => self.nodes.dtype(id),
        }
    }

    fn cast(&mut self, id: Id, dtype: Dtype) -> Id {
        if self.nodes.dtype(id) == dtype { id } else { self.nodes.push(Op::Cast(id), dtype) }
    }

    /// Converts the operand to the given dtype.
    fn strong(&mut self, operand: Operand, dtype: Dtype) -> Result<Id, Fault> {
        match operand.value {
            Value::Loose(id) | Value::Node(id) => Ok(self.cast(id, dtype)),
            Value::Weak(weak) => match constant_bits(weak, dtype) {
                Some(bits) => Ok(self.nodes.push(Op::Constant(bits), dtype)),
                None => {
                    let fits = |wide: &Dtype| constant_bits(weak, *wide).is_some();
                    let wide = [Dtype::I64, Dtype::U64].into_iter().find(fits).unwrap_or(Dtype::F64);
                    let weak = show(weak);
                    let message =
                        format!("{weak} does not fit in {dtype}; convert the other operand first, like {wide}(a)");
                    Err(Fault::new(operand.at, message))
                }
            },
        }
    }

    /// A constant that is the result for every value of an operand. It has the elements that the operand has: both
    /// sides of a choice are alike.
    fn whatever_it_is(&mut self, at: usize, of: Operand, constant: Op, dtype: Dtype) -> Operand {
        let constant = self.nodes.push(constant, dtype);
        let id = match of.value {
            Value::Node(id) => {
                let condition = self.cast(id, Dtype::Bool);
                self.nodes.push(Op::Select(condition, constant, constant), dtype)
            }
            Value::Loose(_) | Value::Weak(_) => constant,
        };
        Operand { at, value: Value::Node(id) }
    }

    fn row_value(&mut self, at: usize, op: Op, dtype: Dtype) -> Operand {
        Operand { at, value: Value::Node(self.nodes.push(op, dtype)) }
    }

    /// Binds the terms up to `last` and returns its value.
    fn up_to(&mut self, last: TermId) -> Result<Operand, Fault> {
        let terms = self.terms;
        for (id, term) in terms.iter().enumerate().take(last + 1).skip(self.operands.len()) {
            let rows = self.rows_of(term)?;
            let shape = self.shape_of(term)?;
            let operand = self.term(id, term)?;
            self.operands.push(operand);
            self.rows.push(rows);
            self.shapes.push(shape);
        }
        Ok(self.operands[last])
    }

    fn term(&mut self, id: TermId, term: &Term) -> Result<Operand, Fault> {
        let at = term.at;
        match &term.tree {
            Tree::Number(weak) => Ok(Operand { at, value: Value::Weak(*weak) }),
            Tree::Name(name) => self.name(at, name),
            Tree::Unary(op, of) => self.unary(at, *op, self.operands[*of]),
            Tree::Binary(op, left, right) => {
                let bound = self.binary(at, *op, self.operands[*left], self.operands[*right]);
                bound.map_err(|fault| self.with_parentheses(id, *op, fault))
            }
            Tree::Reduce { label, .. } => Err(undivided(at, label)),
            Tree::Within(kind, _, of) => self.within(at, *kind, *of),
            Tree::Filter(of, _) | Tree::Weighted(of, _) | Tree::Transposed(of) | Tree::Factors(of, _) => {
                Ok(Operand { at, ..self.operands[*of] })
            }
            Tree::Times { .. } => Err(Fault::new(at, hints::UNDIVIDED)),
            Tree::OneHot(of, keys) => self.key(at, self.operands[*of], *keys),
            Tree::Near(near, of) => self.near(at, near, self.operands[*of]),
            Tree::RunningSum { label, of } => self.running_sum(at, label, *of),
            Tree::Call(function, arguments) => {
                let arguments: Vec<Operand> = arguments.iter().map(|argument| self.operands[*argument]).collect();
                self.call(at, *function, &arguments)
            }
        }
    }

    /// The rows of a term.
    fn rows_of(&mut self, term: &Term) -> Result<Rows, Fault> {
        let own = match &term.tree {
            Tree::Name(name) => self.rows_of_name(name),
            Tree::Call(Function::Index | Function::Random(_), _) => Rows::All,
            Tree::Near(_, of) => return self.rows[*of].moved(term.at),
            Tree::Filter(of, condition) => {
                if self.row_shape.width() > 1 {
                    self.shapes[*condition].check_condition(self.terms[*condition].at)?;
                }
                let value = self.operands[*condition].value;
                let (dtype, rows) = (self.dtype(value), self.rows[*condition]);
                let id = if let Value::Node(id) = value { Some(id) } else { None };
                return self.rows[*of].filtered(term.at, &mut self.nodes, (id, dtype, rows));
            }
            _ => Rows::One,
        };
        Rows::of_operation(term.at, term.tree.operands().into_iter().map(|id| self.rows[id]).chain([own]))
    }

    /// A term that is reduced, with all before it.
    fn reduced(&mut self, term: TermId) -> Result<Operand, Fault> {
        let of = self.up_to(term)?;
        self.row_shape.check_dims(of.at, self.shapes[term])?;
        Ok(of)
    }

    /// The shape of a term.
    fn shape_of(&self, term: &Term) -> Result<TermShape, Fault> {
        let own = match &term.tree {
            Tree::Name(name) => match (self.assigned.get(name.as_str()), self.given.get(name.as_str())) {
                (Some(assigned), _) => assigned.shape,
                (None, Some((Op::Input(input), _))) => self.row_shape.of_input(*input),
                _ => TermShape::ONE,
            },
            Tree::Call(Function::Random(_), _) => TermShape::FULL,
            Tree::Within(_, within, of) => return self.row_shape.within(term.at, *within, self.shapes[*of]),
            // Those of products, whose operands need not have the same.
            Tree::Factors(left, _) => return Ok(self.shapes[*left]),
            // The condition is one of rows, whatever these have.
            Tree::Filter(of, condition) => {
                return Ok(self.row_shape.of_kept(self.shapes[*of], self.shapes[*condition]));
            }
            _ => TermShape::ONE,
        };
        TermShape::of_operation(term.at, term.tree.operands().into_iter().map(|id| self.shapes[id]).chain([own]))
    }

    fn rows_of_name(&self, name: &str) -> Rows {
        match (self.assigned.get(name), self.given.get(name), words::constant(name)) {
            (Some(assigned), ..) => assigned.rows,
            (None, Some((Op::Input(_), _)), _) => Rows::All,
            (None, None, Some(Fixed::Index)) if !self.numbers.contains_key(name) => Rows::All,
            _ => Rows::One,
        }
    }

    /// Extends the error of a `&`, `|` or `^` that is an operand of a comparison. Usually the comparison was meant to
    /// be the operand.
    fn with_parentheses(&self, id: TermId, op: Binary, fault: Fault) -> Fault {
        let is_compared = self.terms[id..].iter().any(|term| {
            matches!(term.tree, Tree::Binary(by, left, right) if by.is_comparison() && (left == id || right == id))
        });
        if !matches!(op, Binary::And | Binary::Or | Binary::Xor) || !is_compared {
            return fault;
        }
        let (reason, sign) = (fault.message, op.name());
        let remedy =
            format!("it has a higher precedence than comparisons; put them in parentheses, like `a {sign} (x > 1)`");
        Fault::new(fault.at, format!("{reason}; {remedy}"))
    }

    /// Whether each of these values has one element for each row, in rows of several.
    fn is_per_row(&self, values: impl IntoIterator<Item = Id>) -> bool {
        if self.row_shape.width() == 1 {
            return false;
        }
        let extents = self.row_shape.of_nodes(self.nodes.list());
        values.into_iter().all(|id| extents[id] == Extent::PerRow)
    }

    /// The number of elements of a row that a reduction of a term over all elements has, whose operands are these, and
    /// where they are.
    fn counted(&mut self, term: TermId, operands: impl IntoIterator<Item = Id>) -> (u64, Option<Id>) {
        let kept = self.rows[term].condition();
        match self.is_per_row(operands) {
            true => (1, Some(filter::in_first_column(&mut self.nodes, kept))),
            false => (self.row_shape.width() as u64, kept),
        }
    }

    /// A reduction that counts elements, and in which `term` is the values or keys, or these with their weights.
    fn tally(&mut self, (label, kind): (&str, Kind), bins: Bins, term: TermId) -> Result<Reduction, Fault> {
        let (of, weights) = match self.terms[term].tree {
            Tree::Weighted(of, weights) => (self.operands[of], Some(self.operands[weights])),
            _ => (self.operands[term], None),
        };
        let dtype = self.dtype(of.value);
        let bins = match bins {
            Bins::Equal(edges) => {
                let edges = Edges { dtype: if dtype.is_float() { dtype } else { Dtype::F64 }, ..edges };
                if !edges.are_distinct() {
                    let message = format!(
                        "the edges of the bins are no different numbers of {dtype}; use fewer bins, or convert the \
                         values, like histogram(f64(x), …)"
                    );
                    return Err(Fault::new(of.at, message));
                }
                Bins::Equal(edges)
            }
            Bins::Keys(_) | Bins::List(_) if dtype.is_float() => {
                let message =
                    format!("`bincount` counts integers, not {dtype}; convert them, like bincount(i64(k), n)");
                return Err(Fault::new(of.at, message));
            }
            keys => keys,
        };
        let tally = Tally::of(bins, weights.map(|weights| self.dtype(weights.value)));
        if tally.bins > tally.most_bins() {
            let (each, most) = (8 * tally.bin_words(), tally.most_bins());
            let message =
                format!("exact sums of these weights take {each} bytes for each key, so there are at most {most}");
            return Err(Fault::new(of.at, message));
        }
        let mut reduction = Reduction::new(label.to_owned(), kind, dtype).in_bins(tally);
        let value = self.strong(of, dtype)?;
        reduction.of = self.cast(value, reduction.state);
        if reduction.state != Dtype::F64 {
            // All negative keys are alike, and so one of them can mean that an element is left out.
            let least = self.nodes.push(Op::Constant(-1_i64 as u64), reduction.state);
            reduction.of = self.nodes.push(Op::Binary(Binary::Max, reduction.of, least), reduction.state);
        }
        if let (Some(operand), Some(dtype)) = (weights, tally.weights) {
            let weights = self.strong(operand, dtype)?;
            reduction.weight = Some(self.cast(weights, Tally::weight_state(dtype)));
        }
        if let Some(weight) = reduction.weight {
            let extents = self.row_shape.of_nodes(self.nodes.list());
            if extents[weight] != extents[reduction.of] {
                let mut each = [weight, reduction.of].into_iter();
                each.try_for_each(|id| self.row_shape.check_reduced(of.at, &reduction, (extents[id], false)))?;
            }
        }
        let (elements, condition) = self.counted(term, reduction.operands());
        reduction.elements = elements;
        if let Some(condition) = condition {
            filter::leave_out(&mut self.nodes, &mut reduction, condition);
        }
        Ok(reduction)
    }

    /// A product over the rows, of the operands of this term.
    fn product(&mut self, label: &str, term: TermId) -> Result<Factors, Fault> {
        let Tree::Factors(left, right) = self.terms[term].tree else { return Err(Fault::new(0, hints::UNDIVIDED)) };
        let at = self.terms[term].at;
        let keys = self.keys(left);
        let factors = if keys.is_some() { vec![right] } else { vec![left, right] };
        let factors: Vec<Operand> = factors.into_iter().map(|factor| self.operands[factor]).collect();
        let dtype = product::dtype(at, self.common(&factors))?;
        let kept = self.rows[term].condition();
        let mut operand = |side: &str, term: TermId, (dtype, left_out): (Dtype, u64)| {
            let of = self.operands[term];
            self.row_shape.check_dims(of.at, self.shapes[term])?;
            let mut id = self.strong(of, dtype)?;
            if let Some(condition) = kept {
                let none = self.nodes.push(Op::Constant(left_out), dtype);
                id = self.nodes.push(Op::Select(condition, id, none), dtype);
            }
            let extents = self.row_shape.of_nodes(self.nodes.list());
            let shape = TermShape { extent: extents[id], ..self.shapes[term] };
            let name = format!("the {side} operand of '{label}'");
            Ok(Factor { name, at: self.terms[term].at, id, dtype, shape })
        };
        // Zeros add nothing, and neither do rows without a key.
        let of_left = if keys.is_some() { (Dtype::I32, NO_KEY) } else { (dtype, 0) };
        let operands = [operand("left", left, of_left)?, operand("right", right, (dtype, 0))?];
        Factors::new((at, label), keys, operands, self.row_shape)
    }

    /// The number of keys of a factor that is keys.
    fn keys(&self, factor: TermId) -> Option<u32> {
        let Tree::Transposed(of) = self.terms[factor].tree else { return None };
        if let Tree::OneHot(_, keys) = self.terms[of].tree { Some(keys) } else { None }
    }

    /// A key as an `i32`, which is -1 if it is none of so many.
    fn key(&mut self, at: usize, of: Operand, keys: u32) -> Result<Operand, Fault> {
        let dtype = self.dtype(of.value);
        if dtype.is_float() {
            let message = format!("keys are integers, not {dtype}; convert them, like onehot(i64(k), n)");
            return Err(Fault::new(of.at, message));
        }
        let own = self.strong(of, dtype)?;
        // A u64 that is no i64 becomes negative.
        let key = self.cast(own, Dtype::I64);
        let [zero, end, none] =
            [0, u64::from(keys), NO_KEY].map(|number| self.nodes.push(Op::Constant(number), Dtype::I64));
        let is_key = [(Binary::Ge, zero), (Binary::Lt, end)]
            .map(|(op, bound)| self.nodes.push(Op::Binary(op, key, bound), Dtype::Bool));
        let is_key = self.nodes.push(Op::Binary(Binary::And, is_key[0], is_key[1]), Dtype::Bool);
        let key = self.nodes.push(Op::Select(is_key, key, none), Dtype::I64);
        Ok(Operand { at, value: Value::Node(self.cast(key, Dtype::I32)) })
    }

    /// The reductions of a pass that finds values by their rank.
    fn ranked(&mut self, label: &str, (order, pass): (Order, usize), term: TermId) -> Result<Vec<Reduction>, Fault> {
        let of = self.up_to(term)?;
        let dtype = self.dtype(of.value);
        if matches!((order, dtype), (Order::Quantile(_), Dtype::Bool)) {
            let message = "bools have no values between them; convert them first, like quantile(u8(x), 0.5)";
            return Err(Fault::new(of.at, message));
        }
        let own = self.strong(of, dtype)?;
        let (elements, condition) = self.counted(term, [own]);
        let values = rank::Values { of: own, dtype, condition };
        let received = |bound: Bound| self.given.get(bound.name(label).as_str()).map(|(op, _)| *op);
        let mut reductions = rank::reductions(&mut self.nodes, (label, order, pass), &values, received);
        reductions.iter_mut().for_each(|reduction| reduction.elements = elements);
        Ok(reductions)
    }

    /// The sums of a value in the rows of each tile.
    fn sums_of_tiles(&mut self, label: &str, term: TermId) -> Result<Reduction, Fault> {
        let of = self.operands[term];
        scan::check(of.at, self.rows[term], self.row_shape)?;
        let dtype = self.dtype(of.value);
        let mut reduction = Reduction::new(label.to_owned(), Kind::Sum, dtype);
        let value = self.strong(of, dtype)?;
        reduction.of = self.cast(value, reduction.state);
        reduction.keeps_tiles = true;
        Ok(reduction)
    }

    /// The sums of a value in each row and all rows before it.
    fn running_sum(&mut self, at: usize, label: &str, term: TermId) -> Result<Operand, Fault> {
        let sums = self.sums_of_tiles(label, term)?;
        match self.given.get(scan::before(label).as_str()) {
            Some((Op::Input(before), _)) => {
                let sum = self.nodes.push(Op::RunningSum(sums.of, *before), sums.state);
                let id = self.cast(sum, sums.result_dtype());
                Ok(Operand { at, value: Value::Node(id) })
            }
            _ => Err(undivided(at, label)),
        }
    }

    fn name(&mut self, at: usize, name: &str) -> Result<Operand, Fault> {
        if let Some(assigned) = self.assigned.get(name) {
            return Ok(Operand { at, value: assigned.value });
        }
        match (self.numbers.get(name), self.given.get(name), words::constant(name)) {
            (Some(Some(number)), ..) => Ok(Operand { at, value: Value::Weak(number.0) }),
            (Some(None), Some((op, dtype)), _) => Ok(self.row_value(at, *op, *dtype).loose()),
            (_, Some((op, dtype)), _) => Ok(self.row_value(at, *op, *dtype)),
            (_, None, Some(Fixed::Number(weak))) => Ok(Operand { at, value: Value::Weak(weak) }),
            (_, None, Some(Fixed::Index)) => Ok(self.row_value(at, Op::Row, Dtype::I64)),
            (_, None, None) => Err(Fault::new(at, hints::unbound(name))),
        }
    }

    fn call(&mut self, at: usize, function: Function, arguments: &[Operand]) -> Result<Operand, Fault> {
        match (function, arguments) {
            (Function::Index, []) => Ok(self.row_value(at, Op::Row, Dtype::I64)),
            (Function::Unary(op), [of]) => self.unary(at, op, *of),
            (Function::Binary(op), [left, right]) => self.binary(at, op, *left, *right),
            (Function::Random(distribution), [seed]) => self.random(at, distribution, *seed),
            (Function::Cast(dtype), [of]) => {
                let id = self.strong(*of, dtype)?;
                Ok(Operand { at, value: Value::Node(id) })
            }
            (Function::Where, [condition, then, otherwise]) => {
                let condition = self.strong(*condition, Dtype::Bool)?;
                let dtype = self.common(&[*then, *otherwise]);
                let (then, otherwise) = (self.strong(*then, dtype)?, self.strong(*otherwise, dtype)?);
                Ok(self.row_value(at, Op::Select(condition, then, otherwise), dtype))
            }
            (Function::Clip, [value, low, high]) => {
                let dtype = self.common(arguments);
                let raised = self.extreme(at, Binary::Max, &[*value, *low], dtype)?;
                self.extreme(at, Binary::Min, &[raised, *high], dtype)
            }
            (Function::Extreme(op), _) => self.extreme(at, op, arguments, self.common(arguments)),
            // The parser checks the number of arguments, and where reductions are allowed.
            _ => Err(Fault::new(at, "this does not fit here")),
        }
    }

    /// Random numbers by the number of the element. Those of the normal distribution are by Box and Muller, of two
    /// numbers each.
    fn random(&mut self, at: usize, distribution: Distribution, seed: Operand) -> Result<Operand, Fault> {
        let dtype = self.dtype(seed.value);
        if !dtype.is_integer() {
            return Err(Fault::new(seed.at, format!("a seed is an integer, not {dtype}; write one, like rand(1)")));
        }
        let seed = self.strong(seed, Dtype::U64)?;
        let number = |binder: &mut Self, position: Operand| {
            let position = binder.strong(position, Dtype::U64)?;
            Ok(binder.row_value(at, Op::Binary(Binary::Random, seed, position), Dtype::F64))
        };
        let element = self.nodes.push(self.element, Dtype::I64);
        let element = self.row_value(at, Op::Cast(element), Dtype::U64);
        if distribution == Distribution::Uniform {
            return number(self, element);
        }
        let of = |weak: Weak| Operand { at, value: Value::Weak(weak) };
        let twice = self.binary(at, Binary::Mul, element, of(Weak::Int(2)))?;
        let first = self.binary(at, Binary::Add, twice, of(Weak::Int(NORMAL_FROM.into())))?;
        let second = self.binary(at, Binary::Add, first, of(Weak::Int(1)))?;
        let (first, second) = (number(self, first)?, number(self, second)?);
        // Never 0, whose logarithm is infinite.
        let rest = self.binary(at, Binary::Sub, of(Weak::Float(1.0)), first)?;
        let log = self.unary(at, Unary::Log, rest)?;
        let squared = self.binary(at, Binary::Mul, of(Weak::Float(-2.0)), log)?;
        let radius = self.unary(at, Unary::Sqrt, squared)?;
        let angle = self.binary(at, Binary::Mul, of(Weak::Float(std::f64::consts::TAU)), second)?;
        let cosine = self.unary(at, Unary::Cos, angle)?;
        self.binary(at, Binary::Mul, radius, cosine)
    }

    /// A function of neighbouring rows.
    fn near(&mut self, at: usize, near: &Neighbours, of: Operand) -> Result<Operand, Fault> {
        let Neighbours { function, rows, border } = *near;
        let window = match function {
            Near::Shift => return self.shift(at, of, rows, border),
            Near::Diff => {
                let before = self.shift(at, of, 1, border)?;
                return self.binary(at, Binary::Sub, of, before);
            }
            Near::Moving(window) => window,
        };
        let newest = self.shift(at, of, 0, border)?;
        let (state, result, op) = neighbours::of_window(window, self.dtype(newest.value));
        let mut all: Option<Id> = None;
        for by in (0..rows).rev() {
            let one = self.shift(at, of, by, border)?;
            let one = self.strong(one, state)?;
            all = Some(all.map_or(one, |all| self.nodes.push(Op::Binary(op, all, one), state)));
        }
        let mut all = Operand { at, value: all.map_or(newest.value, Value::Node) };
        if window == Window::Mean {
            let rows = Operand { at, value: Value::Weak(Weak::Int(rows.into())) };
            all = self.binary(at, Binary::Div, all, rows)?;
        }
        let id = self.strong(all, result)?;
        Ok(Operand { at, value: Value::Node(id) })
    }

    /// The value so many rows before.
    fn shift(&mut self, at: usize, of: Operand, by: i64, border: Border) -> Result<Operand, Fault> {
        let (dtype, rule, number) = match border {
            Border::Edge => (self.dtype(of.value), Rule::Edge, None),
            Border::Wrap => (self.dtype(of.value), Rule::Wrap, None),
            Border::Number(number) => {
                let number = Operand { at, value: Value::Weak(number) };
                let (own, dtype) = (self.dtype(of.value), self.common(&[of, number]));
                if matches!(number.value, Value::Weak(Weak::Float(value)) if value.is_nan()) && !own.is_float() {
                    let message = format!("{own} has no NaN; write another border, or convert first, like f64(x)");
                    return Err(Fault::new(at, message));
                }
                (dtype, Rule::Edge, Some(self.strong(number, dtype)?))
            }
        };
        let id = self.strong(of, dtype)?;
        let moved =
            if by == 0 { id } else { neighbours::shifted(at, &mut self.nodes, id, Step { by, rule }, self.row_shape)? };
        let id = match number.filter(|_| by != 0) {
            Some(number) => {
                let is_inside = neighbours::is_inside(&mut self.nodes, by);
                self.nodes.push(Op::Select(is_inside, moved, number), dtype)
            }
            None => moved,
        };
        Ok(Operand { at, value: Value::Node(id) })
    }

    /// A reduction of the elements of each row, which [`Reduction::finish`] defines, but for variances: they are the
    /// mean of the squared differences from the mean.
    fn within(&mut self, at: usize, kind: Kind, of: TermId) -> Result<Operand, Fault> {
        let of = self.operands[of];
        let dtype = self.dtype(of.value);
        let reduction = Reduction::new(String::new(), kind, dtype);
        let row = self.strong(of, dtype)?;
        let row = if reduction.counts() { self.cast(row, Dtype::Bool) } else { row };
        let row = self.cast(row, reduction.state);
        let value = match kind {
            // The last two have no axis.
            Kind::Sum | Kind::Count | Kind::Kept | Kind::Histogram | Kind::BinCount => {
                let sum = self.reduce_rows(Kind::Sum, row);
                match reduction.state {
                    Dtype::F64 => {
                        let zero = self.nodes.push(Op::Constant(0), Dtype::F64);
                        self.nodes.push(Op::Binary(Binary::Add, sum, zero), Dtype::F64)
                    }
                    _ => sum,
                }
            }
            Kind::Prod | Kind::Min | Kind::Max | Kind::ArgMin | Kind::ArgMax => self.reduce_rows(kind, row),
            Kind::All => self.reduce_rows(Kind::Min, row),
            Kind::Any => self.reduce_rows(Kind::Max, row),
            Kind::Mean => self.mean_of_rows(row),
            Kind::Var | Kind::Std => {
                let mean = self.mean_of_rows(row);
                let difference = self.nodes.push(Op::Binary(Binary::Sub, row, mean), Dtype::F64);
                let square = self.nodes.push(Op::Binary(Binary::Mul, difference, difference), Dtype::F64);
                let variance = self.mean_of_rows(square);
                match kind {
                    Kind::Std => self.nodes.push(Op::Unary(Unary::Sqrt, variance), Dtype::F64),
                    _ => variance,
                }
            }
        };
        let id = self.cast(value, reduction.result_dtype());
        Ok(Operand { at, value: Value::Node(id) })
    }

    fn mean_of_rows(&mut self, row: Id) -> Id {
        let sum = self.reduce_rows(Kind::Sum, row);
        let count = (self.row_shape.width() as f64).to_bits();
        let count = self.nodes.push(Op::Constant(count), Dtype::F64);
        self.nodes.push(Op::Binary(Binary::Div, sum, count), Dtype::F64)
    }

    /// The reduction of each row of a value with the dtype of a state. A row of one element is its own.
    fn reduce_rows(&mut self, kind: Kind, of: Id) -> Id {
        let finds = matches!(kind, Kind::ArgMin | Kind::ArgMax);
        match (self.row_shape.width(), finds) {
            (1, true) => self.nodes.push(Op::Constant(0), Dtype::I64),
            (1, false) => of,
            (_, true) => self.nodes.push(Op::Reduce(kind, of), Dtype::I64),
            (_, false) => self.nodes.push(Op::Reduce(kind, of), self.nodes.dtype(of)),
        }
    }

    fn extreme(&mut self, at: usize, op: Binary, operands: &[Operand], dtype: Dtype) -> Result<Operand, Fault> {
        let ids: Vec<Id> = operands.iter().map(|operand| self.strong(*operand, dtype)).collect::<Result<_, _>>()?;
        let id = ids.into_iter().reduce(|left, right| self.nodes.push(Op::Binary(op, left, right), dtype));
        let id = id.ok_or_else(|| Fault::new(at, "at least two arguments are needed"))?;
        Ok(Operand { at, value: Value::Node(id) })
    }

    /// The common dtype of operands. It is an integer dtype only if every literal among them is an integer.
    fn common(&self, operands: &[Operand]) -> Dtype {
        let dtypes = |adapting| {
            let those = operands.iter().filter(move |operand| operand.adapts() == adapting);
            those.map(|operand| self.dtype(operand.value))
        };
        let (strong, weak) = (dtypes(false), dtypes(true));
        let is_weak_float = |value| matches!(value, Value::Weak(Weak::Float(_)) | Value::Loose(_));
        let weak_float = operands.iter().any(|operand| is_weak_float(operand.value));
        match (common_of(strong), common_of(weak)) {
            (Some(strong), None) => strong,
            (Some(strong), Some(_)) if strong.is_float() => strong,
            (Some(strong), Some(_)) if strong.is_integer() && !weak_float => strong,
            (_, Some(weak)) => weak,
            (None, None) => Dtype::F64,
        }
    }

    fn unary(&mut self, at: usize, op: Unary, of: Operand) -> Result<Operand, Fault> {
        if let (Value::Weak(weak), Unary::Pos | Unary::Neg | Unary::Not) = (of.value, op) {
            let value = Value::Weak(fold::unary(op, weak).map_err(|message| Fault::new(at, message))?);
            return Ok(Operand { at, value });
        }
        if let (Value::Loose(_), Unary::Pos) = (of.value, op) {
            return Ok(of);
        }
        let dtype = self.dtype(of.value);
        let is_identity = match op {
            Unary::Pos | Unary::Neg if dtype == Dtype::Bool => {
                return Err(Fault::new(at, format!("`{}` does not accept bools; write `~` to negate one", op.name())));
            }
            Unary::Not if dtype.is_float() => {
                return Err(Fault::new(at, format!("`~` accepts integers and bools, not {dtype}")));
            }
            Unary::Sign if dtype == Dtype::Bool => {
                return Err(Fault::new(at, "`sign` does not accept bools; convert them first, like sign(i8(x))"));
            }
            Unary::Pos => true,
            Unary::Abs => dtype.is_unsigned() || dtype == Dtype::Bool,
            Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc => !dtype.is_float(),
            _ => false,
        };
        if is_identity {
            let id = self.strong(of, dtype)?;
            return Ok(Operand { at, value: Value::Node(id) });
        }
        match op {
            Unary::Neg | Unary::Not | Unary::Abs | Unary::Sign => {
                let id = self.strong(of, dtype)?;
                let result = self.row_value(at, Op::Unary(op, id), dtype);
                let is_loose = matches!((of.value, op), (Value::Loose(_), Unary::Neg));
                Ok(if is_loose { result.loose() } else { result })
            }
            Unary::IsNan | Unary::IsInf | Unary::IsFinite if !dtype.is_float() => {
                Ok(self.whatever_it_is(at, of, Op::Constant(u64::from(op == Unary::IsFinite)), Dtype::Bool))
            }
            Unary::IsNan | Unary::IsInf | Unary::IsFinite => {
                let id = self.strong(of, dtype)?;
                Ok(self.row_value(at, Op::Unary(op, id), Dtype::Bool))
            }
            _ => {
                let dtype = float_of(dtype);
                let id = self.strong(of, dtype)?;
                let dtype = if op == Unary::SignBit { Dtype::Bool } else { dtype };
                Ok(self.row_value(at, Op::Unary(op, id), dtype))
            }
        }
    }

    fn binary(&mut self, at: usize, op: Binary, left: Operand, right: Operand) -> Result<Operand, Fault> {
        let is_function = op.is_of_floats() || op == Binary::Fmod;
        if let (Value::Weak(a), Value::Weak(b), false) = (left.value, right.value, is_function) {
            let value = fold::binary(op, a, b).map_err(|message| Fault::new(at, message))?;
            return Ok(Operand { at, value: Value::Weak(value) });
        }
        if op.is_comparison() {
            return self.comparison(at, op, left, right);
        }
        let result = self.arithmetic(at, op, left, right)?;
        let are_numbers = !is_function && [left, right].iter().all(|of| !matches!(of.value, Value::Node(_)));
        Ok(if are_numbers { result.loose() } else { result })
    }

    fn arithmetic(&mut self, at: usize, op: Binary, left: Operand, right: Operand) -> Result<Operand, Fault> {
        let common = self.common(&[left, right]);
        let bools_only = common == Dtype::Bool;
        let dtype = match op {
            Binary::Sub if bools_only => {
                return Err(Fault::new(at, "`-` does not accept bools; write `^` for their difference"));
            }
            Binary::Div if !common.is_float() => Dtype::F64,
            Binary::FloorDiv | Binary::Rem | Binary::Fmod | Binary::Pow if bools_only => Dtype::I8,
            Binary::Shl | Binary::Shr if bools_only => Dtype::I8,
            Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr if common.is_float() => {
                let (a, b) = (self.dtype(left.value), self.dtype(right.value));
                let message = format!("`{}` accepts integers and bools, not {a} and {b}", op.name());
                return Err(Fault::new(at, message));
            }
            _ if op.is_of_floats() && common.is_half() => common,
            _ if op.is_of_floats() => match (left.value, right.value) {
                (Value::Node(a), Value::Node(b)) => {
                    typing::common(float_of(self.nodes.dtype(a)), float_of(self.nodes.dtype(b)))
                }
                _ => float_of(common),
            },
            _ => common,
        };
        if let (Binary::Pow, Value::Weak(exponent @ (Weak::Int(_) | Weak::Float(_)))) = (op, right.value) {
            return self.power(at, left, right, exponent, dtype);
        }
        let op = match op {
            Binary::Add if bools_only => Binary::Or,
            Binary::Mul if bools_only => Binary::And,
            op => op,
        };
        let (a, b) = (self.strong(left, dtype)?, self.strong(right, dtype)?);
        Ok(self.row_value(at, Op::Binary(op, a, b), dtype))
    }

    /// A power with a literal exponent. As in NumPy, simple exponents are computed exactly.
    fn power(
        &mut self,
        at: usize,
        left: Operand,
        right: Operand,
        exponent: Weak,
        dtype: Dtype,
    ) -> Result<Operand, Fault> {
        if matches!(exponent, Weak::Int(value) if value < 0) && !dtype.is_float() {
            let message = "an integer to a negative power is not an integer; write the exponent as a float, like -1.0";
            return Err(Fault::new(right.at, message));
        }
        let base = self.strong(left, dtype)?;
        let exponent = exponent.float();
        if exponent == 2.0 {
            return Ok(self.row_value(at, Op::Binary(Binary::Mul, base, base), dtype));
        }
        if dtype.is_float() {
            if exponent == 1.0 {
                return Ok(Operand { at, value: Value::Node(base) });
            }
            if exponent == 0.5 {
                return Ok(self.row_value(at, Op::Unary(Unary::Sqrt, base), dtype));
            }
            let one = self.strong(Operand { at, value: Value::Weak(Weak::Int(1)) }, dtype)?;
            if exponent == 0.0 {
                return Ok(self.whatever_it_is(at, left, self.nodes.node(one).op, dtype));
            }
            if exponent == -1.0 {
                return Ok(self.row_value(at, Op::Binary(Binary::Div, one, base), dtype));
            }
        }
        let exponent = self.strong(right, dtype)?;
        Ok(self.row_value(at, Op::Binary(Binary::Pow, base, exponent), dtype))
    }

    fn comparison(&mut self, at: usize, op: Binary, left: Operand, right: Operand) -> Result<Operand, Fault> {
        let (a, b) = (self.dtype(left.value), self.dtype(right.value));
        let dtype = self.common(&[left, right]);
        // A literal outside the range of the other operand's dtype compares the same with all values of that dtype.
        for (number, other, operand) in [(left.value, b, right), (right.value, a, left)] {
            if let (Value::Weak(Weak::Int(value)), false) = (number, other.is_float())
                && constant_bits(Weak::Int(value), dtype).is_none()
            {
                let inside = 0;
                let is_left = matches!(left.value, Value::Weak(_));
                let is_true =
                    if is_left { fold::compare(op, &value, &inside) } else { fold::compare(op, &inside, &value) };
                return Ok(self.whatever_it_is(at, operand, Op::Constant(u64::from(is_true)), Dtype::Bool));
            }
        }
        if matches!((a, b), (_, Dtype::U64) if a.is_signed()) && dtype.is_float() {
            return self.mixed_comparison(at, op, left, right);
        }
        if matches!((a, b), (Dtype::U64, _) if b.is_signed()) && dtype.is_float() {
            let mirrored = match op {
                Binary::Lt => Binary::Gt,
                Binary::Le => Binary::Ge,
                Binary::Gt => Binary::Lt,
                Binary::Ge => Binary::Le,
                op => op,
            };
            return self.mixed_comparison(at, mirrored, right, left);
        }
        let (left, right) = (self.strong(left, dtype)?, self.strong(right, dtype)?);
        Ok(self.row_value(at, Op::Binary(op, left, right), Dtype::Bool))
    }

    /// Compares a signed integer with a `u64` exactly: by sign first, then as `u64`.
    fn mixed_comparison(&mut self, at: usize, op: Binary, signed: Operand, other: Operand) -> Result<Operand, Fault> {
        let signed = self.strong(signed, Dtype::I64)?;
        let other = self.strong(other, Dtype::U64)?;
        let zero = self.nodes.push(Op::Constant(0), Dtype::I64);
        let unsigned = self.cast(signed, Dtype::U64);
        let (sign_test, join) = match op {
            Binary::Lt | Binary::Le | Binary::Ne => (Binary::Lt, Binary::Or),
            _ => (Binary::Ge, Binary::And),
        };
        let by_sign = self.nodes.push(Op::Binary(sign_test, signed, zero), Dtype::Bool);
        let by_value = self.nodes.push(Op::Binary(op, unsigned, other), Dtype::Bool);
        Ok(self.row_value(at, Op::Binary(join, by_sign, by_value), Dtype::Bool))
    }
}

/// The fault of a text of several passes that is bound as if it had one.
fn undivided(at: usize, label: &str) -> Fault {
    Fault::new(at, format!("`{label}` is known only after all rows; an engine computes what depends on it"))
}

fn show(weak: Weak) -> String {
    match weak {
        Weak::Bool(value) => value.to_string(),
        Weak::Int(value) => value.to_string(),
        Weak::Float(value) => format!("{value:?}"),
    }
}
