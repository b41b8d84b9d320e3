//! The command `overshot`.
fn main() {}
