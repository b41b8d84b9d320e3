//! The minimum, maximum and mean of a file, computed by a job.

use overshot::{Dtype, Engine, Job, Scalar, Source, units};
use serde::Serialize;

use crate::cli::Result;
use crate::cli::interrupt;
use crate::cli::progress::Bar;

/// Statistics of all rows that are not NaN; `None` if there are none.
#[derive(Serialize)]
pub struct Stats {
    min: Option<Scalar>,
    max: Option<Scalar>,
    mean: Option<Scalar>,
    nan: u64,
}

/// Sums are in f64, so that many rows of a small dtype do not overflow.
const FLOATS: &str = "least = min(where(isnan(x), inf, x)), most = max(where(isnan(x), -inf, x)), \
                      total = sum(where(isnan(x), 0, f64(x))), nan_rows = count(isnan(x))";
const INTEGERS: &str = "least = min(x), most = max(x), total = sum(f64(x))";
const BOOLS: &str = "least = all(x), most = any(x), total = sum(f64(x))";

impl Stats {
    pub fn of(source: &dyn Source, engine: &Engine, quiet: bool) -> Result<Stats> {
        let dtype = source.dtype();
        let text = match dtype {
            Dtype::Bool => BOOLS,
            dtype if dtype.is_float() => FLOATS,
            _ => INTEGERS,
        };
        let bar = Bar::new(quiet, "reading", source.rows(), dtype.size() as u64);
        let job = Job::eval(text)?.input("x", source).cancel_token(interrupt::token());
        let report = engine.run(job.progress(|progress| bar.show(progress)))?;
        let value = |name| report.value(name).map_err(overshot::Error::from);
        let nan = if dtype.is_float() { value("nan_rows")?.map_or(0, |count| count.as_f64() as u64) } else { 0 };
        let rows = source.rows() - nan;
        if rows == 0 {
            return Ok(Stats { min: None, max: None, mean: None, nan });
        }
        let mean = value("total")?.map(|total| Scalar::F64(total.as_f64() / rows as f64));
        Ok(Stats { min: value("least")?, max: value("most")?, mean, nan })
    }

    pub fn text(&self) -> String {
        let Stats { min, max, mean, nan } = self;
        let nan = match nan {
            0 => String::new(),
            count => format!(", NaN in {}", units::counted(*count, "row")),
        };
        match (min, max, mean) {
            (Some(min), Some(max), Some(mean)) => format!("min {min}, max {max}, mean {mean}{nan}"),
            _ => format!("no values{nan}"),
        }
    }
}
