//! Expressions whose values depend on reductions: the rows are read in several passes, and some results are computed
//! from others.
//!
//! All passes are bound before the first one runs, so that every error of dtypes and memory comes before it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use super::Engine;
use super::check::{
    BoundJob, Checked, Column, Given, LateRow, MOST_ROW_BYTES, bind_expression, check_dtypes, check_verification,
};
use super::parts::check_targets;
use super::passes::PassContext;
use super::result_outputs::{ArrayKind, ResultOutputs};
use super::shapes::is_same;
use super::versions::Versions;
use super::{listing, precision, reports};
use crate::arrays::Resident;
use crate::data::{ArrayValue, Dtype, Input, Scalar, numpy_shape};
use crate::device::DeviceInfo;
use crate::device::kernel::{self, TILE_ROWS, Uniform};
use crate::error::{Error, JobError, Result};
use crate::expr::{Counted, Expression, Extent, RowShape, RunningSum, Search, is_bound};
use crate::job::{Job, JobBody, ProgressFn};
use crate::panics;
use crate::partial::Work;
use crate::plan::{Plan, PlanColumn, Role};
use crate::progress::Progress;
use crate::report::Report;
use crate::trace::Timeline;

/// The passes of a job, and what is computed between and after them.
pub(super) struct Divided {
    passes: Vec<Pass>,
    results: Vec<ComputedResult>,
    /// The results that several passes find by their rank.
    searches: Vec<Search>,
    /// The arrays that passes and results compute.
    arrays: Vec<ArrayKind>,
    /// The running sums, which a pass over the tiles begins.
    sums: Vec<RunningSum>,
    /// The inputs of the job.
    inputs: Vec<Column>,
}

/// One pass over the rows.
struct Pass {
    /// Its number among those of the text, from 0. Passes that the dtypes of the values do not need are left out.
    number: usize,
    expression: Expression,
    /// The inputs that it reads, as numbers of those of the job.
    inputs: Vec<usize>,
    /// The arrays of earlier passes that it reads.
    arrays: Vec<(String, Arc<kernel::Resident>)>,
    bound: BoundJob,
}

/// A result that is computed from those of reductions.
struct ComputedResult {
    label: String,
    /// The number of passes that must end before it.
    after: usize,
    /// The arrays that it reads, which are the inputs of its job.
    arrays: Vec<String>,
    /// The shape of the result, if it is an array.
    shape: Option<Vec<u64>>,
    /// A job that assigns the result: of one row, or of as many as the result has elements.
    bound: BoundJob,
}

/// The arrays that are known so far. `None` for one that has no values.
type Arrays = HashMap<String, Option<ArrayValue>>;

/// The values that are known so far: scalars of the job, and results. `None` for a result that has no value, such as
/// the minimum of zero rows.
type Values = HashMap<String, Option<Scalar>>;

