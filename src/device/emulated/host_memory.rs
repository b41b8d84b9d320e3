//! The memory of an emulated host.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::options::Emulated;
use super::time;

/// The memory of an emulated host, which serves the workers that share it one after the other.
#[derive(Clone, Debug)]
pub(crate) struct HostMemory {
    bytes_per_second: f64,
    /// The virtual time when it has served everyone.
    free: Arc<Mutex<Duration>>,
}

impl HostMemory {
    pub(crate) fn new(options: &Emulated) -> Self {
        HostMemory { bytes_per_second: options.host_memory_rate, free: Arc::default() }
    }

    /// Returns the virtual time when it has moved `bytes` for a worker that asks at `now`. Workers must ask in the
    /// order of their times.
    pub(crate) fn moves(&self, bytes: usize, now: Duration) -> Duration {
        if self.bytes_per_second.is_infinite() {
            return now;
        }
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        *free = now.max(*free).saturating_add(time(bytes, self.bytes_per_second));
        *free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_share_the_bandwidth() {
        let memory = HostMemory::new(&Emulated::new().host_memory_rate(10.0));
        let other = memory.clone();
        let s = Duration::from_secs;
        assert_eq!(memory.moves(20, s(1)), s(3));
        assert_eq!(other.moves(10, s(2)), s(4), "it begins when the other one ends");
        assert_eq!(memory.moves(10, s(7)), s(8), "idle time is lost");
        assert_eq!(HostMemory::new(&Emulated::new()).moves(usize::MAX, s(1)), s(1));
    }
}
