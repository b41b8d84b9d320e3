//! Ctrl-C: the first stops the job in good order, the second at once.

use std::process;

use overshot::CancelToken;

/// What a shell reports for a process that Ctrl-C ended.
const ABORTED: i32 = 130;

/// A token that Ctrl-C cancels.
pub fn token() -> CancelToken {
    let token = CancelToken::new();
    let stop = token.clone();
    // Where Ctrl-C is ignored, as for a background job of a script, it stays ignored: that is what the `try` is for.
    let _ = ctrlc::try_set_handler(move || {
        if stop.is_cancelled() {
            process::exit(ABORTED);
        }
        stop.cancel();
    });
    token
}
