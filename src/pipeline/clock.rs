//! The clock of a CPU worker.

use std::time::{Duration, Instant};

use crate::device::Emulated;
use crate::device::emulated::HostMemory;

/// The time of a CPU worker since the run began: real, or virtual beside emulated devices.
#[derive(Clone, Debug)]
pub(super) enum CpuClock {
    /// The time since this instant.
    Real(Instant),
    /// A time that only the worker advances, how many rows it computes in a second of it, and the memory that it shares
    /// with other workers.
    Virtual { now: Duration, rows_per_second: f64, memory: HostMemory },
}

impl CpuClock {
    /// Returns the clock of a CPU worker beside an emulated device with these options.
    pub(super) fn of_emulation(options: &Emulated, memory: &HostMemory) -> CpuClock {
        CpuClock::Virtual { now: Duration::ZERO, rows_per_second: options.cpu_rate, memory: memory.clone() }
    }

    /// Returns the time.
    pub(super) fn now(&self) -> Duration {
        match self {
            CpuClock::Real(epoch) => epoch.elapsed(),
            CpuClock::Virtual { now, .. } => *now,
        }
    }

    /// Records that the worker computed so many rows of so many bytes. This advances virtual time; real time has
    /// already passed.
    pub(super) fn computed(&mut self, rows: usize, bytes: usize) {
        if let CpuClock::Virtual { now, rows_per_second, memory } = self {
            let moved = memory.moves(bytes, *now);
            *now = moved.max(*now + Duration::from_secs_f64(rows as f64 / *rows_per_second));
        }
    }

    /// Records that the worker waited until `time`. This advances virtual time to `time`, unless it is already later.
    pub(super) fn reach(&mut self, time: Duration) {
        if let CpuClock::Virtual { now, .. } = self {
            *now = (*now).max(time);
        }
    }
}
