//! What the fuzz targets share: expressions written from a grammar, and columns of values.

mod column;
mod grammar;

pub use column::{Column, bits, rows, run};
pub use grammar::{Grammar, Statement, Tree};
