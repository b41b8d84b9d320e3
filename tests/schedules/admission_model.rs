//! Models of concurrent runs of an engine, which wait for memory.

use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::thread;

use crate::admission::{Admission, AdmissionQueue, Admitted, Need};
use crate::budget::MemoryBudget;
use crate::check;
use crate::error::{Error, Result};
use crate::sync::with_timeouts;

/// An engine with 100 bytes of device memory and 10 bytes of pinned memory.
#[derive(Clone)]
struct Engine {
    queue: Arc<AdmissionQueue>,
    device: Arc<MemoryBudget>,
    pinned: Arc<MemoryBudget>,
}

const LIMITS: (u64, u64) = (100, 10);

impl Engine {
    fn new() -> Self {
        Engine {
            queue: Arc::default(),
            device: MemoryBudget::of_engine("device memory", LIMITS.0, None),
            pinned: MemoryBudget::of_engine("pinned memory", LIMITS.1, None),
        }
    }

    fn needs(&self, device: u64, pinned: u64) -> Vec<Need> {
        vec![(self.device.clone(), device), (self.pinned.clone(), pinned)]
    }

    fn admit(&self, needs: (u64, u64), admission: Admission) -> Admitted {
        self.queue.admit(self.needs(needs.0, needs.1), admission, || None).unwrap()
    }

    fn assert_limits(&self) {
        let reserved = (self.device.reserved(), self.pinned.reserved());
        assert!(reserved.0 <= LIMITS.0 && reserved.1 <= LIMITS.1, "{reserved:?}");
    }

    /// Nothing is reserved any more, and no run waits: a run that needs everything is admitted at once.
    fn assert_free(&self) {
        assert_eq!((self.device.reserved(), self.pinned.reserved()), (0, 0));
        let all = self.queue.admit(self.needs(LIMITS.0, LIMITS.1), Admission::default(), || panic!("the run waits"));
        drop(all);
    }
}

/// Runs of different sizes at once. Each does what `Engine::ready` does: some continue with less memory, some give
/// their memory back and wait until they are alone. A run takes cached memory beside its own if there is enough.
pub fn limits() {
    const RUNS: [(u64, u64); 5] = [(60, 3), (30, 8), (100, 1), (10, 2), (45, 5)];
    check(|| {
        let engine = Engine::new();
        let run = |(k, needs): (usize, (u64, u64))| {
            let engine = engine.clone();
            thread::spawn(move || {
                let mut admitted = engine.admit(needs, Admission::default());
                engine.assert_limits();
                match k {
                    0 => admitted.change(engine.needs(20, 3)),
                    1 if admitted.has_others() => {
                        let place = Some(admitted.place);
                        drop(admitted);
                        admitted = engine.admit(needs, Admission { alone: true, place, ..Admission::default() });
                    }
                    _ => {
                        let more = engine.device.reserve_more(40);
                        engine.assert_limits();
                        drop(more);
                    }
                }
                engine.assert_limits();
                drop(admitted);
            })
        };
        let threads: Vec<_> = RUNS.into_iter().enumerate().map(run).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        engine.assert_free();
    });
}

/// A run on a thread. Returns once the run waits.
fn waiting(engine: &Engine, device: u64, admitted: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    let waits = Arc::new(AtomicBool::new(false));
    let (engine, is_waiting) = (engine.clone(), waits.clone());
    let thread = thread::spawn(move || {
        let waits = || {
            is_waiting.store(true, Ordering::SeqCst);
            None
        };
        let reserved = engine.queue.admit(engine.needs(device, 0), Admission::default(), waits).unwrap();
        engine.assert_limits();
        admitted();
        drop(reserved);
    });
    until(&waits);
    thread
}

fn until(flag: &AtomicBool) {
    while !flag.load(Ordering::SeqCst) {
        thread::yield_now();
    }
}

/// The second run needs all memory. The third one would fit beside the first, and the fourth beside both, but they
/// are behind the second. The third one does not end before the fourth was admitted beside it.
pub fn order() {
    check(|| {
        let engine = Engine::new();
        let first = engine.admit((50, 0), Admission::default());
        let was_second = Arc::new(AtomicBool::new(false));
        let second = was_second.clone();
        let mut threads = vec![waiting(&engine, 100, move || second.store(true, Ordering::SeqCst))];
        let was_fourth = Arc::new(AtomicBool::new(false));
        for (number, bytes) in [(3, 30), (4, 20)] {
            let (was_second, was_fourth) = (was_second.clone(), was_fourth.clone());
            threads.push(waiting(&engine, bytes, move || {
                assert!(was_second.load(Ordering::SeqCst), "a run overtakes the one that waits before it");
                match number {
                    3 => until(&was_fourth),
                    _ => was_fourth.store(true, Ordering::SeqCst),
                }
            }));
        }
        drop(first);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        engine.assert_free();
    });
}

/// A run continues with less memory, and does not end before the next one was admitted beside it.
pub fn less() {
    check(|| {
        let engine = Engine::new();
        let mut first = engine.admit((80, 5), Admission::default());
        let next = waiting(&engine, 50, || {});
        first.change(engine.needs(40, 5));
        next.join().unwrap();
        drop(first);
        engine.assert_free();
    });
}

/// A run begins another one, while a third waits for memory.
pub fn nested() {
    check(|| {
        let engine = Engine::new();
        let outer = engine.admit((80, 5), Admission::default());
        let third = waiting(&engine, 100, || {});
        let admission = Admission { nested: true, ..Admission::default() };
        let nested = engine.queue.admit(engine.needs(80, 5), admission, || panic!("a nested run waits"));
        assert_eq!((engine.device.reserved(), engine.pinned.reserved()), (160, 10));
        drop(nested);
        drop(outer);
        third.join().unwrap();
        engine.assert_free();
    });
}

/// A run is cancelled while it waits, with another one behind it that fits beside the first. The first run goes on
/// until that one was admitted.
pub fn cancelled() {
    check(|| with_timeouts(|| cancel(false)));
    // Without time-outs, the cancelled run wakes because a short run ends, and must wake the one behind it.
    check(|| cancel(true));
}

fn cancel(has_short_run: bool) {
    let engine = Engine::new();
    let first = engine.admit((50, 0), Admission::default());
    let short = has_short_run.then(|| engine.admit((5, 0), Admission::default()));
    let (is_cancelled, waits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let waiter = {
        let (engine, is_cancelled, waits) = (engine.clone(), is_cancelled.clone(), waits.clone());
        thread::spawn(move || -> Result<()> {
            let given_up = || {
                waits.store(true, Ordering::SeqCst);
                is_cancelled.load(Ordering::SeqCst).then(Error::abandoned)
            };
            engine.queue.admit(engine.needs(100, 0), Admission::default(), given_up).map(drop)
        })
    };
    until(&waits);
    let behind = waiting(&engine, 10, || {});
    is_cancelled.store(true, Ordering::SeqCst);
    drop(short);
    assert!(waiter.join().unwrap().is_err_and(|error| error.is_abandoned()));
    behind.join().unwrap();
    drop(first);
    engine.assert_free();
}
