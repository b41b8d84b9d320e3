//! Tests of the expression language.

mod twin;
