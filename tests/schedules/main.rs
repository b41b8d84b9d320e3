//! Runs the synchronization of the pipeline and of memory under thousands of thread schedules, and checks that no
//! schedule deadlocks or breaks a rule.
//!
//! The files are those of the library, compiled here a second time with the locks of shuttle. These let one thread run
//! at a time and choose it at random, or by priorities that change a few times (PCT). Workers are modelled after
//! `CpuWorker::step` and `StagingWorker::step`. `sync` stands in for the library's locks and channels.
#![allow(clippy::unwrap_used, reason = "in tests")]

mod sync;

#[allow(dead_code, unused_imports, reason = "not all of it is modelled")]
#[path = "../../src/error/mod.rs"]
mod error;

mod device {
    pub mod kernel {
        pub use crate::scalars::ScalarArgs;
    }
}

#[allow(dead_code, unused_imports, reason = "not all of it is modelled")]
#[path = "../../src/memory/admission.rs"]
mod admission;
#[allow(dead_code, unused_imports, reason = "not all of it is modelled")]
#[path = "../../src/pipeline/arbiter.rs"]
mod arbiter;
#[allow(dead_code, unused_imports, reason = "not all of it is modelled")]
#[path = "../../src/memory/budget.rs"]
mod budget;
#[allow(dead_code, unused_imports, reason = "its tests are run elsewhere")]
#[path = "../../src/pipeline/crew.rs"]
mod crew;
#[allow(dead_code, unused_imports, reason = "not all of it is modelled")]
#[path = "../../src/data/gate.rs"]
mod gate;
#[allow(dead_code, unused_imports, reason = "not all of it is modelled")]
#[path = "../../src/pipeline/handover.rs"]
mod handover;
#[allow(dead_code, unused_imports, reason = "not all of it is modelled")]
#[path = "../../src/pipeline/linearizer.rs"]
mod linearizer;
#[allow(dead_code, unused_imports, reason = "its tests are run elsewhere")]
#[path = "../../src/pipeline/policy.rs"]
mod policy;
#[cfg(test)]
#[allow(dead_code, reason = "the tests that use it are run elsewhere")]
#[path = "../../src/pipeline/tests/random.rs"]
mod random;
#[allow(dead_code, unused_imports, reason = "not all of it is modelled")]
#[path = "../../src/device/scalars.rs"]
mod scalars;
#[allow(dead_code, unused_imports, reason = "not all of it is modelled")]
#[path = "../../src/thread_pool.rs"]
mod thread_pool;
#[allow(dead_code, unused_imports, reason = "not all of it is modelled")]
#[path = "../../src/threads.rs"]
mod threads;
#[allow(dead_code, reason = "its tests are run elsewhere")]
#[path = "../../src/pipeline/trials.rs"]
mod trials;
#[path = "../watchdog/mod.rs"]
mod watchdog;

mod admission_model;
mod handover_model;
mod scalars_model;
mod thread_pool_model;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;

use arbiter::{Admission, Arbiter, Finished};
use budget::MemoryBudget;
use crew::CrewSize;
use linearizer::Linearizer;
use policy::Limits;

/// The number of schedules of each kind for each model.
const SCHEDULES: usize = 300;

