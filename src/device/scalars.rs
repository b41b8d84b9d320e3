//! The scalar arguments of a kernel, which may become known while the kernel's run is under way.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::sync::OnceLock;

/// The scalar arguments of a kernel: one value per parameter, the same for all rows. They may become known only after
/// the first chunks were copied. The thread that launches the kernel, or runs the host kernel, waits for them.
#[derive(Debug, Default)]
pub struct ScalarArgs(OnceLock<Option<Vec<u64>>>);

impl ScalarArgs {
    /// Creates known values: the bits of each value are the lowest bits of a word.
    pub fn new(bits: Vec<u64>) -> Arc<Self> {
        Arc::new(ScalarArgs(Some(bits).into()))
    }

    /// Creates values that are not known yet.
    pub fn late() -> Arc<Self> {
        Arc::default()
    }

    /// Sets the values. Does nothing if they are known or abandoned.
    pub fn set(&self, bits: Vec<u64>) {
        self.0.get_or_init(|| Some(bits));
    }

    /// Abandons the values, because the pass that would have set them has ended. Does nothing if they are known.
    pub fn abandon(&self) {
        self.0.get_or_init(|| None);
    }

    /// Returns whether the values are known.
    pub fn are_known(&self) -> bool {
        matches!(self.0.get(), Some(Some(_)))
    }

    /// Returns whether the values were abandoned.
    pub fn are_abandoned(&self) -> bool {
        matches!(self.0.get(), Some(None))
    }

    /// Waits for the values and returns them; `None` if they were abandoned.
    pub fn wait(&self) -> Option<&[u64]> {
        self.0.wait().as_deref()
    }

    /// Returns the values. The caller must have waited for them.
    ///
    /// # Errors
    /// [`Error::abandoned`] if they were abandoned, [`Error::Internal`] if they are not known.
    pub fn known(&self) -> Result<&[u64]> {
        match self.0.get() {
            Some(Some(bits)) => Ok(bits),
            Some(None) => Err(Error::abandoned()),
            None => Err(Error::Internal("a kernel was launched before its values were known".into())),
        }
    }
}

/// Scalar arguments that a thread sets later, which are abandoned when this value is dropped: no thread waits for
/// values that never come.
#[derive(Debug)]
pub(crate) struct LateScalars(Arc<ScalarArgs>);

impl LateScalars {
    /// Takes over the setting of these values.
    pub(crate) fn new(values: Arc<ScalarArgs>) -> Self {
        LateScalars(values)
    }

    /// Sets the values. Does nothing if they are known or abandoned.
    pub(crate) fn set(&self, bits: Vec<u64>) {
        self.0.set(bits);
    }
}

impl Drop for LateScalars {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_once() {
        let values = ScalarArgs::late();
        assert!(!values.are_known());
        assert!(
            matches!(values.known(), Err(Error::Internal(problem)) if problem.contains("before its values were known"))
        );
        values.set(vec![1, 2]);
        values.set(vec![3]);
        values.abandon();
        assert!(values.are_known());
        assert_eq!((values.wait(), values.known().unwrap()), (Some(&[1, 2][..]), &[1, 2][..]));
        assert_eq!(ScalarArgs::new(vec![4]).wait(), Some(&[4][..]));
    }

    #[test]
    fn values_that_were_given_up_never_come() {
        let values = ScalarArgs::late();
        values.abandon();
        values.set(vec![1]);
        assert!(!values.are_known());
        assert_eq!(values.wait(), None);
        assert!(values.known().is_err_and(|error| error.is_abandoned()));
    }

    #[test]
    fn whoever_waits_gets_the_values_of_another_thread() {
        let values = ScalarArgs::late();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| values.wait().map(<[u64]>::to_vec));
            values.set(vec![7]);
            assert_eq!(waits.join().unwrap(), Some(vec![7]));
        });
    }
}
