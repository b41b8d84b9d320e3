//! The fields of a file of records, as `overshot info` shows them.

use overshot::io::NpyField;
use overshot::units;
use serde::Serialize;

#[derive(Debug, PartialEq, Serialize)]
pub struct Field {
    name: String,
    /// The dtype; `None` for a field that cannot be read.
    dtype: Option<&'static str>,
    /// The dtype as NumPy writes it, such as `<f8`; `None` for a field that has fields itself.
    descr: Option<String>,
    /// Why a job cannot read the field, and what to do.
    problem: Option<String>,
}

impl Field {
    pub fn of(field: &NpyField) -> Field {
        let dtype = field.dtype.as_ref().ok().map(|(dtype, _)| dtype.name());
        let problem = field.dtype.as_ref().err().map(|(problem, remedy)| format!("{problem}; {remedy}"));
        Field { name: field.name.clone(), dtype, descr: field.descr.clone(), problem }
    }

    pub fn text(&self) -> String {
        let what = self.dtype.or(self.problem.as_deref()).unwrap_or_default();
        units::one_line(&format!("field {}: {what}", self.name))
    }
}