impl Divided {
    /// Divides a job into passes; `None` if one pass computes all of it.
    ///
    /// # Errors
    /// Those that are detected before a run.
    pub(super) fn of(job: &Job<'_>) -> Result<Option<Divided>> {
        let JobBody::Expression(expression) = &job.what else { return Ok(None) };
        if expression.is_one_pass() {
            return Ok(None);
        }
        let checked = Checked::new(job)?;
        let outputs: Vec<&str> = job.outputs.iter().map(|(name, _)| name.as_str()).collect();
        expression.check_used(outputs.iter().copied())?;
        let inputs = checked.inputs();
        let mut known: Vec<(String, Dtype)> =
            job.values.iter().map(|(name, value)| (name.clone(), value.dtype())).collect();
        let sums = expression.running_sums();
        let mut divided = Divided {
            passes: vec![],
            results: vec![],
            searches: vec![],
            arrays: vec![],
            sums,
            inputs: checked.columns(),
        };
        let (mut arrays, mut of_tiles): (Vec<ArrayKind>, Vec<ArrayKind>) = (vec![], vec![]);
        let mut computed: Vec<_> = expression.computed_results().collect();
        let rankings = expression.rankings();
        for number in 0..expression.passes() {
            let is_last = number + 1 == expression.passes();
            let part = expression.pass(number, if is_last { &outputs } else { &[] });
            let read: HashSet<&str> = part.inputs().chain(part.constants()).collect();
            let own: Vec<usize> = (0..inputs.len()).filter(|k| read.contains(inputs[*k].0.as_str())).collect();
            let mut given = values_of(&part, &known, job);
            given.inputs = own.iter().map(|k| inputs[*k].clone()).collect();
            let outputs = if is_last { &job.outputs[..] } else { &[] };
            let read_arrays = arrays.iter().filter(|(name, ..)| read.contains(name.as_str()));
            let mut late: Vec<LateRow> = read_arrays.map(late_row).collect();
            let read_sums = of_tiles.iter().filter(|(name, ..)| read.contains(name.as_str()));
            late.extend(read_sums.map(|array| LateRow { extent: Extent::PerTile, ..late_row(array) }));
            let own_arrays = late.iter().map(|row| (row.name.clone(), row.bytes.clone())).collect();
            let bound = checked.bind(&part, given, outputs, late)?;
            check_dtypes(outputs, &bound.outputs, &job.what)?;
            check_verification(job, bound.operator.kernel())?;
            let reductions: Vec<_> = bound.operator.state().all().cloned().collect();
            for sum in divided.sums.iter().filter(|sum| sum.pass == number) {
                if let Some(sums) = reductions.iter().find(|one| one.label() == sum.of_tiles()) {
                    check_rows(sum, bound.rows)?;
                    let tiles = bound.rows.div_ceil(TILE_ROWS as u64);
                    of_tiles.push((sum.before(), sums.state_dtype(), vec![tiles]));
                }
            }
            for reduction in reductions.iter().filter(|one| one.is_result() && !one.keeps_tiles()) {
                let (label, dtype) = (reduction.label().to_owned(), reduction.result_dtype());
                match reduction.shape() {
                    Some(shape) => arrays.push((label, dtype, shape.to_vec())),
                    None => known.push((label, dtype)),
                }
            }
            let is_needed = !reductions.is_empty() || !bound.outputs.is_empty();
            for ranking in rankings.iter().filter(|ranking| ranking.first == number) {
                if let Some(search) = Search::of(ranking.clone(), &reductions) {
                    known.extend(search.scalars().map(|(name, value)| (name, value.dtype())));
                    divided.searches.push(search);
                }
            }
            for search in divided.searches.iter().filter(|search| search.ranking().end() == number + 1) {
                let (label, dtype) = (search.ranking().label.clone(), search.result_dtype());
                match search.shape() {
                    Some(shape) => arrays.push((label, dtype, shape)),
                    None => known.push((label, dtype)),
                }
            }
            if is_needed {
                divided.passes.push(Pass { number, expression: part, inputs: own, arrays: own_arrays, bound });
            }

            let (ready, later): (Vec<_>, _) = computed.into_iter().partition(|result| result.after == number + 1);
            computed = later;
            for result in ready {
                if let Some(name) = result.expression.constants().find(|name| inputs.iter().any(|(own, _)| own == name))
                {
                    return Err(JobError::ResultOfInput { result: result.label, name: name.to_owned() }.into());
                }
                let mut given = values_of(&result.expression, &known, job);
                let read: HashSet<&str> = result.expression.inputs().collect();
                let own = [(result.label.clone(), None)];
                let read_arrays = || arrays.iter().filter(|(name, ..)| read.contains(name.as_str()));
                given.inputs = read_arrays().map(|(name, dtype, _)| (name.clone(), *dtype)).collect();
                let names = given.inputs.iter().map(|(name, _)| name.clone()).collect();
                // Some of them have a dimension of one row in front.
                let shape = read_arrays().map(|(_, _, shape)| shape.clone()).max_by_key(Vec::len);
                let longest = shape.as_deref().unwrap_or_default();
                let is_other = |(_, _, shape): &&ArrayKind| !is_same(longest, shape);
                if let Some(array) = read_arrays().find(is_other) {
                    return Err(other_shape(array, &format!("an array of the shape {}", numpy_shape(longest))));
                }
                let count = shape.iter().flatten().product();
                let none = (RowShape::default(), vec![]);
                let bound = bind_expression(&result.expression, given, &own, count, None, false, none)?;
                bound.read_ends(&[])?;
                let (label, after) = (result.label, number + 1);
                for column in &bound.outputs {
                    match &shape {
                        Some(shape) => arrays.push((label.clone(), column.dtype, shape.clone())),
                        None => known.push((label.clone(), column.dtype)),
                    }
                }
                divided.results.push(ComputedResult { label, after, arrays: names, shape, bound });
            }
        }
        precision::check(job, divided.passes.iter().map(|pass| pass.bound.operator.kernel()))?;
        divided.arrays = arrays;
        Ok(Some(divided))
    }
}

