//! The threads of an engine: no call waits for ever, and none returns before its work has ended.

use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;

use super::check;
use super::sync::{Receiver, Sender, bounded};
use super::thread_pool::ThreadPool;

/// Runs items that wait for each other: each sends to the next one, and waits for the one before.
fn run_ring(pool: &ThreadPool, items: usize) {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..items).map(|_| bounded::<()>(1)).unzip();
    let next = senders.iter().cycle().skip(1).take(items).cloned();
    let ends: Vec<(Sender<()>, Receiver<()>)> = next.zip(receivers).collect();
    let ended = AtomicUsize::new(0);
    let wake = |call: &super::thread_pool::Call<'_>| call.wake();
    pool.run(ends, wake, |(to, from), _| {
        to.try_send(()).unwrap();
        from.recv().unwrap();
        ended.fetch_add(1, Ordering::SeqCst);
    })
    .unwrap();
    assert_eq!(ended.load(Ordering::SeqCst), items);
}

/// Items need a thread each, whether the threads are new or sleep.
pub fn ring() {
    check(|| {
        let pool = ThreadPool::default();
        for items in [3, 2, 4] {
            run_ring(&pool, items);
        }
    });
}

pub fn two_rings() {
    check(|| {
        let pool = Arc::new(ThreadPool::default());
        let other = pool.clone();
        let thread = thread::spawn(move || [2, 3].iter().for_each(|&items| run_ring(&other, items)));
        [3, 2].iter().for_each(|&items| run_ring(&pool, items));
        thread.join().unwrap();
    });
}

/// Items that need no other: the caller does those that no thread has reached, or all if it wakes none.
pub fn late() {
    check(|| {
        let pool = ThreadPool::default();
        for wakes in [true, false, true] {
            let ended = AtomicUsize::new(0);
            let before = |call: &super::thread_pool::Call<'_>| {
                if wakes {
                    call.wake();
                }
            };
            let work = |(): (), _: &super::thread_pool::Call<'_>| {
                thread::yield_now();
                ended.fetch_add(1, Ordering::SeqCst);
            };
            pool.run(vec![(); 4], before, work).unwrap();
            assert_eq!(ended.load(Ordering::SeqCst), 4);
        }
    });
}
