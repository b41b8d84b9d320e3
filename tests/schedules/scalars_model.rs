//! Models of threads that use late scalars.

use shuttle::sync::{Arc, Mutex};
use shuttle::thread::{self, JoinHandle};

use crate::check;
use crate::scalars::{LateScalars, ScalarArgs};

/// The threads of a pass: two that wait for the values, as CPU workers do, and one that asks for them, as the
/// submitter does. Returns the values that each one got.
fn spawn_pass(values: &Arc<ScalarArgs>) -> Vec<JoinHandle<Option<Vec<u64>>>> {
    let waits = |_| {
        let values = values.clone();
        thread::spawn(move || values.wait().map(<[u64]>::to_vec))
    };
    let mut threads: Vec<_> = (0..2).map(waits).collect();
    let values = values.clone();
    threads.push(thread::spawn(move || {
        loop {
            if values.are_known() {
                assert!(!values.are_abandoned(), "known values were abandoned");
                return Some(values.known().unwrap().to_vec());
            }
            if values.are_abandoned() {
                assert!(!values.are_known(), "abandoned values became known");
                assert!(values.known().is_err_and(|error| error.is_abandoned()));
                return None;
            }
            thread::yield_now();
        }
    }));
    threads
}

/// Three passes, of which the last is never run. Does what `Passes::run` does: the next pass begins while one runs.
pub fn passes() {
    check(|| {
        let begin = || {
            let values = ScalarArgs::late();
            (spawn_pass(&values), LateScalars::new(values))
        };
        let mut next = begin();
        for pass in 1..=2 {
            let (threads, values) = std::mem::replace(&mut next, begin());
            values.set(vec![pass, 10 * pass]);
            for thread in threads {
                assert_eq!(thread.join().unwrap(), Some(vec![pass, 10 * pass]), "pass {pass}");
            }
        }
        let (threads, values) = next;
        drop(values);
        assert!(threads.into_iter().all(|thread| thread.join().unwrap().is_none()));
    });
}

/// Values are set twice, and abandoned at the same time, as when the pass fails. All threads see the same outcome.
pub fn races() {
    check(|| {
        let values = ScalarArgs::late();
        let threads = spawn_pass(&values);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let changes: [fn(&ScalarArgs); 3] =
            [|values| values.set(vec![1]), |values| values.set(vec![2]), |values| values.abandon()];
        let changes = changes.map(|change| {
            let (values, seen) = (values.clone(), seen.clone());
            thread::spawn(move || {
                change(&values);
                // Whoever changed the values sees an outcome at once, and later calls do not change it.
                seen.lock().unwrap().push(values.wait().map(<[u64]>::to_vec));
            })
        });
        changes.into_iter().for_each(|change| change.join().unwrap());
        let mut outcomes = seen.lock().unwrap().clone();
        outcomes.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
        assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "{outcomes:?}");
        assert!(matches!(outcomes[0].as_deref(), None | Some([1] | [2])));
    });
}
