//! What the fuzz targets in `fuzz/` need of the parsers and of the expression language.

use std::ops::Range;
use std::sync::Arc;

use crate::custom;
use crate::data::{Dtype, Scalar};
use crate::device::kernel::Kernel;
use crate::error::Result;
use crate::expr::{self, Expression, Program};

pub use crate::custom::ParameterKind;
pub use crate::data::{NpyHeader, npy_header};

/// Returns the parameters of the kernel `entry` in a text of CUDA C++, with their names.
///
/// # Errors
/// Returns the reason why they cannot be read, and what to do.
pub fn parameters(text: &str, entry: &str) -> Result<Vec<(String, ParameterKind)>, String> {
    let parameters = custom::parameters(text, entry)?;
    Ok(parameters.into_iter().map(|parameter| (parameter.name, parameter.kind)).collect())
}

/// Returns the ranges of the tokens of a text of CUDA C++.
pub fn token_ranges(text: &str) -> Vec<Range<usize>> {
    custom::token_ranges(text)
}

/// An expression that is bound to dtypes.
#[derive(Debug)]
pub struct Bound(Arc<Program>);

impl Bound {
    /// Binds inputs, scalars and outputs to dtypes. An output without a dtype gets that of its value.
    ///
    /// # Errors
    /// Returns [`Error::Expression`](crate::Error::Expression) if dtypes do not match or names are missing.
    pub fn new(
        expression: &Expression,
        inputs: &[(String, Dtype)],
        scalars: &[(String, Dtype)],
        outputs: &[(String, Option<Dtype>)],
    ) -> Result<Bound> {
        Ok(Bound(Arc::new(expression.bind(inputs, scalars, &[], outputs)?)))
    }

    /// Returns the outputs with their dtypes.
    pub fn outputs(&self) -> &[(String, Dtype)] {
        self.0.outputs()
    }

    /// Returns the kernel.
    pub fn kernel(&self) -> Kernel {
        self.0.kernel()
    }

    /// Returns the results of one value of the reductions over the `rows` rows of a single tile with these partials.
    pub fn results(&self, partials: &[u64], rows: u64) -> Vec<(String, Option<Scalar>)> {
        let results = expr::results(self.0.reductions(), Some(partials), &[], &[], rows);
        results.map(|results| results.values).unwrap_or_default()
    }

    /// Returns the number of rows that the outputs keep of a single tile with these partials; `None` if they keep all.
    pub fn kept(&self, partials: &[u64]) -> Option<u64> {
        partials.first().copied().filter(|_| self.0.is_filtered())
    }
}
