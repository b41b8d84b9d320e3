//! Panics in code of the caller: sources, sinks, functions of kernels, progress functions. They are errors of the job
//! that called it, so that other jobs, and the process, go on.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, Result};

/// The name of the caller's progress function.
pub(crate) const PROGRESS: &str = "the progress function";

/// A panic in code of the caller.
#[derive(Clone, Debug)]
pub(crate) struct Panic {
    whose: String,
    message: String,
}

impl From<Panic> for Error {
    fn from(Panic { whose, message }: Panic) -> Error {
        Error::Panicked { whose, message }
    }
}

/// Calls code of the caller. `whose` names it. After a panic, nothing that it was working on may be used.
pub(crate) fn catch<T>(whose: impl FnOnce() -> String, call: impl FnOnce() -> T) -> Result<T, Panic> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        // A name may be code of the caller, too.
        let whose = catch_unwind(AssertUnwindSafe(whose)).map_err(text_of).unwrap_or_else(|_| "code of the job".into());
        Panic { whose, message: text_of(panic) }
    })
}

/// The same for code that returns a result.
///
/// # Errors
/// Those of `call`, and [`Error::Panicked`].
pub(crate) fn caught<T>(whose: impl FnOnce() -> String, call: impl FnOnce() -> Result<T>) -> Result<T> {
    catch(whose, call)?
}

/// Runs a job, of which any part may call code of the caller.
///
/// # Errors
/// Those of `run`, and [`Error::Panicked`].
pub(crate) fn caught_in_job<T>(run: impl FnOnce() -> Result<T>) -> Result<T> {
    caught(|| "code of the job or of Overshot".into(), run)
}

/// Returns the message of a panic, on one line.
fn text_of(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    match text {
        Some(text) => text.lines().map(str::trim).collect::<Vec<_>>().join("; "),
        None => {
            // The destructor of such a value is code of the caller, and could panic again.
            mem::forget(panic);
            "no message".into()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;

    use super::*;

    fn said(name: fn() -> String, call: fn()) -> String {
        Error::from(catch(name, call).unwrap_err()).to_string()
    }

    #[test]
    fn a_panic_is_an_error_with_its_name_and_its_message_on_one_line() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("again");
            }
        }
        let rest = "; correct it, or report it if it is not code of yours";
        let it = || "it".to_owned();
        assert_eq!(said(it, || panic!("boom")), format!("it panicked: boom{rest}"));
        assert_eq!(said(it, || panic!("line\n  and {}", 2)), format!("it panicked: line; and 2{rest}"));
        assert_eq!(said(it, || panic_any(Bomb)), format!("it panicked: no message{rest}"));
        assert_eq!(said(|| panic!("no name"), || panic!("boom")), format!("code of the job panicked: boom{rest}"));
    }

    #[test]
    fn what_does_not_panic_is_returned() {
        assert_eq!(catch(|| "it".into(), || 1).unwrap(), 1);
        assert!(caught_in_job(|| Err::<(), _>(Error::abandoned())).unwrap_err().is_abandoned());
        let error = caught_in_job(|| -> Result<()> { panic!("boom") }).unwrap_err();
        assert!(
            matches!(&error, Error::Panicked { whose, message } if whose.contains("Overshot") && message == "boom")
        );
    }
}
