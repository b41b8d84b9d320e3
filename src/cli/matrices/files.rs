//! The files of an algorithm, by their names.

use ndarray::{Array1, Array2};
use overshot::io::{Clash, FileSet, NewFile, Target, commit_all};
use overshot::{ArrayValue, DeviceChoice, Engine, Input, Job, Output, Sink};

use super::super::values::Binding;
use super::super::{Failure, Result};
use super::args::TableArgs;

/// The files of the arguments.
pub struct Files<'a>(&'a TableArgs);

/// The names that an algorithm has.
pub struct Names {
    /// Inputs that it needs.
    pub needed: &'static [&'static str],
    /// Inputs that may be left out.
    pub others: &'static [&'static str],
    /// Results, all of which may be left out.
    pub results: &'static [&'static str],
    /// Outputs with a value for each row.
    pub rows: &'static [&'static str],
}

impl<'a> Files<'a> {
    /// Checks before any work is done that all inputs are given, and that all outputs can be written.
    pub fn new(args: &'a TableArgs, names: &Names) -> Result<Files<'a>> {
        let all = [names.needed, names.others, names.results, names.rows].concat();
        let files = Files(args);
        let mut used = FileSet::new();
        for (place, file) in args.files.iter().enumerate() {
            let name = file.name.as_str();
            if !all.contains(&name) {
                let text = format!("there is no name '{name}' here, only {}; check the spelling", all.join(", "));
                return Err(Failure::Usage(text));
            }
            if args.files[..place].iter().any(|before| before.name == name) {
                return Err(Failure::Usage(format!("'{name}' is given twice: leave one out")));
            }
            let is_result = names.results.contains(&name);
            let is_output = is_result || names.rows.contains(&name);
            if is_output {
                let output = file.file.create()?.force(args.force).fsync(args.fsync);
                output.check()?;
                if is_result && Target::dtype(&output).is_some() {
                    let text = format!("'{name}' has the dtype of its result: leave out that of its file");
                    return Err(Failure::Usage(text));
                }
            }
            for path in file.file.files() {
                let used = if is_output { used.write(&path, name) } else { used.read(&path, name) };
                used.map_err(|Clash(other)| {
                    let path = path.display();
                    Failure::Usage(format!("{path}: is both '{other}' and '{name}': give the output another file"))
                })?;
            }
        }
        match names.needed.iter().find(|name| files.of(name).is_none()) {
            Some(name) => Err(Failure::Usage(format!("'{name}' is missing: add {name}=FILE"))),
            None => Ok(files),
        }
    }

    fn of(&self, name: &str) -> Option<&'a Binding> {
        self.0.files.iter().find(|file| file.name == name)
    }

    /// Returns whether a file has this name.
    pub fn has(&self, name: &str) -> bool {
        self.of(name).is_some()
    }

    /// Opens an input, if it has a file.
    pub fn given(&self, name: &str) -> Result<Option<Input<'static>>> {
        self.of(name).map(|file| self.0.reading.open(&file.file)).transpose()
    }

    /// Opens an input that [`new`](Files::new) found.
    pub fn input(&self, name: &str) -> Result<Input<'static>> {
        self.given(name)?.ok_or_else(|| Failure::Usage(format!("'{name}' is missing: add {name}=FILE")))
    }

    /// Reads a small table as a whole. A list is a table of one row.
    pub fn matrix(&self, name: &str) -> Result<Array2<f64>> {
        let input = self.input(name)?;
        let source = input.source();
        let columns = source.shape().and_then(|shape| shape.last().copied()).unwrap_or(source.rows()) as usize;
        let values = read(input)?;
        Ok(Array2::from_shape_vec((values.len().checked_div(columns).unwrap_or(0), columns), values)
            .unwrap_or_default())
    }

    /// Reads a small list as a whole, if it has a file.
    pub fn list(&self, name: &str) -> Result<Option<Array1<f64>>> {
        self.given(name)?.map(|input| read(input).map(Array1::from)).transpose()
    }

    /// Returns the file of an output, if it has one.
    pub fn output(&self, name: &str) -> Result<Option<NewFile>> {
        let create = |file: &Binding| Ok(file.file.create()?.force(self.0.force).fsync(self.0.fsync));
        self.of(name).map(create).transpose()
    }

    /// Returns the file of an output without which there is nothing to do.
    pub fn needed_output(&self, name: &str) -> Result<NewFile> {
        self.output(name)?.ok_or_else(|| Failure::Usage(format!("'{name}' is missing: add {name}=FILE")))
    }

    /// Writes results to the files that they have: all of them, or none.
    pub fn write(&self, results: &[(&'static str, ArrayValue)]) -> Result {
        let mut sinks: Vec<Box<dyn Sink>> = vec![];
        for (name, array) in results {
            let Some(file) = self.output(name)? else { continue };
            let sink = Output::from(file).open(array.dtype(), array.len() as u64, Some(array.shape()))?;
            sink.write(0, array.bytes())?;
            sinks.push(sink);
        }
        Ok(commit_all(sinks)?)
    }
}

/// Reads all values of an input.
fn read(input: Input<'static>) -> Result<Vec<f64>> {
    let mut values = vec![0.0; input.source().rows() as usize];
    let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
    engine.run(Job::eval("y = f64(x)")?.input("x", input).output("y", &mut values))?;
    Ok(values)
}
