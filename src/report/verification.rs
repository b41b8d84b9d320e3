//! What a run verified.

use std::fmt;
use std::time::Duration;

use crate::units;

/// The chunks of a run that were computed twice and compared, without a difference
/// ([`Job::verify`](crate::Job::verify)).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Verification {
    /// The fraction that the job asked for. Of a job that ran in parts, the smallest of all parts: 0 if one of them
    /// verified nothing.
    pub fraction: f64,
    /// The devices that took part, also those of which no chunk was chosen.
    pub devices: Vec<VerifiedDevice>,
}

/// The verified chunks of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifiedDevice {
    /// Its id, as [`DeviceChoice`](crate::DeviceChoice) parses it.
    pub id: String,
    /// How its chunks were computed again.
    pub by: RecomputedBy,
    /// The chunks that were computed again.
    pub chunks: u64,
    /// Their rows.
    pub rows: u64,
    /// The time that it took, summed over workers.
    pub time: Duration,
}

/// How a chunk was computed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecomputedBy {
    /// A chunk of a GPU or an emulated device, by the CPU.
    Cpu,
    /// A chunk of the CPU, by the CPU with other instructions: AVX2 in place of AVX-512, or those that every processor
    /// of its architecture has.
    OtherInstructions,
    /// A chunk of the CPU, by the same code: a function of the caller, or an expression on a processor without other
    /// instructions.
    SameCode,
}

impl RecomputedBy {
    /// Its name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            RecomputedBy::Cpu => "cpu",
            RecomputedBy::OtherInstructions => "other instructions",
            RecomputedBy::SameCode => "same code",
        }
    }
}

impl fmt::Display for RecomputedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RecomputedBy::Cpu => "on the CPU",
            RecomputedBy::OtherInstructions => "with other instructions of the CPU",
            RecomputedBy::SameCode => "by the same code on the CPU",
        })
    }
}

impl fmt::Display for VerifiedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VerifiedDevice { id, by, chunks, rows, time } = self;
        if *chunks == 0 {
            return write!(f, "no chunk of {id}");
        }
        let (chunks, rows) = (units::counted(*chunks, "chunk"), units::counted(*rows, "row"));
        write!(f, "{chunks} ({rows}) of {id}, computed again {by} in {}, no difference", units::time(*time))
    }
}
