//! The columns of a plan: the inputs, outputs, values and arrays of a job.

use std::fmt;

use crate::units;

/// One name of a job: its role, and where its rows come from or go to.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct PlanColumn {
    /// Its name in the expression or among the kernel's parameters.
    pub name: String,
    /// Its role in the job.
    pub role: Role,
    /// The dtype of its elements; `number` for a number that adapts.
    pub dtype: String,
    /// Elements per row; for a resident array and for a result, all elements.
    pub elements: u64,
    /// The lengths of its dimensions, as NumPy has them: of an input with dimensions, of an output, and of a result.
    /// `None` if it has none, or if they are not known before the run, as those of kept rows.
    pub shape: Option<Vec<u64>>,
    /// The path of its file, `slice`, or its value; `None` if it is only on the device, or a result in the report.
    pub place: Option<String>,
    /// Whether it is an output whose file already exists. Depending on its settings, a run replaces the file or
    /// fails.
    pub exists: bool,
}

/// The role of a name in a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Role {
    /// Rows that are read.
    Input,
    /// Rows, or the elements of a result, that are written.
    Output,
    /// A reduction along the rows that is not written: it has a value for each element of a row.
    Result,
    /// A value that is the same for all rows.
    Value,
    /// An array that is the same for all rows and stays on each device.
    Resident,
    /// Scratch memory of a kernel for the rows of a chunk.
    Scratch,
}

impl Role {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Role::Input => "input",
            Role::Output => "output",
            Role::Result => "result",
            Role::Value => "value",
            Role::Resident => "resident",
            Role::Scratch => "scratch",
        }
    }
}

impl fmt::Display for PlanColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlanColumn { name, role, dtype, elements, shape, place, exists } = self;
        write!(f, "{:14} {name}: ", role.name())?;
        match shape {
            // One dimension of rows is told elsewhere.
            Some(shape) if shape.len() != 1 || *elements != 1 => {
                write!(f, "{dtype} of shape {}", units::shape(shape))?;
            }
            _ if *elements != 1 => write!(f, "{elements} x {dtype}")?,
            _ => write!(f, "{dtype}")?,
        }
        if let Some(place) = place {
            write!(f, " = {}", place.escape_debug())?;
        }
        if *exists { f.write_str(" (exists already)") } else { Ok(()) }
    }
}