fn other_shape((name, _, shape): &ArrayKind, other: &str) -> Error {
    JobError::ArrayShape { name: name.clone(), shape: numpy_shape(shape), other: other.to_owned() }.into()
}

/// The place of an array of an earlier pass in the kernel of a later one.
fn late_row((name, dtype, shape): &ArrayKind) -> LateRow {
    let elements: u64 = shape.iter().product();
    let bytes = Arc::new(kernel::Resident::late(elements as usize * dtype.size()));
    LateRow { name: name.clone(), dtype: *dtype, extent: Extent::PerColumn, shape: shape.clone(), bytes }
}

/// Checks that the sums of the tiles of so many rows fit on every device.
fn check_rows(sum: &RunningSum, rows: u64) -> Result<()> {
    let most = MOST_ROW_BYTES / 8 * TILE_ROWS as u64;
    match rows > most {
        true => Err(JobError::RunningSumRows { result: sum.label().to_owned(), rows, most }.into()),
        false => Ok(()),
    }
}

/// The values and numbers that a part of the expression reads.
fn values_of(part: &Expression, known: &[(String, Dtype)], job: &Job<'_>) -> Given {
    let read: HashSet<&str> = part.inputs().chain(part.constants()).collect();
    Given {
        inputs: vec![],
        values: known.iter().filter(|(name, _)| read.contains(name.as_str())).cloned().collect(),
        numbers: job.numbers.iter().filter(|(name, _)| read.contains(name.as_str())).cloned().collect(),
        precision: job.precision,
    }
}

impl Pass {
    /// Whether it finds out something that is not known yet, if no more is searched for than these.
    fn is_needed(&self, searches: &[Search]) -> bool {
        let is_searched = |label: &str| searches.iter().any(|search| !search.is_done() && search.has_part(label));
        let is_done = |label: &str| searches.iter().any(|search| search.is_done() && search.has_part(label));
        let state = self.bound.operator.state();
        let mut results = state.all().filter(|one| one.is_result()).map(|one| one.label());
        !self.bound.outputs.is_empty() || results.any(|label| is_searched(label) || !is_done(label))
    }

    /// Checks that the results that its rows are computed from have values.
    ///
    /// # Errors
    /// [`JobError::NoValue`] for the first one without.
    fn check_values(&self, known: &Values, arrays: &Arrays) -> Result<()> {
        if self.bound.rows == 0 {
            return Ok(());
        }
        let values =
            self.bound.values.iter().map(|(name, _)| name).filter(|name| matches!(known.get(*name), Some(None)));
        let late = self.arrays.iter().map(|(name, _)| name).filter(|name| matches!(arrays.get(*name), Some(None)));
        match values.chain(late).next() {
            Some(result) => Err(JobError::NoValue { result: result.clone() }.into()),
            None => Ok(()),
        }
    }

