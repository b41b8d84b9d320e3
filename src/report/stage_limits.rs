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
        let is_memory = |side: usize| work.staged[side] == 0 || work.media[side] == Medium::Memory;
        let stages = work.staged != [0, 0];
        let host_memory = match work.kind {
            // What fits in the cache need not come from memory.
            DeviceKind::Cpu if work.columns.iter().sum::<u64>() <= host.last_level_cache_bytes => None,
            DeviceKind::Cpu => memory(host, work.columns),
            // Filling reads memory and draining writes it: the slots are in the cache.
            _ => memory(host, work.staged).filter(|_| stages && is_memory(0) && is_memory(1)),
        };
        let staging = staging(host, work);
        StageLimits {
            link: device.and_then(|device| link(device, work.copied)),
            device_memory: device.map(|device| device.memory.bytes_per_second),
            host_memory,
            staging: staging.into_iter().chain(host_memory.filter(|_| work.kind != DeviceKind::Cpu)).reduce(f64::min),
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

/// Returns the rate at which these workers can fill and drain. It is bounded by what all of them can fill, by what all
/// of them can drain, and by their time: a worker does one of them at a time, at most as fast as alone.
fn staging(host: &HostLimits, work: &DeviceWork<'_>) -> Option<f64> {
    let with = |rates: &[RateByThreads]| {
        let fewer = rates.iter().filter(|rate| rate.threads <= work.workers).map(|rate| rate.bytes_per_second);
        fewer.chain(RateByThreads::with(rates, work.workers)).reduce(f64::max)
    };
    let alone = |rates: &[RateByThreads]| {
        rates.iter().map(|rate| rate.bytes_per_second / rate.threads.max(1) as f64).reduce(f64::max)
    };
    let [from, to] = work.media;
    let fill = match from {
        Medium::Memory => Some(&host.stage),
        Medium::Files => Some(&host.page_cache),
        Medium::Disk => Some(&host.direct_read),
        Medium::Encoded | Medium::Code => None,
    };
    let drain = match to {
        Medium::Memory => Some(&host.drain),
        Medium::Files | Medium::Disk => Some(&host.new_file),
        Medium::Encoded | Medium::Code => None,
    };
    let seconds = |side: usize, rate: Option<f64>| match work.staged[side] {
        0 => Some(0.0),
        bytes => Some(bytes as f64 / rate?),
    };
    let workers = work.workers.max(1) as f64;
    let all = [fill, drain].map(|rates| with(rates?));
    let one = [fill, drain].map(|rates| Some(workers * alone(rates?)?));
    let longest = seconds(0, all[0])?.max(seconds(1, all[1])?).max(seconds(0, one[0])? + seconds(1, one[1])?);
    let bytes = work.staged.iter().sum::<u64>() as f64;
    (bytes > 0.0).then_some(bytes / longest)
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
    fn staging_is_bounded_by_each_side_and_by_the_time_of_the_workers() {
        let mut limits = crate::limits::tests::example();
        let of = |limits: &MachineLimits, media| {
            StageLimits::measured(limits, &DeviceWork { staged: [600, 200], ..work(DeviceKind::Cuda, media) })
        };
        // In the example, so many threads are so many times as fast as one.
        let one = |rates: &[RateByThreads]| rates[0].bytes_per_second;
        let time_of = |fill: f64, drain: f64| 800.0 / (600.0 / (3.0 * fill) + 200.0 / (3.0 * drain));
        let close = |found: Option<f64>, expected: f64| (found.unwrap() / expected - 1.0).abs() < 1e-9;
        let files = of(&limits, [Medium::Files; 2]);
        assert!(close(files.staging, time_of(one(&limits.host.page_cache), one(&limits.host.new_file))));
        assert_eq!(files.host_memory, None);
        let memory = of(&limits, [Medium::Memory; 2]);
        assert!(close(memory.staging, time_of(one(&limits.host.stage), one(&limits.host.drain))));
        assert_eq!(of(&limits, [Medium::Code, Medium::Memory]).staging, None);
        assert_eq!(of(&limits, [Medium::Disk, Medium::Memory]).staging, None, "the disk was not measured");
        assert_eq!(memory.device_memory, Some(limits.devices[0].memory.bytes_per_second));
        let two_thirds = RateBySize::best(&limits.devices[0].two_in_one_out).unwrap().bytes_per_second;
        assert!(close(memory.link, two_thirds));
        // Threads that write to one file wait for each other. While one of them waits, the others can fill.
        limits.host.new_file.iter_mut().for_each(|rate| rate.bytes_per_second = 1e9);
        assert!(close(of(&limits, [Medium::Files; 2]).staging, 4e9));
        // Memory has less than the workers could move.
        for rates in [&mut limits.host.read, &mut limits.host.two_in_one_out, &mut limits.host.copy] {
            rates.iter_mut().for_each(|rate| rate.bytes_per_second = 1e9);
        }
        let slow = of(&limits, [Medium::Memory; 2]);
        assert_eq!(slow.staging, slow.host_memory);
        // Nothing is drained: where to does not matter.
        let fills = DeviceWork { staged: [600, 0], ..work(DeviceKind::Cuda, [Medium::Memory, Medium::Files]) };
        assert!(close(StageLimits::measured(&limits, &fills).host_memory, 1e9));
        let nothing = DeviceWork { staged: [0, 0], ..fills };
        assert_eq!(StageLimits::measured(&limits, &nothing).staging, None);
    }

    #[test]
    fn fewer_workers_may_be_faster() {
        let mut limits = crate::limits::tests::example();
        limits.host.page_cache[1].bytes_per_second = 1e12;
        let fills = DeviceWork { staged: [600, 0], ..work(DeviceKind::Cuda, [Medium::Files; 2]) };
        let close = |work: &DeviceWork<'_>, expected: f64| {
            (StageLimits::measured(&limits, work).staging.unwrap() / expected - 1.0).abs() < 1e-9
        };
        assert!(close(&fills, 1e12));
        let one = DeviceWork { workers: 1, ..fills };
        assert!(close(&one, limits.host.page_cache[0].bytes_per_second));
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
