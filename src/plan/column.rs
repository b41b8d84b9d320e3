//! What a job reads and writes, as a plan tells it.

use std::fmt;

/// A name of a job: what it is, and where its rows come from or go to.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct PlanColumn {
    /// Its name in the expression or among the kernel's parameters.
    pub name: String,
    /// What it is.
    pub role: Role,
    /// The dtype of its elements.
    pub dtype: String,
    /// Elements of a row; of a resident array, all of them.
    pub elements: u64,
    /// The path of its file, `slice`, or its value; `None` for what is on the device only.
    pub place: Option<String>,
    /// Whether it is an output whose file is there already: a run replaces it, or fails, as it was told.
    pub exists: bool,
}

/// What a name of a job is.
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
    /// An array that is the same for all rows, and stays on each device.
    Resident,
    /// Memory of a kernel for the rows of a chunk.
    Scratch,
}

impl fmt::Display for PlanColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlanColumn { name, role, dtype, elements, place, exists } = self;
        let role = match role {
            Role::Input => "input",
            Role::Output => "output",
            Role::Value => "value",
            Role::Resident => "resident",
            Role::Scratch => "scratch",
        };
        write!(f, "{role:14} {name}: ")?;
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
