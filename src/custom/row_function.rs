//! Functions in safe Rust over the rows of a chunk.

use std::marker::PhantomData;
use std::sync::Arc;

use super::parameter::{Kind, Parameter};
use super::{CustomKernel, HostRows};
use crate::data::{Dtype, Element};
use crate::device::kernel::Halo;

/// Builds a kernel from a Rust closure over typed slices: no CUDA text, no C declarations, no `unsafe`.
///
/// Each [`input`](RowFunction::input) and [`output`](RowFunction::output) declares a column with its type, and
/// [`run`](RowFunction::run) takes the closure. The closure gets one slice per column, and all slices have the same
/// number of rows. One column is the slice itself; several columns are a tuple of slices, in the order of their
/// declaration. A type in the closure that differs from the declared one does not compile. Data of another dtype is
/// an error of the job.
///
/// Overshot calls the closure for parts of chunks, from several threads at the same time. The closure may capture
/// numbers and tables that are the same for all rows.
///
/// The kernel runs on the CPU and on emulated devices. It has no device code: a run on CUDA devices alone is an
/// error, and a run on the CPU and GPUs uses the CPU, with a note in the report. For GPUs, see
/// [`CustomKernel::cuda`].
///
/// ```
/// use overshot::kernel::RowFunction;
/// use overshot::{Engine, Job};
/// let collatz = RowFunction::new("collatz").input::<u64>("n").output::<u32>("steps").run(|n, steps| {
///     for (&n, steps) in n.iter().zip(steps) {
///         let next = |n: &u64| (*n > 1).then(|| if n % 2 == 0 { n / 2 } else { 3 * n + 1 });
///         *steps = std::iter::successors(Some(n), next).count() as u32 - 1;
///     }
/// });
/// let n: Vec<u64> = (1..=9).collect();
/// let mut steps = vec![0u32; 9];
/// let engine = Engine::builder().build()?;
/// engine.run(Job::kernel(&collatz).input("n", &n).output("steps", &mut steps))?;
/// assert_eq!(steps, [0, 1, 7, 2, 5, 8, 16, 3, 19]);
/// # Ok::<(), overshot::Error>(())
/// ```
///
/// Several columns, a captured number, and rows of two elements each:
///
/// ```
/// use overshot::kernel::RowFunction;
/// use overshot::{Engine, Job};
/// let scale = 2.0f32;
/// let polar = RowFunction::new("polar").input::<[f32; 2]>("points").output::<f32>("r").output::<f64>("angle").run(
///     move |points, (r, angle)| {
///         for ((&[x, y], r), angle) in points.iter().zip(r).zip(angle) {
///             (*r, *angle) = (scale * x.hypot(y), f64::from(y).atan2(f64::from(x)));
///         }
///     },
/// );
/// let (points, mut r, mut angle) = ([3.0f32, 4.0, -1.0, 0.0], [0.0f32; 2], [0.0; 2]);
/// let engine = Engine::builder().build()?;
/// engine.run(Job::kernel(&polar).input("points", &points).output("r", &mut r).output("angle", &mut angle))?;
/// assert_eq!(r, [10.0, 2.0]);
/// # Ok::<(), overshot::Error>(())
/// ```
///
/// With a [`halo`](RowFunction::halo), the slice of an input also has rows before and behind those of the outputs:
///
/// ```
/// use overshot::kernel::RowFunction;
/// use overshot::{Engine, Job};
/// let steps = RowFunction::new("steps").input::<i32>("x").halo("x", 1, 0).output::<i32>("y").run_indexed(
///     |first_row, x, y| {
///         // The first row of the job has none before it.
///         let front = first_row.min(1) as usize;
///         for (i, y) in y.iter_mut().enumerate() {
///             let row = front + i;
///             *y = x[row] - x[row.saturating_sub(1)];
///         }
///     },
/// );
/// let (x, mut y) = ([5, 7, 4], [0; 3]);
/// Engine::builder().build()?.run(Job::kernel(&steps).input("x", &x).output("y", &mut y))?;
/// assert_eq!(y, [0, 2, -3]);
/// # Ok::<(), overshot::Error>(())
/// ```
///
/// A closure with other types does not compile:
///
/// ```compile_fail,E0308
/// use overshot::kernel::RowFunction;
/// let _ = RowFunction::new("copy").input::<f64>("x").output::<f64>("y").run(|x, y| {
///     let x: &[f32] = x;
/// });
/// ```
#[must_use = "a row function does nothing before `run` gives it a closure"]
pub struct RowFunction<I = (), O = ()> {
    name: String,
    inputs: Vec<Parameter>,
    outputs: Vec<Parameter>,
    halos: Vec<(Option<String>, Halo)>,
    columns: PhantomData<fn(I, O)>,
}

