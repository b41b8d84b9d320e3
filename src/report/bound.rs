//! What bound a run: the stage that was at work all the time while the others waited for it.

use std::fmt;

use super::StageTimes;
use crate::device::DeviceKind;

/// A stage of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stage {
    /// Reading rows into slots, or into memory of the CPU's lanes.
    Fill,
    /// Copies from the host to the device.
    CopyIn,
    /// Computing.
    Kernel,
    /// Copies from the device to the host.
    CopyOut,
    /// Writing rows to the outputs.
    Drain,
    /// None of them: the job was over before any stage was busy for long.
    Latency,
}

/// What bound a device in a run.
#[derive(Clone, Copy, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct Bound {
    /// The stage that was busiest.
    pub stage: Stage,
    /// On which kind of device.
    pub kind: DeviceKind,
    /// The share of the time that it was at work, 0 to 1: of the device's engine, or of all lanes.
    pub busy: f64,
    /// Bytes per second that went through it, inputs and outputs together.
    pub bytes_per_second: f64,
    /// What this machine was measured to reach there at best (`overshot bench --limits`), in the same bytes per second.
    pub limit_bytes_per_second: Option<f64>,
}

/// A stage that was at work for a smaller share of the time than this bound nothing.
const BUSY: f64 = 0.5;

/// What a device and its lanes did.
pub(crate) struct DeviceWork {
    pub(crate) kind: DeviceKind,
    pub(crate) lanes: usize,
    /// How long all of it took.
    pub(crate) seconds: f64,
    /// Summed over lanes.
    pub(crate) stages: StageTimes,
    /// Bytes copied to and from the device.
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// Bytes filled and drained.
    pub(crate) staged_in: u64,
    pub(crate) staged_out: u64,
}

impl DeviceWork {
    /// The stage that was at work for the largest share of the time. Lanes fill and drain in turns, on the CPU they compute
    /// too: if all of them are always at work, what takes them longest is what binds.
    pub(crate) fn bound(&self) -> Option<Bound> {
        if self.seconds <= 0.0 {
            return None;
        }
        let share = |busy: f64| busy / self.seconds;
        let [fill, copy_in, kernel, copy_out, drain] = self.stages.named().map(|(_, time)| time.busy.as_secs_f64());
        let mut of_lanes = vec![(Stage::Fill, fill), (Stage::Drain, drain)];
        let mut of_device = Vec::new();
        if self.kind == DeviceKind::Cpu {
            of_lanes.push((Stage::Kernel, kernel));
        } else {
            of_device = vec![(Stage::CopyIn, copy_in), (Stage::Kernel, kernel), (Stage::CopyOut, copy_out)];
        }
        let longest = |stages: &[(Stage, f64)]| stages.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
        let lanes_busy: f64 = of_lanes.iter().map(|(_, busy)| share(*busy) / self.lanes.max(1) as f64).sum();
        let lanes = longest(&of_lanes).map(|(stage, _)| (stage, lanes_busy));
        let device = longest(&of_device).map(|(stage, busy)| (stage, share(busy)));
        let busiest = [lanes, device].into_iter().flatten().max_by(|a, b| a.1.total_cmp(&b.1));
        let (stage, busy) = busiest.filter(|(_, busy)| *busy >= BUSY).unwrap_or((Stage::Latency, 0.0));
        let bytes = match stage {
            Stage::Fill => self.staged_in,
            Stage::Drain => self.staged_out,
            _ => self.bytes_in + self.bytes_out,
        };
        let bytes_per_second = bytes as f64 / self.seconds;
        Some(Bound { stage, kind: self.kind, busy: busy.min(1.0), bytes_per_second, limit_bytes_per_second: None })
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Fill => "reading the inputs",
            Stage::CopyIn => "host-to-device copies",
            Stage::Kernel => "computing",
            Stage::CopyOut => "device-to-host copies",
            Stage::Drain => "writing the outputs",
            Stage::Latency => "latency",
        })
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.stage == Stage::Latency {
            return f.write_str("bound by latency: the job was over before any stage was busy for long");
        }
        write!(f, "bound by {}: busy {:.0} % of the time", self.stage, self.busy * 100.0)?;
        // Virtual bytes per second say nothing of this machine.
        if self.kind == DeviceKind::Emulated || self.bytes_per_second == 0.0 {
            return Ok(());
        }
        write!(f, ", {:.1} GB/s", self.bytes_per_second / 1e9)?;
        match self.limit_bytes_per_second {
            Some(limit) if limit > 0.0 => {
                let share = self.bytes_per_second / limit * 100.0;
                write!(f, ", {share:.0} % of this machine's limit ({:.1})", limit / 1e9)
            }
            _ => Ok(()),
        }
    }
}
