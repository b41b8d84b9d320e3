//! What the steps of a job file did, as JSON. `docs/json.md` describes it.

use std::path::Path;

use overshot::{Plan, Report};
use serde::Serialize;
use serde_json::Value;

use super::shown;
use super::state::Kept;
use super::step::Task;

pub const SCHEMA_VERSION: u32 = 1;

/// What became of a task.
pub enum Outcome {
    Ran(Box<Report>),
    Skipped(Kept),
    /// The error, as JSON.
    Failed(Value),
    NotRun,
}

#[derive(Serialize)]
pub struct Document<S> {
    job: String,
    steps: Vec<S>,
}

#[derive(Serialize)]
pub struct StepJson<'a> {
    name: &'a str,
    item: Option<String>,
    status: &'static str,
    report: Option<&'a Report>,
    values: Option<Values<'a>>,
    error: Option<&'a Value>,
}

#[derive(Serialize)]
struct Values<'a> {
    results: &'a Value,
    arrays: &'a Value,
}

/// What `plan` says of a step.
#[derive(Serialize)]
pub struct PlanJson {
    pub name: String,
    /// The number of files of `each`.
    pub items: Option<usize>,
    /// How many of its runs would not be skipped.
    pub runs: usize,
    /// Why the first of them would run.
    pub why: Option<String>,
    /// The first file of `each`, whose plan this is.
    pub item: Option<String>,
    pub plan: Option<Plan>,
}

pub fn of_steps<S>(job_file: &Path, steps: Vec<S>) -> Document<S> {
    Document { job: job_file.to_string_lossy().into_owned(), steps }
}

pub fn document<'a>(job_file: &Path, outcomes: &'a [(Task, Outcome)]) -> Document<StepJson<'a>> {
    of_steps(job_file, outcomes.iter().map(|(task, outcome)| step(task, outcome)).collect())
}

fn step<'a>(task: &'a Task, outcome: &'a Outcome) -> StepJson<'a> {
    let item = task.item.as_ref().map(|item| shown(item.as_os_str()));
    let (status, report, values, error) = match outcome {
        Outcome::Ran(report) => ("ran", Some(&**report), None, None),
        Outcome::Skipped(Kept { results, arrays, .. }) => ("skipped", None, Some(Values { results, arrays }), None),
        Outcome::Failed(error) => ("failed", None, None, Some(error)),
        Outcome::NotRun => ("not run", None, None, None),
    };
    StepJson { name: &task.step, item, status, report, values, error }
}