impl RowFunction {
    /// Begins a row function without columns. Reports and messages call it `name`.
    pub fn new(name: &str) -> Self {
        RowFunction { name: name.into(), inputs: vec![], outputs: vec![], halos: vec![], columns: PhantomData }
    }
}

impl<I: RowColumns, O: RowColumns> RowFunction<I, O> {
    /// Adds an input: its name in the job, and the type of its rows.
    pub fn input<T: RowElement>(mut self, name: &str) -> RowFunction<I::And, O>
    where
        I: AddColumn<T>,
    {
        self.inputs.push(column::<T>(name, true));
        self.with_types()
    }

    /// Adds an output: its name in the job, and the type of its rows.
    pub fn output<T: RowElement>(mut self, name: &str) -> RowFunction<I, O::And>
    where
        O: AddColumn<T>,
    {
        self.outputs.push(column::<T>(name, false));
        self.with_types()
    }

    /// Declares how many rows of an input the closure reads before and behind its rows, at most 65 536 on each side.
    /// The slice of the input then begins with them, as far as the job has them: `before.min(first_row)` rows are
    /// before `first_row`, the number that [`run_indexed`](RowFunction::run_indexed) passes. The outputs say how many
    /// rows there are.
    pub fn halo(mut self, input: &str, before: usize, after: usize) -> Self {
        self.halos.push((Some(input.into()), Halo { before, after }));
        self
    }

    /// The kernel that runs `function`. The closure takes the inputs and the outputs. It must write every row of the
    /// outputs, which hold anything at first.
    ///
    /// If the closure panics, the run ends with [`Error::Panicked`](crate::Error::Panicked).
    pub fn run(self, function: impl for<'r> Fn(I::Inputs<'r>, O::Outputs<'r>) + Send + Sync + 'static) -> CustomKernel {
        self.run_indexed(move |_, inputs, outputs| function(inputs, outputs))
    }

    /// Sets the closure, as [`run`](RowFunction::run) does. Its first argument is the number of its first row among all
    /// rows of the job.
    pub fn run_indexed(
        self,
        function: impl for<'r> Fn(u64, I::Inputs<'r>, O::Outputs<'r>) + Send + Sync + 'static,
    ) -> CustomKernel {
        let RowFunction { name, inputs, outputs, halos, .. } = self;
        let names = |columns: &[Parameter]| columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>();
        let (reads, writes) = (names(&inputs), names(&outputs));
        let host = move |rows: &mut HostRows<'_>| {
            function(rows.first_row(), I::inputs(rows, &reads), O::outputs(rows, &writes));
        };
        CustomKernel::of_host(&name, [inputs, outputs].concat(), halos, Arc::new(host))
    }

    fn with_types<J, P>(self) -> RowFunction<J, P> {
        let RowFunction { name, inputs, outputs, halos, .. } = self;
        RowFunction { name, inputs, outputs, halos, columns: PhantomData }
    }
}

fn column<T: RowElement>(name: &str, is_const: bool) -> Parameter {
    let kind = Kind::Pointer { dtype: T::DTYPE, elements: T::ELEMENTS, is_const };
    Parameter { name: name.into(), kind }
}

impl<I, O> std::fmt::Debug for RowFunction<I, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut all = f.debug_struct("RowFunction");
        all.field("name", &self.name).field("inputs", &self.inputs).field("outputs", &self.outputs).finish()
    }
}

/// The type of a row in a [`RowFunction`]: an [`Element`] or an array `[T; N]` of `N` elements.
pub trait RowElement: sealed::Rows + Copy + Send + Sync + 'static {
    /// The dtype of the elements.
    const DTYPE: Dtype;
    /// Elements of a row.
    const ELEMENTS: usize;
}

impl<T: Element> RowElement for T {
    const DTYPE: Dtype = <T as Element>::DTYPE;
    const ELEMENTS: usize = 1;
}

impl<T: Element, const N: usize> RowElement for [T; N] {
    const DTYPE: Dtype = <T as Element>::DTYPE;
    const ELEMENTS: usize = {
        assert!(N > 0, "a row has at least one element");
        N
    };
}