fn main() {
    let trial = |name: &'static str, case: fn()| {
        Trial::test(name, move || {
            watchdog::watched(name, case);
            Ok::<(), Failed>(())
        })
    };
    let trials = vec![
        trial("workers that arbiter the cores", || shared(false, None)),
        trial("workers that arbiter the cores and keep rows in order", || shared(true, None)),
        trial("a worker that computes fails", || shared(true, Some(0))),
        trial("a worker that stages fails", || shared(true, Some(1))),
        trial("a gate lets its width through", gated),
        trial("late scalars reach the threads of their pass", scalars_model::passes),
        trial("scalars are set or abandoned, not both", scalars_model::races),
        trial("items of a call wait for each other", thread_pool_model::ring),
        trial("concurrent calls have threads of their own", thread_pool_model::two_rings),
        trial("a call ends before its threads wake", thread_pool_model::late),
        trial("chunks come back in the order sent", handover_model::known_values),
        trial("late values keep the order of chunks", handover_model::late_values),
        trial("chunks wait for those of earlier panels", handover_model::panels),
        trial("a worker fails that others wait for", handover_model::failing_panels),
        trial("chunks have several fills", handover_model::fills),
        trial("abandoned values end the hand-over", handover_model::abandoned_values),
        trial("a worker fails during the hand-over", handover_model::failing_worker),
        trial("a submitter fails during the hand-over", handover_model::failing_submitter),
        trial("a hand-over on one thread", handover_model::on_one_thread),
        trial("admitted runs stay within the limits", admission_model::limits),
        trial("runs are admitted in the order of their arrival", admission_model::order),
        trial("a run that needs less memory admits the next", admission_model::less),
        trial("a nested run does not wait", admission_model::nested),
        trial("a cancelled run leaves the queue", admission_model::cancelled),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Checks a model under schedules of both kinds.
fn check(model: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(model.clone(), SCHEDULES);
    shuttle::check_pct(model, SCHEDULES, 3);
}

/// A run: workers of the CPU and of a device claim chunks from one queue.
struct Run {
    arbiter: Arbiter,
    linearizer: Option<Linearizer>,
    next: AtomicU64,
    chunks: u64,
    /// Which kind of worker fails, at the second chunk or later: 0 computes, 1 stages.
    fails: Option<u8>,
    stopped: AtomicBool,
    /// Whether a worker found the queue empty.
    over: AtomicBool,
    computing: AtomicUsize,
    /// The time that has passed, which every finished chunk advances.
    clock: AtomicU64,
    /// Each finished chunk, and its place if the kernel compacts.
    done: Mutex<BTreeMap<u64, u64>>,
}

/// The time of a chunk on a core that computes, and on a core that stages.
type Costs = (Duration, Duration);

const CORES: usize = 2;

impl Run {
    fn claim(&self) -> Option<u64> {
        let chunk = (!self.stopped.load(Ordering::SeqCst)).then(|| self.next.fetch_add(1, Ordering::SeqCst))?;
        (chunk < self.chunks).then_some(chunk)
    }

    fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.arbiter.end(Duration::ZERO);
    }

    /// Does what `Work::stop` does.
    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.end();
        if let Some(linearizer) = &self.linearizer {
            linearizer.stop();
        }
    }

    /// Writes a chunk to its place; false once the run was stopped.
    fn write(&self, chunk: u64) -> bool {
        let place = match &self.linearizer {
            Some(linearizer) => match linearizer.place(chunk) {
                Some(place) => place,
                None => return false,
            },
            None => 0,
        };
        assert!(self.done.lock().unwrap().insert(chunk, place).is_none(), "chunk {chunk} twice");
        true
    }

    fn count(&self, chunk: u64) {
        if let Some(linearizer) = &self.linearizer {
            linearizer.count(chunk, chunk + 1);
        }
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.clock.load(Ordering::SeqCst))
    }

    /// Lets this time pass, and returns the time after it.
    fn pass(&self, time: Duration) -> Duration {
        let time = time.as_millis() as u64;
        Duration::from_millis(self.clock.fetch_add(time, Ordering::SeqCst) + time)
    }

    /// Does what `CpuWorker::step` does, until there are no chunks left. The worker holds two chunks at most.
    fn computes(&self, (cost, _): Costs) {
        let (mut finished, mut held, mut is_over) = (None, VecDeque::new(), false);
        loop {
            if held.front().is_some_and(|chunk| is_over || held.len() == 2 || self.is_known(*chunk)) {
                if !held.pop_front().is_none_or(|chunk| self.write(chunk)) {
                    return self.stop();
                }
                continue;
            }
            if is_over {
                return;
            }
            let begun = self.arbiter.start_computing(finished, || self.now()).expect("no worker takes turns");
            let computing = self.computing.fetch_add(1, Ordering::SeqCst) + 1;
            assert!(computing <= CORES || self.over.load(Ordering::SeqCst), "{computing} workers compute");
            let chunk = self.claim();
            let fails = chunk.is_some_and(|chunk| chunk > 0 && self.fails == Some(0));
            if let Some(chunk) = chunk.filter(|_| !fails) {
                self.count(chunk);
            }
            self.computing.fetch_sub(1, Ordering::SeqCst);
            let now = self.pass(cost);
            match chunk {
                None => {
                    self.over.store(true, Ordering::SeqCst);
                    self.arbiter.stop_computing(now);
                    is_over = true;
                }
                Some(_) if fails => return self.stop(),
                Some(chunk) => {
                    held.push_back(chunk);
                    finished = Some(Finished { rows: 1000, busy: cost, begun, now });
                }
            }
        }
    }

    /// Does what `StagingWorker::step` does, until there are no chunks left, on a device that returns each chunk at
    /// once. The worker has two slots.
    fn stages(&self, (_, cost): Costs) {
        let mut stages = false;
        let (mut in_flight, mut held) = (VecDeque::new(), VecDeque::new());
        loop {
            if held.front().is_some_and(|chunk| self.is_known(*chunk)) {
                if !self.drains(&mut held, cost) {
                    return self.stop();
                }
                continue;
            }
            let has_slot = in_flight.len() + held.len() < 2;
            let has_chunks = !in_flight.is_empty() || !held.is_empty();
            let may_stage = has_slot && {
                let admission = self.arbiter.try_admit(0, &mut stages, has_chunks);
                matches!(admission, Admission::Granted { .. })
            };
            let stands_aside = has_slot && !may_stage && !has_chunks;
            assert!(
                !stands_aside || self.over.load(Ordering::SeqCst),
                "a worker that stands aside woke before the end"
            );
            match if may_stage { self.claim() } else { None } {
                Some(chunk) if chunk > 0 && self.fails == Some(1) => return self.stop(),
                Some(chunk) => {
                    in_flight.push_back(chunk);
                }
                None => match in_flight.pop_front() {
                    Some(chunk) => {
                        self.count(chunk);
                        held.push_back(chunk);
                    }
                    None if held.is_empty() => return self.end(),
                    None if !self.drains(&mut held, cost) => return self.stop(),
                    None => {}
                },
            }
        }
    }

    /// Drains the oldest of these chunks; false once the run was stopped.
    fn drains(&self, held: &mut VecDeque<u64>, cost: Duration) -> bool {
        let Some(chunk) = held.pop_front() else { return true };
        if !self.write(chunk) {
            return false;
        }
        let end = self.pass(cost);
        self.arbiter.end_staging(1000, cost, end);
        true
    }

    /// Returns whether the place of a chunk is known. It always is without compaction.
    fn is_known(&self, chunk: u64) -> bool {
        self.linearizer.as_ref().is_none_or(|linearizer| linearizer.is_known(chunk))
    }
}

