//! The Python package of Overshot: what its pure Python part calls.
//!
//! Objects of Python become inputs and outputs of a job in `columns.rs`, `blocks.rs` and `new_array.rs`, with arrays of
//! GPUs in `gpu.rs`; `engine.rs` runs it, or some of its rows (`partial.rs`), without the interpreter's lock;
//! `watch.rs` notices Ctrl-C and shows progress meanwhile. `matrices.rs` runs the algorithms on tables.

mod blocks;
mod columns;
mod dtype;
mod engine;
mod error;
mod expression;
mod file;
mod gpu;
mod kernel;
mod matrices;
mod new_array;
mod partial;
mod process;
mod report;
mod resident;
mod watch;

/// The module `overshot._core`.
#[pyo3::pymodule]
mod _core {
    #[pymodule_export]
    use crate::blocks::Blocks;
    #[pymodule_export]
    use crate::engine::Engine;
    #[pymodule_export]
    use crate::error::Cancelled;
    #[pymodule_export]
    use crate::expression::Expression;
    #[pymodule_export]
    use crate::file::{File, NewFile};
    #[pymodule_export]
    use crate::gpu::GpuArray;
    #[pymodule_export]
    use crate::kernel::{Call, Kernel};
    #[pymodule_export]
    use crate::matrices::Matrices;
    #[pymodule_export]
    use crate::new_array::NewRows;
    #[pymodule_export]
    use crate::partial::Partial;
    #[pymodule_export]
    use crate::report::{Plan, Report};
    #[pymodule_export]
    use crate::resident::Resident;

    use crate::report::dictionary;
    use pyo3::prelude::*;

    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "a name of Python modules")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// Returns NumPy's scalar type for a dtype of Overshot, such as `i8`, which NumPy calls `int8`.
    #[pyfunction]
    fn numpy_type<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        crate::dtype::numpy_type(py, crate::dtype::of_name(name)?)
    }

    /// Returns the devices of this machine as a list of dictionaries, and notes about those that cannot be used.
    #[pyfunction]
    fn devices(py: Python<'_>) -> PyResult<(Bound<'_, PyAny>, Vec<String>)> {
        let (devices, notes) = py.detach(overshot::device::devices);
        Ok((dictionary(py, &devices)?, notes))
    }
}