/// The columns of one side of a [`RowFunction`]: a tuple with the types of their rows.
pub trait RowColumns: sealed::Columns + 'static {
    /// The inputs as the closure gets them: `()`, one slice, or a tuple of slices.
    type Inputs<'r>;
    /// The outputs as the closure gets them: `()`, one mutable slice, or a tuple of mutable slices.
    type Outputs<'r>;
    #[doc(hidden)]
    fn inputs<'r>(rows: &HostRows<'r>, names: &[String]) -> Self::Inputs<'r>;
    #[doc(hidden)]
    fn outputs<'r>(rows: &mut HostRows<'r>, names: &[String]) -> Self::Outputs<'r>;
}

/// Columns to which a column of type `T` can be added. There are up to eight inputs and eight outputs.
pub trait AddColumn<T>: RowColumns {
    /// The columns with the added one.
    type And: RowColumns;
}

mod sealed {
    use crate::custom::HostRows;
    use crate::data::Element;

    #[allow(unnameable_types, reason = "so that other crates do not implement it")]
    pub trait Rows: Sized {
        fn input<'r>(rows: &HostRows<'r>, name: &str) -> &'r [Self];
        fn output<'r>(rows: &mut HostRows<'r>, name: &str) -> &'r mut [Self];
    }

    impl<T: Element> Rows for T {
        fn input<'r>(rows: &HostRows<'r>, name: &str) -> &'r [T] {
            rows.input(name)
        }
        fn output<'r>(rows: &mut HostRows<'r>, name: &str) -> &'r mut [T] {
            rows.output(name)
        }
    }

    impl<T: Element, const N: usize> Rows for [T; N] {
        fn input<'r>(rows: &HostRows<'r>, name: &str) -> &'r [[T; N]] {
            rows.input::<T>(name).as_chunks().0
        }
        fn output<'r>(rows: &mut HostRows<'r>, name: &str) -> &'r mut [[T; N]] {
            rows.output::<T>(name).as_chunks_mut().0
        }
    }

    #[allow(unnameable_types, reason = "so that other crates do not implement it")]
    pub trait Columns {}
}

/// Expands to one type itself, or to a tuple of several types.
macro_rules! one_or_all {
    ($one:ty) => { $one };
    ($($t:ty),*) => { ($($t,)*) };
}

/// Expands to one value itself, or to a tuple of several values.
macro_rules! one_or_all_values {
    ($one:expr) => { $one };
    ($($value:expr),*) => { ($($value,)*) };
}

/// Implements [`RowColumns`] for a tuple type.
macro_rules! columns {
    ($($t:ident $k:tt),*) => {
        impl<$($t: RowElement),*> sealed::Columns for ($($t,)*) {}
        impl<$($t: RowElement),*> RowColumns for ($($t,)*) {
            type Inputs<'r> = one_or_all!($(&'r [$t]),*);
            type Outputs<'r> = one_or_all!($(&'r mut [$t]),*);
            fn inputs<'r>(_rows: &HostRows<'r>, _names: &[String]) -> Self::Inputs<'r> {
                one_or_all_values!($(<$t as sealed::Rows>::input(_rows, &_names[$k])),*)
            }
            fn outputs<'r>(_rows: &mut HostRows<'r>, _names: &[String]) -> Self::Outputs<'r> {
                one_or_all_values!($(<$t as sealed::Rows>::output(_rows, &_names[$k])),*)
            }
        }
    };
}

/// Implements [`AddColumn`] for a tuple type.
macro_rules! add_column {
    ($($t:ident),*) => {
        impl<$($t: RowElement,)* Z: RowElement> AddColumn<Z> for ($($t,)*) {
            type And = ($($t,)* Z,);
        }
    };
}

columns!();
columns!(A 0);
columns!(A 0, B 1);
columns!(A 0, B 1, C 2);
columns!(A 0, B 1, C 2, D 3);
columns!(A 0, B 1, C 2, D 3, E 4);
columns!(A 0, B 1, C 2, D 3, E 4, F 5);
columns!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
columns!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
add_column!();
add_column!(A);
add_column!(A, B);
add_column!(A, B, C);
add_column!(A, B, C, D);
add_column!(A, B, C, D, E);
add_column!(A, B, C, D, E, F);
add_column!(A, B, C, D, E, F, G);
