//! The limits of the stages of a device, for the bytes that they moved: of this machine, as measured, or of an emulated
//! one, as its options say.

use super::bottleneck::{DeviceWork, Medium};
use crate::device::{DeviceKind, Emulated};
use crate::limits::{DeviceLimits, HostLimits, MachineLimits, RateBySize, RateByThreads};

/// Limits in bytes per second, in and out together; `None` if they are not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct StageLimits {
    /// Copies in both directions.
    pub(crate) link: Option<f64>,
    /// Memory of the device.
    pub(crate) device_memory: Option<f64>,
    /// Memory of the host: for filling and draining, if the rows are in ordinary memory; for the CPU, for the columns.
    pub(crate) host_memory: Option<f64>,
    /// Filling and draining by these workers.
    pub(crate) staging: Option<f64>,
}

impl StageLimits {
    /// Returns the limits of this machine.
    pub(crate) fn measured(limits: &MachineLimits, work: &DeviceWork<'_>) -> StageLimits {
        let MachineLimits { host, devices, .. } = limits;
        let device = devices.iter().find(|device| device.id == work.id);
        let staging = staging(host, work);
        let host_memory = match work.kind {
            // What fits in the cache need not come from memory.
            DeviceKind::Cpu if work.columns.iter().sum::<u64>() <= host.last_level_cache_bytes => None,
            DeviceKind::Cpu => memory(host, work.columns),
            _ => {
                let is_memory = |side: usize| work.staged[side] == 0 || work.media[side] == Medium::Memory;
                staging.filter(|_| is_memory(0) && is_memory(1))
            }
        };
        StageLimits {
            link: device.and_then(|device| link(device, work.copied)),
            device_memory: device.map(|device| device.memory.bytes_per_second),
            host_memory,
            staging,
        }
    }

    /// Returns the limits of an emulated device, or of the CPU beside it, per virtual second.
    pub(crate) fn emulated(options: &Emulated, work: &DeviceWork<'_>) -> StageLimits {
        let known = |rate: f64| Some(rate).filter(|rate| rate.is_finite());
        let [bytes_in, bytes_out] = work.copied.map(|bytes| bytes as f64);
        let each_way = (bytes_in / options.copy_in_rate).max(bytes_out / options.copy_out_rate);
        let workers = work.workers.max(1) as f64;
        let rates = [options.fill_rate, options.drain_rate].map(|rate| Some(workers * rate));
        StageLimits {
            link: known((bytes_in + bytes_out) / each_way),
            device_memory: known(options.memory_rate),
            host_memory: known(options.host_memory_rate),
            staging: in_turn(work.staged, rates).and_then(known),
        }
    }
}

/// Returns the bandwidth of a link for this mixture of copies in and out.
fn link(device: &DeviceLimits, bytes: [u64; 2]) -> Option<f64> {
    let best = |sizes: &[RateBySize]| Some(RateBySize::best(sizes)?.bytes_per_second);
    let points = [
        (0.0, best(&device.copy_in)?),
        (1.0 / 3.0, best(&device.two_in_one_out)?),
        (0.5, best(&device.duplex)?),
        (1.0, best(&device.copy_out)?),
    ];
    between(&points, bytes)
}

/// Returns the bandwidth of memory for this mixture of bytes read and written.
fn memory(host: &HostLimits, bytes: [u64; 2]) -> Option<f64> {
    let rates = [&host.read, &host.two_in_one_out, &host.copy];
    let [read, two_in_one_out, copy] = rates.map(|rates| Some(RateByThreads::best(rates)?.bytes_per_second));
    between(&[(0.0, read?), (1.0 / 3.0, two_in_one_out?), (0.5, 2.0 * copy?)], bytes)
}

/// Returns the rate at which these workers can fill and drain.
fn staging(host: &HostLimits, work: &DeviceWork<'_>) -> Option<f64> {
    let with = |rates: &[RateByThreads]| {
        let fewer = rates.iter().filter(|rate| rate.threads <= work.workers).map(|rate| rate.bytes_per_second);
        fewer.chain(RateByThreads::with(rates, work.workers)).reduce(f64::max)
    };
    let [from, to] = work.media;
    let fill = match from {
        Medium::Memory => with(&host.stage),
        Medium::Files => with(&host.page_cache),
        Medium::Disk => RateByThreads::best(&host.direct_read).map(|rate| rate.bytes_per_second),
        Medium::Code => None,
    };
    let drain = match to {
        Medium::Memory => with(&host.drain),
        Medium::Files | Medium::Disk => with(&host.new_file),
        Medium::Code => None,
    };
    in_turn(work.staged, [fill, drain])
}

/// Returns the rate of bytes in and out that are moved in turn, each at its rate. `None` if there are no bytes, or if
/// the rate of some is not known.
fn in_turn(bytes: [u64; 2], rates: [Option<f64>; 2]) -> Option<f64> {
    let mut seconds = 0.0;
    for (bytes, rate) in bytes.into_iter().zip(rates).filter(|(bytes, _)| *bytes > 0) {
        seconds += bytes as f64 / rate?;
    }
    let all = bytes.iter().sum::<u64>();
    (all > 0).then_some(all as f64 / seconds)
}

