//! `overshot plan job.toml`: which steps would run, why, and how.

use std::path::Path;

use overshot::units::counted;

use super::file::JobFile;
use super::json::{PlanJson, SCHEMA_VERSION, of_steps};
use super::state::State;
use super::step::Task;
use super::{Engines, at_task, check, refuse_others, replaces, shown, step};
use crate::cli::args::JobArgs;
use crate::cli::output::{print, print_document};
use crate::cli::style::heading;
use crate::cli::{Result, job};

/// Prints the plans of all steps; runs nothing.
pub fn plan(path: &Path, args: &JobArgs, given: &[String]) -> Result {
    refuse_others(path, given, &["--all", "--json"])?;
    let file = JobFile::open(path)?;
    let mut tasks = step::tasks(&file, args)?;
    let makers = check::files(&file, &tasks)?;
    let state = State::read(&file)?;
    for task in &mut tasks {
        task.args.force = replaces(task, &state);
    }
    let whys = whys(args, &tasks, &makers, &state);
    let mut engines = Engines::default();
    let mut steps = Vec::new();
    let is_first = |place: &usize| *place == 0 || tasks[*place].step != tasks[*place - 1].step;
    for first in (0..tasks.len()).filter(is_first) {
        let task = &tasks[first];
        let count = tasks[first..].iter().take_while(|other| other.step == task.step).count();
        let mut step = described(task, count, &whys[first..first + count]);
        if !args.json {
            print(title(first + 1, tasks.len(), &step))?;
        }
        match task.reads.iter().find(|name| name.files_with(&[]).is_empty()) {
            // What an earlier step has not written yet cannot be opened.
            Some(missing) if !args.json => {
                let by = makers[first].last().map_or("an earlier step", |maker| &tasks[*maker].step);
                print(format!("no plan yet, because '{by}' writes its input {} first\n", missing.path.display()))?;
            }
            Some(_) => {}
            None => {
                let plan = engines.of(&task.args.limits).and_then(|engine| job::planned(&task.args, engine));
                let plan = plan.map_err(|failure| at_task(&file, task, failure))?;
                if !args.json {
                    print(&plan)?;
                }
                step.plan = Some(plan);
            }
        }
        steps.push(step);
    }
    if args.json { print_document(SCHEMA_VERSION, &of_steps(path, steps)) } else { Ok(()) }
}

/// What is said of a step, without its plan.
fn described(task: &Task, count: usize, whys: &[Option<String>]) -> PlanJson {
    PlanJson {
        name: task.step.clone(),
        items: task.item.is_some().then_some(count),
        runs: whys.iter().flatten().count(),
        why: whys.iter().flatten().next().cloned(),
        item: task.item.as_ref().map(|item| shown(item.as_os_str())),
        plan: None,
    }
}

/// Why each task would run; `None` if it would be skipped.
fn whys(args: &JobArgs, tasks: &[Task], makers: &[Vec<usize>], state: &State) -> Vec<Option<String>> {
    let mut whys: Vec<Option<String>> = Vec::with_capacity(tasks.len());
    for (task, makers) in tasks.iter().zip(makers) {
        let earlier = || makers.iter().find(|maker| whys[**maker].is_some());
        let why = match state.why(task) {
            _ if args.all => Some("--all".into()),
            None => earlier().map(|maker| format!("'{}' writes its input first", tasks[*maker].step)),
            why => why,
        };
        whys.push(why);
    }
    whys
}

fn title(number: usize, total: usize, step: &PlanJson) -> String {
    let PlanJson { name, items, runs, why, item, .. } = step;
    let why = why.as_deref().unwrap_or_default();
    let (files, would) = match (items, item) {
        (Some(items), Some(item)) => {
            let files = format!(": {}, of which {item} is the first", counted(*items as u64, "file"));
            let would = match runs {
                0 => "would be skipped".into(),
                runs if runs == items => format!("would run ({why})"),
                runs => format!("{runs} would run ({why})"),
            };
            (files, would)
        }
        _ if *runs == 0 => (String::new(), "would be skipped".into()),
        _ => (String::new(), format!("would run ({why})")),
    };
    format!("{}\n", heading(&format!("[{number}/{total}] {name}{files}: {would}")))
}
