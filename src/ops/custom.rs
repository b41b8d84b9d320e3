//! The operator of a custom kernel.

use std::sync::Arc;

use super::Operator;
use crate::device::kernel::{Kernel, SharedKernel};

pub(crate) struct CustomOp(SharedKernel);

impl CustomOp {
    pub(crate) fn new(kernel: Kernel) -> Self {
        CustomOp(Arc::new(kernel))
    }
}

impl Operator for CustomOp {
    fn kernel(&self) -> &SharedKernel {
        &self.0
    }

    fn absorb(&self, _: u64, _: usize, _: &[u8]) {}

    fn compacts(&self) -> bool {
        self.0.columns.partial_words > 0
    }

    fn difference(&self, one: &[u64], other: &[u64], _: u64) -> Option<[String; 3]> {
        let texts = [one, other].map(|count| count.first().map_or_else(String::new, u64::to_string));
        let [one_text, other_text] = texts;
        (one != other).then(|| ["the number of selected rows".into(), one_text, other_text])
    }
}
