//! The expression language: `y = where(x > 0, sqrt(x), 0); m = mean(x)`.
//!
//! ```text
//! text ── lex, parse ──▶ terms ── bind (dtypes) ──▶ program ── lower ──┬── host kernel ──▶ loops on the host
//!                          │ ▲                                         └── cuda ──▶ CUDA C++
//!                        passes: the terms of each pass over the rows
//! ```
//! Statements are separated by line ends, `;` or `,`. `NAME = VALUE` computes a value for every row. A reduction,
//! named or unnamed, computes one value from all rows. What depends on such a value is computed in another pass, or,
//! if it depends on no row, from the values alone. `x[condition]` is a filter, which keeps rows. Operators from the
//! highest precedence to the lowest: filters, `**`, prefix `+ - ~`, `* / // %`, `+ -`, `<< >>`, `&`, `^`, `|`, and
//! comparisons, which do not chain. Names that are only read are columns or scalars, which have dtypes as columns do.
//! If a job has neither, the name may be a constant, such as `pi`; this is decided when the inputs are known. All words
//! are in `words.rs`; messages about unknown words are in `hints.rs`.
//!
//! Files use only files to their left in this list: `words`, `bins`, `axes`, `view` and `ir`; `lex`, `names`, `parse`
//! and `border`, `scan`, `passes`, `typing`, `exact`, `tally`, `rank`, `filter`, `neighbours` and `product`, `bind`;
//! `program`; `search` and `needs`; `sweeps`, `within`, `gather`, `kept`, `host` and `cuda`; `lower`. Only the parser
//! recurses, with a depth limit.
//!
//! Results and dtypes are those of NumPy 2, which `tests/numpy` checks. Where NumPy's result depends on the
//! processor, it is defined here and is the same on every device:
//! - a float outside the range of an integer dtype converts to the nearest integer of that dtype, and NaN to 0;
//! - an integer array to a negative power is the reciprocal rounded toward zero, and 0 for 0;
//! - every stored NaN has the same bits.
//!
//! There is no `f16`: where NumPy computes in `f16`, Overshot uses `f32`.

mod apply;
mod axes;
mod bind;
mod bins;
mod border;
mod cuda;
mod dispatch;
mod exact;
mod expression;
mod fault;
mod filter;
mod fold;
mod functions;
mod gather;
mod header;
mod hints;
mod host;
mod ir;
mod kept;
mod layered;
mod layers;
mod lex;
mod lower;
mod names;
mod needs;
mod neighbours;
mod number;
mod of_rows;
mod parse;
mod passes;
mod product;
mod program;
mod random;
mod rank;
mod reduce;
mod results;
#[cfg(any(test, feature = "testing"))]
mod samples;
mod scalar;
mod scan;
mod search;
mod shape;
mod sweeps;
mod tally;
#[cfg(test)]
mod tests;
mod tiling;
mod typing;
mod view;
mod windows;
mod within;
mod words;

pub use expression::Expression;
pub use fault::{Location, locate};
pub use number::{NotANumber, Number};
pub use words::{FunctionInfo, FunctionKind, functions};

pub(crate) use axes::Axes;
pub(crate) use expression::{Layer, Layers};
pub(crate) use hints::unbound;
pub(crate) use layered::{BoundLayer, BoundLayers, BoundMatrix, BoundProduct};
pub(crate) use layers::{Multiplicand, Multiplied};
pub(crate) use needs::{Dependence, Needs, Outcome};
pub(crate) use product::float_of;
pub(crate) use program::Program;
pub(crate) use rank::is_bound;
pub(crate) use reduce::Reduction;
pub(crate) use results::{Results, results};
#[cfg(any(test, feature = "testing"))]
pub(crate) use samples::{rebuild, samples};
pub(crate) use scan::RunningSum;
pub(crate) use search::{Counted, Search};
pub(crate) use shape::{Extent, RowShape};
