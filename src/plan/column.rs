//! The columns of a plan: the inputs, outputs, values and arrays of a job.

use std::fmt;

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
    /// Elements per row; for a resident array, all elements.
    pub elements: u64,
    /// The path of its file, `slice`, or its value; `None` if it is only on the device.
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
    /// Rows that are written.
    Output,
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
            Role::Value => "value",
            Role::Resident => "resident",
            Role::Scratch => "scratch",
        }
    }
}

impl fmt::Display for PlanColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlanColumn { name, role, dtype, elements, place, exists } = self;
        write!(f, "{:14} {name}: ", role.name())?;
        if *elements != 1 {
            write!(f, "{elements} x ")?;
        }
        write!(f, "{dtype}")?;
        if let Some(place) = place {
            write!(f, " = {}", place.escape_debug())?;
        }
        if *exists { f.write_str(" (exists already)") } else { Ok(()) }
    }
}