fn shared(keeps: bool, fails: Option<u8>) {
    let (fast, slow) = (Duration::from_millis(1), Duration::from_millis(10));
    // With known limits, some workers wait from the beginning. Without, the limits change after the probe.
    for (chunks, known) in [(0, None), (3, None), (24, Some((1, 1))), (24, Some((0, 1))), (80, None)] {
        let known = known.map(|(compute, stage)| Limits::of(compute, stage));
        for costs in [(fast, slow), (slow, fast)] {
            for (computing, staging) in [(3, 2), (2, 1), (1, 3), (0, 3)] {
                check(move || {
                    let size = CrewSize { gpus: 1, first: staging - 1, most: staging, halvings: 1 };
                    let arbiter = match computing {
                        0 => Arbiter::crew(size, 1000 * chunks, false, None),
                        _ => Arbiter::sharing((CORES, staging, 1), 1000 * chunks, false, known, None),
                    };
                    let run = Arc::new(Run {
                        arbiter,
                        linearizer: keeps.then(Linearizer::default),
                        next: AtomicU64::new(0),
                        chunks,
                        fails,
                        stopped: AtomicBool::new(false),
                        over: AtomicBool::new(false),
                        computing: AtomicUsize::new(0),
                        clock: AtomicU64::new(0),
                        done: Mutex::new(BTreeMap::new()),
                    });
                    let spawn = |k: usize| {
                        let run = run.clone();
                        thread::spawn(move || if k < computing { run.computes(costs) } else { run.stages(costs) })
                    };
                    let threads: Vec<_> = (0..computing + staging).map(spawn).collect();
                    threads.into_iter().for_each(|thread| thread.join().unwrap());
                    let done = run.done.lock().unwrap();
                    assert!(fails.is_some() || done.len() as u64 == chunks, "{} of {chunks} chunks", done.len());
                    // Chunk k keeps k + 1 rows.
                    assert!(
                        done.iter().all(|(chunk, place)| *place == if keeps { chunk * (chunk + 1) / 2 } else { 0 })
                    );
                });
            }
        }
    }
}

fn gated() {
    check(|| {
        let (gate, inside) = (Arc::new(gate::Gate::new(2)), Arc::new(AtomicUsize::new(0)));
        let enter = |_| {
            let (gate, inside) = (gate.clone(), inside.clone());
            thread::spawn(move || {
                for _ in 0..3 {
                    let _pass = gate.enter();
                    assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            })
        };
        let threads: Vec<_> = (0..4).map(enter).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
