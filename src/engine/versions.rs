//! Inputs that change during a run.

use crate::data::Input;
use crate::error::{Error, Result};

/// The versions of a job's inputs at one moment.
pub(super) struct Versions(Vec<Option<u128>>);

impl Versions {
    /// Asks the inputs for their versions now.
    pub(super) fn of(inputs: &[(String, Input<'_>)]) -> Versions {
        Versions(inputs.iter().map(|(_, input)| input.source().version()).collect())
    }

    /// Checks that the same inputs have the same versions still.
    ///
    /// # Errors
    /// [`Error::File`] for the first input that has another one.
    pub(super) fn check(&self, inputs: &[(String, Input<'_>)]) -> Result<()> {
        for ((_, input), before) in inputs.iter().zip(&self.0) {
            let source = input.source();
            if source.version() != *before {
                let name = source.path().map_or_else(|| source.name().into(), |path| path.to_path_buf());
                let problem = "it changed during the run, so the results may be of old and of new rows";
                return Err(Error::file(name, problem, "do not change a file while it is read, and run again"));
            }
        }
        Ok(())
    }
}
