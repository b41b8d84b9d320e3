//! The host function of a custom kernel, which runs on devices without CUDA.

use std::sync::Arc;

use super::parameter::Kind;
use crate::data::{Dtype, Element};
use crate::device::kernel::{Halo, HostKernel, Uniform};

/// A host function of the rows of a chunk.
pub(super) type HostFunction = Arc<dyn Fn(&mut HostRows<'_>) + Send + Sync>;

/// The rows that a host function computes. Columns have the names of the kernel's parameters.
///
/// [`CustomKernel`](crate::kernel::CustomKernel) and [`Call`](crate::kernel::Call) have examples. A
/// [`RowFunction`](crate::kernel::RowFunction) gets typed slices instead, whose types the compiler checks.
///
/// Methods panic if there is no such name, if it is of another type, or if an output is asked for twice: mistakes of
/// the function, which end the run.
///
/// ```
/// use overshot::kernel::{CustomKernel, HostRows};
/// use overshot::{DeviceChoice, Engine, Job};
/// const ROW_NUMBER: &str = r#"
/// extern "C" __global__ void row_number(const float *x, float *y, long long first_row, long long rows)
/// {
///     long long i = blockIdx.x * 256ll + threadIdx.x;
///     if (i < rows) y[i] = x[i] + (first_row + i);
/// }"#;
/// fn on_host(rows: &mut HostRows<'_>) {
///     let (first, x, y) = (rows.first_row(), rows.input::<f32>("x"), rows.output::<f32>("y"));
///     (first..).zip(x).zip(y).for_each(|((row, x), y)| *y = x + row as f32);
/// }
/// // SAFETY: it reads and writes rows 0 to `rows` of its columns and nothing else.
/// let kernel = unsafe { CustomKernel::cuda("row_number.cu", ROW_NUMBER, "row_number") }?.on_host(on_host);
/// let (x, mut y) = ([0.5f32; 3], [0.0f32; 3]);
/// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
/// engine.run(Job::kernel(&kernel).input("x", &x).output("y", &mut y))?;
/// assert_eq!(y, [0.5, 1.5, 2.5]);
/// # Ok::<(), overshot::Error>(())
/// ```
pub struct HostRows<'r> {
    pub(super) names: &'r Names,
    pub(super) first_row: u64,
    pub(super) rows: usize,
    pub(super) inputs: &'r [&'r [u8]],
    pub(super) outputs: Vec<Option<&'r mut [u8]>>,
    pub(super) kept: Option<&'r mut [u64]>,
    pub(super) uniform: &'r Uniform<'r>,
}

/// The places of the parameters of a bound kernel.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) inputs: Vec<(String, Kind)>,
    pub(super) outputs: Vec<(String, Kind)>,
    pub(super) resident: Vec<(String, Kind)>,
    pub(super) values: Vec<(String, Dtype)>,
    /// The halo of each input.
    pub(super) halos: Vec<Halo>,
    pub(super) tile_rows: usize,
}

impl std::fmt::Debug for HostRows<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut all = f.debug_struct("HostRows");
        all.field("first_row", &self.first_row).field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl<'r> HostRows<'r> {
    /// Returns the number of the first row among all rows of the job.
    pub fn first_row(&self) -> u64 {
        self.first_row
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of rows of the job.
    pub fn total_rows(&self) -> u64 {
        self.uniform.total_rows
    }

    /// Returns the rows of a tile: those of a block of the kernel.
    pub fn tile_rows(&self) -> usize {
        self.names.tile_rows
    }

    /// Returns the elements of an input, several per row if the parameter says so. `bool` is `u8`. An input with a
    /// [halo](crate::kernel::CustomKernel::halo) also has the rows before and behind, as far as the job has them:
    /// [`halo_before`](HostRows::halo_before) says how many are in front.
    ///
    /// # Panics
    /// See the type.
    pub fn input<T: Element>(&self, name: &str) -> &'r [T] {
        bytemuck::cast_slice(self.inputs[place::<T>("input", &self.names.inputs, name)])
    }

    /// Returns how many rows an input has before the first one: those of its halo, or fewer at the begin of the job.
    ///
    /// # Panics
    /// If there is no input of this name.
    pub fn halo_before(&self, name: &str) -> usize {
        let Some(input) = self.names.inputs.iter().position(|(other, _)| other == name) else {
            panic!("the kernel has no input '{name}'")
        };
        let before = self.names.halos.get(input).copied().unwrap_or_default().before;
        usize::try_from(self.first_row).map_or(before, |first_row| before.min(first_row))
    }

    /// Returns an output to write to. `bool` is `u8`, 0 or 1.
    ///
    /// # Panics
    /// See the type.
    pub fn output<T: Element>(&mut self, name: &str) -> &'r mut [T] {
        let place = place::<T>("output", &self.names.outputs, name);
        let Some(bytes) = self.outputs[place].take() else { panic!("the output '{name}' was asked for twice") };
        bytemuck::cast_slice_mut(bytes)
    }

    /// Returns an array that is the same for all rows.
    ///
    /// # Panics
    /// See the type.
    pub fn resident<T: Element>(&self, name: &str) -> &'r [T] {
        bytemuck::cast_slice(self.uniform.resident[place::<T>("resident array", &self.names.resident, name)])
    }

    /// Returns a value.
    ///
    /// # Panics
    /// See the type.
    pub fn value<T: Element>(&self, name: &str) -> T {
        let place = self.names.values.iter().position(|(other, dtype)| other == name && *dtype == T::DTYPE);
        let Some(place) = place else { panic!("the kernel has no value '{name}' of {}", T::DTYPE) };
        bytemuck::pod_read_unaligned(&self.uniform.values[place].to_ne_bytes()[..size_of::<T>()])
    }

    /// Returns the number of selected rows of each tile, to write to, for a kernel with the parameter `num_selected`.
    /// The selected rows are at the start of their tile.
    ///
    /// # Panics
    /// See the type.
    pub fn num_selected(&mut self) -> &'r mut [u64] {
        let Some(kept) = self.kept.take() else {
            panic!("the kernel has no 'num_selected', or it was asked for twice")
        };
        kept
    }
}

fn place<T: Element>(what: &str, columns: &[(String, Kind)], name: &str) -> usize {
    let found = columns.iter().position(|(other, kind)| {
        let Kind::Pointer { dtype, .. } = kind else { return false };
        other == name && (*dtype == T::DTYPE || (*dtype, T::DTYPE) == (Dtype::Bool, Dtype::U8))
    });
    match found {
        Some(place) => place,
        None => panic!("the kernel has no {what} '{name}' of {}", T::DTYPE),
    }
}

/// The host kernel of a custom kernel: calls its host function.
pub(super) struct CustomHostKernel {
    pub(super) function: HostFunction,
    pub(super) names: Arc<Names>,
}

impl HostKernel for CustomHostKernel {
    fn run(
        &mut self,
        first_row: u64,
        rows: usize,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        partials: &mut [u8],
        uniform: &Uniform<'_>,
    ) {
        let outputs = outputs.iter_mut().map(|bytes| Some(&mut **bytes)).collect();
        let kept = if partials.is_empty() { None } else { Some(bytemuck::cast_slice_mut(partials)) };
        let names = &self.names;
        (self.function)(&mut HostRows { names, first_row, rows, inputs, outputs, kept, uniform });
    }
}