/// Returns the rate for this fraction of outgoing bytes. Interpolates linearly, in seconds per byte, between measured
/// rates.
fn between(points: &[(f64, f64)], [bytes_in, bytes_out]: [u64; 2]) -> Option<f64> {
    let share = bytes_out as f64 / (bytes_in + bytes_out).max(1) as f64;
    let above = points.iter().position(|(at, _)| *at >= share).unwrap_or(points.len() - 1).max(1);
    let ((left, slow), (right, fast)) = (points.get(above - 1)?, points.get(above)?);
    let part = ((share - left) / (right - left)).clamp(0.0, 1.0);
    Some(1.0 / (slow.recip() + part * (fast.recip() - slow.recip())))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::StageTimes;

    fn work(kind: DeviceKind, media: [Medium; 2]) -> DeviceWork<'static> {
        DeviceWork {
            kind,
            id: "cuda:0",
            workers: 3,
            seconds: 1.0,
            stages: StageTimes::default(),
            copied: [200, 100],
            columns: [1 << 40, 1 << 40],
            staged: [600, 200],
            media,
            in_cache: None,
            preempted: Duration::ZERO,
            throttled: 0.0,
        }
    }

    #[test]
    fn staging_is_filling_and_draining_in_turn() {
        let limits = crate::limits::tests::example();
        let of = |media| StageLimits::measured(&limits, &work(DeviceKind::Cuda, media));
        let with = |rates| RateByThreads::with(rates, 3).unwrap();
        let host = &limits.host;
        let ordinary = 800.0 / (600.0 / with(&host.stage) + 200.0 / with(&host.drain));
        let memory = of([Medium::Memory; 2]);
        assert_eq!((memory.staging, memory.host_memory), (Some(ordinary), Some(ordinary)));
        let files = of([Medium::Files; 2]);
        let expected = 800.0 / (600.0 / with(&host.page_cache) + 200.0 / with(&host.new_file));
        assert_eq!((files.staging, files.host_memory), (Some(expected), None));
        assert_eq!(of([Medium::Code, Medium::Memory]).staging, None);
        assert_eq!(of([Medium::Disk, Medium::Memory]).staging, None, "the disk was not measured");
        assert_eq!(memory.device_memory, Some(limits.devices[0].memory.bytes_per_second));
        // Nothing is drained: where to does not matter.
        let fills = DeviceWork { staged: [600, 0], ..work(DeviceKind::Cuda, [Medium::Memory, Medium::Files]) };
        assert_eq!(StageLimits::measured(&limits, &fills).host_memory, Some(with(&host.stage)));
        let nothing = DeviceWork { staged: [0, 0], ..fills };
        assert_eq!(StageLimits::measured(&limits, &nothing).staging, None);
        let two_thirds = RateBySize::best(&limits.devices[0].two_in_one_out).unwrap().bytes_per_second;
        assert!((memory.link.unwrap() / two_thirds - 1.0).abs() < 1e-9);
    }

    #[test]
    fn fewer_workers_may_be_faster() {
        let mut limits = crate::limits::tests::example();
        limits.host.stage[1].bytes_per_second = 1e12;
        let fills = DeviceWork { staged: [600, 0], ..work(DeviceKind::Cuda, [Medium::Memory; 2]) };
        assert_eq!(StageLimits::measured(&limits, &fills).staging, Some(1e12));
        let one = DeviceWork { workers: 1, ..fills };
        assert_eq!(StageLimits::measured(&limits, &one).staging, Some(limits.host.stage[0].bytes_per_second));
    }

    #[test]
    fn what_fits_in_the_cache_is_not_held_against_memory() {
        let limits = crate::limits::tests::example();
        let large = work(DeviceKind::Cpu, [Medium::Memory; 2]);
        let copy = RateByThreads::best(&limits.host.copy).unwrap().bytes_per_second;
        let memory = StageLimits::measured(&limits, &large).host_memory.unwrap();
        assert!((memory / (2.0 * copy) - 1.0).abs() < 1e-9);
        let columns = [2 << 40, 1 << 40];
        let two = StageLimits::measured(&limits, &DeviceWork { columns, ..work(DeviceKind::Cpu, [Medium::Memory; 2]) });
        let best = RateByThreads::best(&limits.host.two_in_one_out).unwrap().bytes_per_second;
        assert!((two.host_memory.unwrap() / best - 1.0).abs() < 1e-9);
        let small = DeviceWork { columns: [limits.host.last_level_cache_bytes, 0], ..large };
        assert_eq!(StageLimits::measured(&limits, &small).host_memory, None);
    }

    #[test]
    fn an_emulated_device_has_the_limits_of_its_options() {
        let options = Emulated::new().copy_in_rate(50.0).copy_out_rate(20.0).fill_rate(10.0).memory_rate(7.0);
        let found = StageLimits::emulated(&options, &work(DeviceKind::Emulated, [Medium::Memory; 2]));
        // The copies out take longer: 100 bytes in 5 seconds, in which 200 go the other way. Three workers fill 600
        // bytes in 20 seconds.
        let expected =
            StageLimits { link: Some(60.0), device_memory: Some(7.0), host_memory: None, staging: Some(40.0) };
        assert_eq!(found, expected);
        let timeless = StageLimits::emulated(&Emulated::new(), &work(DeviceKind::Emulated, [Medium::Memory; 2]));
        assert_eq!(timeless, StageLimits::default());
    }

    #[test]
    fn a_mixture_lies_between_what_was_measured() {
        let points = [(0.0, 50.0), (0.5, 100.0), (1.0, 50.0)];
        for (bytes, rate) in [([10, 0], 50.0), ([10, 10], 100.0), ([0, 10], 50.0), ([3, 1], 200.0 / 3.0)] {
            let found = between(&points, bytes).unwrap();
            assert!((found - rate).abs() < 1e-9, "{bytes:?}: {found}");
        }
    }
}