    /// The inputs of the pass, some of which may be kept on a device.
    fn inputs<'i>(&self, all: &'i [(String, Input<'_>)], kept: &'i Kept<'_>) -> Vec<(String, Input<'i>)> {
        let input = |k: &usize| match kept.get(k) {
            Some(resident) => (all[*k].0.clone(), resident.into()),
            None => (all[*k].0.clone(), all[*k].1.borrowed()),
        };
        self.inputs.iter().map(input).collect()
    }
}

/// The inputs that stay on a device between the passes, as far as they fit, by their numbers.
type Kept<'i> = HashMap<usize, Resident<'i>>;

/// Returns the bits of the values that a part receives; zeros for results that have no value. Nothing comes of these:
/// the part has no rows, or its result has no value, either.
fn bits_of(bound: &BoundJob, known: &Values) -> Result<Vec<u64>> {
    let value = |(name, dtype): &(String, Dtype)| {
        let value = known.get(name).copied().flatten();
        (name.clone(), value.unwrap_or_else(|| Scalar::of_bits(*dtype, 0)))
    };
    bound.bits_of(&bound.values.iter().map(value).collect::<Vec<_>>())
}

impl ComputedResult {
    /// Computes the result and adds it to those that are known.
    fn compute(&self, known: &mut Values, arrays: &mut Arrays) -> Result<()> {
        let has_none = |(name, _): &(String, Dtype)| matches!(known.get(name), Some(None));
        let inputs: Option<Vec<&ArrayValue>> =
            self.arrays.iter().map(|name| arrays.get(name).and_then(Option::as_ref)).collect();
        let inputs = inputs.filter(|_| !self.bound.values.iter().any(has_none));
        let (bits, dtype) = (bits_of(&self.bound, known)?, self.bound.outputs[0].dtype);
        let count = self.bound.rows as usize;
        let mut words = vec![0_u64; (count * dtype.size()).div_ceil(8)];
        let bytes = &mut bytemuck::cast_slice_mut(&mut words)[..count * dtype.size()];
        let is_known = inputs.is_some();
        if let Some(inputs) = inputs {
            let kernel = self.bound.operator.kernel();
            let mut host = kernel.new_host_kernel().ok_or_else(|| kernel.no_host_kernel("cpu"))?;
            let inputs: Vec<&[u8]> = inputs.into_iter().map(ArrayValue::bytes).collect();
            let uniform = Uniform { resident: &[], values: &bits, total_rows: self.bound.rows };
            host.run(0, count, &inputs, &mut [bytes], &mut [], &uniform);
        }
        let label = self.label.clone();
        match &self.shape {
            Some(shape) => {
                let array = is_known.then(|| ArrayValue::of_words(dtype, shape.clone(), words));
                arrays.insert(label, array);
            }
            None => {
                known.insert(label, is_known.then(|| Scalar::of_bits(dtype, words[0])));
            }
        }
        Ok(())
    }
}

impl Engine {
    /// Returns the device that keeps inputs between passes, and the numbers of these inputs: those that several passes
    /// read. Only a GPU that is alone keeps any. Rows on a device are lost with it, and others could not take over; and
    /// beside a GPU with such rows, the CPU would have none to compute.
    fn kept_inputs(
        &self,
        passes: &[Pass],
        (inputs, columns): (&[(String, Input<'_>)], &[Column]),
    ) -> Option<(&DeviceInfo, Vec<usize>)> {
        let [device] = &self.found_for(&passes.first()?.bound).devices[..] else { return None };
        let readers = |k: usize| passes.iter().filter(|pass| pass.inputs.contains(&k)).count();
        let is_kept = |k: &usize| readers(*k) > 1 && inputs[*k].1.shards().is_none() && !columns[*k].is_resident;
        let kept: Vec<usize> = (0..inputs.len()).filter(is_kept).collect();
        (self.may_keep(device.kind) && !kept.is_empty()).then_some((device, kept))
    }

    /// Returns the plan of a divided job: that of the last pass, with all columns of the job, and those of all passes.
    pub(super) fn plan_divided(&self, job: &Job<'_>, divided: &Divided) -> Result<Plan> {
        let Some(last) = divided.passes.last() else { return Err(JobError::SeveralPasses.into()) };
        let mut columns = listing::of(job, &divided.inputs, &last.bound);
        columns.extend(listing::of_results(job, &divided.arrays)?);
        let (mut passes, mut refused) = (Vec::with_capacity(divided.passes.len()), None);
        for (number, pass) in divided.passes.iter().enumerate() {
            let is_last = number + 1 == divided.passes.len();
            let outputs = if is_last { &job.outputs[..] } else { &[] };
            let is_own = |column: &&PlanColumn| match column.role {
                Role::Output | Role::Result => is_last,
                _ => pass.expression.reads(&column.name),
            };
            let is_result = |(name, _): &&(String, Dtype)| !is_bound(name) && !job.value_names().any(|own| own == name);
            let results = pass.bound.values.iter().filter(is_result).map(listing::of_result);
            let arrays = pass.arrays.iter().zip(&pass.bound.inputs[pass.inputs.len()..]);
            let arrays = arrays.map(|((name, array), Column { dtype, .. })| {
                listing::of_array(name, *dtype, (array.len() / dtype.size()) as u64)
            });
            let columns = columns.iter().filter(is_own).cloned().chain(results).chain(arrays).collect();
            match self.plan_bound(&pass.inputs(&job.inputs, &Kept::new()), outputs, &pass.bound) {
                Ok(plan) => passes.push(Plan { columns, ..plan }),
                // A later pass may need more, and the limit is to be raised only once.
                Err(error @ Error::Budget { .. }) => refused = Some(greater(refused, error)),
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = refused {
            return Err(error);
        }
        if let Some((device, kept)) = self.kept_inputs(&divided.passes, (&job.inputs, &divided.inputs)) {
            let names: Vec<_> = kept.iter().map(|k| format!("'{}'", job.inputs[*k].0)).collect();
            let note =
                format!("as far as they fit, rows of {} stay on {} after this pass", names.join(", "), device.id);
            passes[0].notes.push(note);
        }
        let plan = match passes.last() {
            Some(plan) if passes.len() > 1 => plan.clone(),
            _ => return Ok(Plan { columns, ..passes.remove(0) }),
        };
        Ok(Plan { columns, passes, ..plan })
    }

    /// Runs the passes of a job one after the other.
    pub(super) fn run_divided(&self, mut job: Job<'_>, divided: Divided) -> Result<Report> {
        let begin = Instant::now();
        let mut of_products = 0;
        if divided.passes.len() > 1 {
            // What could end the last pass at its start is an error before the first one: an output that exists, and
            // limits that are too small. Each pass is planned again when it runs, because others use memory meanwhile.
            check_targets(&job)?;
            let plan = self.plan_divided(&job, &divided)?;
            // Panels and matrices need more than what is left to runs otherwise.
            let multiplies = |pass: &Pass| pass.bound.operator.kernel().columns.are_multiplied();
            let plans = plan.passes.iter().zip(&divided.passes).filter(|(_, pass)| multiplies(pass));
            let bytes = plans.flat_map(|(plan, _)| &plan.devices).map(|device| device.device_bytes);
            of_products = bytes.max().unwrap_or(0);
        }
        let result_outputs = ResultOutputs::open(&mut job, &divided.arrays)?;
        let Job { what, inputs, values, numbers, rows, outputs, cancel, progress, .. } = job;
        let Job { timeline, verify, checksum, precision, .. } = job;
        let labels: Vec<String> = match &what {
            JobBody::Expression(expression) => expression.reductions().map(str::to_owned).collect(),
            JobBody::Kernel(_) => vec![],
        };
        let Divided { mut passes, results, mut searches, sums, inputs: columns, .. } = divided;
        let versions: Vec<Versions> =
            passes.iter().map(|pass| Versions::of(&pass.inputs(&inputs, &Kept::new()))).collect();
        let mut kept = Kept::new();
        for number in self.kept_inputs(&passes, (&inputs, &columns)).map(|(_, kept)| kept).unwrap_or_default() {
            kept.insert(number, self.resident_beside(inputs[number].1.borrowed(), of_products)?);
            passes.iter_mut().for_each(|pass| pass.bound.is_resident |= pass.inputs.contains(&number));
        }
        let mut known: Values = values.iter().map(|(name, value)| (name.clone(), Some(*value))).collect();
        let mut arrays = Arrays::new();
        let (count, mut outputs, mut done) = (passes.len(), Some(outputs), Vec::with_capacity(passes.len()));
        let (mut after, mut sinks) = (0, vec![]);
        for (number, (pass, versions)) in passes.into_iter().zip(versions).enumerate() {
            for result in results.iter().filter(|result| (after + 1..=pass.number).contains(&result.after)) {
                result.compute(&mut known, &mut arrays)?;
            }
            after = pass.number;
            if !pass.is_needed(&searches) {
                continue;
            }
            pass.check_values(&known, &arrays)?;
            let is_last = number + 1 == count;
            known.extend(searches.iter().flat_map(Search::scalars).map(|(name, value)| (name, Some(value))));
            pass.bound.operator.kernel().values.set(bits_of(&pass.bound, &known)?);
            for (name, resident) in &pass.arrays {
                resident.set(arrays.get(name).and_then(Option::as_ref).map_or(&[], ArrayValue::bytes));
            }
            let before = number as u64;
            let job = Job {
                what: JobBody::Expression(pass.expression.clone()),
                inputs: pass.inputs(&inputs, &kept),
                values: vec![],
                numbers: numbers.clone(),
                deferred: false,
                outputs: if is_last { outputs.take().unwrap_or_default() } else { vec![] },
                result_outputs: vec![],
                rows,
                cancel: cancel.clone(),
                progress: progress.as_deref().map(|progress| {
                    let whole = move |Progress { done, rows }| {
                        let all = (count as u64).saturating_mul(rows);
                        progress(Progress { done: before.saturating_mul(rows).saturating_add(done), rows: all });
                    };
                    Box::new(whole) as ProgressFn<'_>
                }),
                timeline,
                verify,
                checksum: checksum && is_last,
                precision,
            };
            let context = PassContext { versions: Some(versions), ..PassContext::default() };
            let ran = self.run_pass(job, &pass.bound, context)?;
            let mut report = ran.report;
            // Only the last pass has any.
            sinks.extend(ran.sinks);
            for search in &mut searches {
                let ranking = search.ranking();
                if (ranking.first..ranking.end()).contains(&pass.number) {
                    search.absorb(&Counted { arrays: &report.arrays, values: &report.results })?;
                }
                if search.is_done() {
                    let label = search.ranking().label.clone();
                    match search.array() {
                        Some(array) => drop(arrays.insert(label, Some(array))),
                        None => drop(known.insert(label, search.value())),
                    }
                }
            }
            // What passes count is no result.
            report.results.retain(|(label, _)| !searches.iter().any(|search| search.has_part(label)));
            report.arrays.retain(|(label, _)| !searches.iter().any(|search| search.has_part(label)));
            for sum in &sums {
                let label = sum.of_tiles();
                if let Some(place) = report.arrays.iter().position(|(name, _)| *name == label) {
                    let (_, of_tiles) = report.arrays.remove(place);
                    arrays.insert(sum.before(), of_tiles.as_ref().map(RunningSum::sums_before));
                }
            }
            known.extend(report.results.iter().cloned());
            arrays.extend(report.arrays.iter().cloned());
            done.push(report);
        }
        if let (Some(progress), Some(last)) = (progress.as_deref(), done.last().filter(|_| done.len() < count)) {
            let rows = (count as u64).saturating_mul(last.rows);
            panics::catch(|| panics::PROGRESS.into(), || progress(Progress { done: rows, rows }))?;
        }
        for result in results.iter().filter(|result| result.after > after) {
            result.compute(&mut known, &mut arrays)?;
        }
        let Some(mut report) = sum_of(done) else { return Err(JobError::SeveralPasses.into()) };
        (report.results, report.arrays) = (vec![], vec![]);
        for label in labels {
            match arrays.get(&label).cloned() {
                Some(array) => report.arrays.push((label, array)),
                None => {
                    let value = known.get(&label).copied().flatten();
                    report.results.push((label, value));
                }
            }
        }
        report.inputs = reports::of_inputs(&inputs);
        result_outputs.commit(sinks, &mut report)?;
        report.total_time = begin.elapsed();
        Ok(report)
    }
}

/// Of two errors about the same limit, the one that asks for more; otherwise the first one.
fn greater(first: Option<Error>, second: Error) -> Error {
    match (first, &second) {
        (None, _) => second,
        (Some(Error::Budget { what, needed, .. }), Error::Budget { what: other, needed: more, .. })
            if what == *other && needed < *more =>
        {
            second
        }
        (Some(first), _) => first,
    }
}

/// Returns the report of all passes: the sums of their counts and times, and the outputs of the last one.
fn sum_of(mut passes: Vec<Report>) -> Option<Report> {
    let mut whole = passes.last()?.clone();
    if passes.len() == 1 {
        return Some(whole);
    }
    whole.timeline = Timeline::in_order(passes.iter_mut().filter_map(|pass| Some((pass.timeline.take()?, pass.time))));
    whole.notes.clear();
    let works = passes.iter().cloned().map(Work::of);
    let work = works.reduce(|mut all, work| {
        all.merge(work);
        all
    });
    if let Some(work) = work {
        work.put_into(&mut whole);
    }
    whole.passes = passes;
    Some(whole)
}
