//! Measurements of devices and their links: each alone, and all at the same time.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::link::{Link, MOST_BYTES, Traffic};
use super::rates::{Rate, RateBySize};
use super::team::{LEAST_RUNS, best, per_second, together};
use super::{AggregateLimits, DeviceLimits};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::PinnedMemory;

/// The sizes of copies.
const SIZES: [usize; 8] = [64 << 10, 256 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 64 << 20];
/// The sizes of copies of all devices at the same time: those that jobs use, and the largest.
const SIZES_TOGETHER: [usize; 4] = [2 << 20, 8 << 20, 16 << 20, 64 << 20];
/// A run of a link, or of the memory of a device. There are many, one for each size and direction.
const RUN: Run = Run { time: Duration::from_millis(if cfg!(test) { 1 } else { 15 }), batches: 6, runs: LEAST_RUNS };
/// A run of all links at the same time.
const RUN_TOGETHER: Run = Run { time: Duration::from_millis(if cfg!(test) { 2 } else { 60 }), batches: 8, runs: 4 };
/// Launches in a row.
const LAUNCHES: usize = 1000;

/// How long links are measured.
struct Run {
    /// The least time of a run.
    time: Duration,
    /// The least number of batches of every link in a run. The time of the first one is not measured.
    batches: usize,
    /// The least number of runs.
    runs: usize,
}

/// Measures all limits of one device. `memory` is the most bytes that may be pinned.
pub(super) fn measure<D: Device>(
    device: &D,
    driver: &str,
    memory: usize,
    progress: &mut dyn FnMut(&str),
) -> Result<DeviceLimits> {
    let info = device.info();
    let (id, name) = (info.id.clone(), info.name.clone());
    progress(&format!("{id}: pinning"));
    let (pin_new, pin_driver) = pinning(device, memory.min(MOST_BYTES))?;
    let mut links = [Link::open(device, memory.min(MOST_BYTES))?];
    let pin = links[0].pin_rate();
    let mut sizes = |traffic, what: &str| {
        progress(&format!("{id}: {what}"));
        by_size(&mut links, traffic)
    };
    let copy_in = sizes(Traffic::In, "copies in")?;
    let copy_out = sizes(Traffic::Out, "copies out")?;
    let duplex = sizes(Traffic::Duplex, "copies both ways")?;
    let two_in_one_out = sizes(Traffic::TwoInOneOut, "two copies in for one out")?;
    progress(&format!("{id}: memory and launches"));
    let memory = memory_rate(&mut links)?;
    let launch_seconds = launches(&mut links, 1, LAUNCHES, 1)?.bytes_per_second.recip() / LAUNCHES as f64;
    let driver = driver.to_owned();
    Ok(DeviceLimits {
        id,
        name,
        driver,
        copy_in,
        copy_out,
        duplex,
        two_in_one_out,
        pin,
        pin_new,
        pin_driver,
        memory,
        launch_seconds,
    })
}

/// Returns the rates of allocating and freeing pinned memory: with Overshot's allocator, and with the driver's.
fn pinning<D: Device>(device: &D, bytes: usize) -> Result<(Rate, Option<Rate>)> {
    let ours = best(LEAST_RUNS, || {
        let begin = Instant::now();
        drop(PinnedMemory::new(Some(device), bytes)?);
        Ok::<_, Error>(per_second(bytes, begin.elapsed().as_secs_f64()))
    })?;
    if !device.allocate_pinned_once(bytes)? {
        return Ok((ours, None));
    }
    let theirs = best(LEAST_RUNS, || {
        let begin = Instant::now();
        device.allocate_pinned_once(bytes)?;
        Ok::<_, Error>(per_second(bytes, begin.elapsed().as_secs_f64()))
    })?;
    Ok((ours, Some(theirs)))
}

/// Measures all devices at the same time; returns `None` for fewer than two. `memory` is the most bytes that may be
/// pinned for all of them.
pub(super) fn measure_together<D: Device>(
    devices: &[D],
    memory: usize,
    progress: &mut dyn FnMut(&str),
) -> Result<Option<AggregateLimits>> {
    if devices.len() < 2 {
        return Ok(None);
    }
    progress(&format!("all {} devices at once", devices.len()));
    let each = (memory / devices.len()).min(MOST_BYTES / 2);
    let mut links = devices.iter().map(|device| Link::open(device, each)).collect::<Result<Vec<_>>>()?;
    let mut rate = |traffic| -> Result<Rate> {
        let sizes = by_size_of(&mut links, traffic, &SIZES_TOGETHER, &RUN_TOGETHER)?;
        Ok(RateBySize::best(&sizes).map_or(Rate::of_runs(&[]), |size| size.rate()))
    };
    Ok(Some(AggregateLimits {
        copy_in: rate(Traffic::In)?,
        copy_out: rate(Traffic::Out)?,
        duplex: rate(Traffic::Duplex)?,
        two_in_one_out: rate(Traffic::TwoInOneOut)?,
    }))
}

fn by_size<D: Device>(links: &mut [Link<D>], traffic: Traffic) -> Result<Vec<RateBySize>> {
    by_size_of(links, traffic, &SIZES, &RUN)
}

/// Returns the rate of all links together by size, in ascending order, for all sizes for which there is memory.
fn by_size_of<D: Device>(
    links: &mut [Link<D>],
    traffic: Traffic,
    sizes: &[usize],
    run: &Run,
) -> Result<Vec<RateBySize>> {
    let fitting = links.iter().map(|link| link.most_bytes()).min().unwrap_or(0);
    let mut sizes: Vec<usize> = sizes.iter().map(|&size| size.min(fitting)).collect();
    sizes.dedup();
    // The first copies of a kind are slow.
    copies(links, traffic, fitting, &Run { time: Duration::ZERO, ..*run })?;
    let rate = |bytes| Ok(RateBySize::new(bytes as u64, best(run.runs, || copies(links, traffic, bytes, run))?));
    sizes.into_iter().map(rate).collect()
}

/// Returns the bytes per second of all links together, while all of them copy. A link goes on until every link has
/// enough, so none has the memory of the host for itself.
fn copies<D: Device>(links: &mut [Link<D>], traffic: Traffic, bytes: usize, run: &Run) -> Result<f64> {
    let missing = AtomicUsize::new(links.len());
    let ends = on_threads(links, |link| {
        // If a link fails, the others must not wait for it.
        let begin = Instant::now();
        let mut has_enough = false;
        let copied = link.copy(traffic, bytes, |batches| {
            if !has_enough && batches >= run.batches && begin.elapsed() >= run.time {
                has_enough = true;
                missing.fetch_sub(1, Ordering::Relaxed);
            }
            missing.load(Ordering::Relaxed) > 0
        });
        if copied.is_err() && !has_enough {
            missing.fetch_sub(1, Ordering::Relaxed);
        }
        copied
    })?;
    let since = ends.iter().flatten().min().copied();
    let seconds = |end: &Instant| since.map_or(0.0, |since| end.duration_since(since).as_secs_f64());
    let ends: Vec<Vec<f64>> = ends.iter().map(|ends| ends.iter().map(seconds).collect()).collect();
    Ok(common_rate(&ends, Link::<D>::batch_bytes(traffic, bytes)))
}

/// Returns the bytes per second of all links together in the time during which all of them were busy. `ends` are the
/// seconds at which batches of each link were done, in ascending order.
///
/// Each link counts whole batches, from the end of one to the end of another, so its rate does not depend on where the
/// common time begins and ends within a batch.
fn common_rate(ends: &[Vec<f64>], batch_bytes: usize) -> f64 {
    let begin = ends.iter().filter_map(|ends| ends.first()).copied().fold(0.0, f64::max);
    let end = ends.iter().filter_map(|ends| ends.last()).copied().fold(f64::INFINITY, f64::min);
    let rate = |ends: &Vec<f64>| {
        let common = &ends[ends.partition_point(|&at| at < begin)..ends.partition_point(|&at| at <= end)];
        // With fewer, the links are so different that there is no time common to them: all that it did counts.
        let counted = if common.len() < 2 { ends } else { common };
        let seconds = counted.last().zip(counted.first()).map_or(0.0, |(last, first)| last - first);
        per_second(counted.len().saturating_sub(1) * batch_bytes, seconds)
    };
    ends.iter().map(rate).sum()
}

fn memory_rate<D: Device>(links: &mut [Link<D>; 1]) -> Result<Rate> {
    /// Each word is read and written.
    const ROW: usize = 2 * 8;
    let rows = links[0].most_rows();
    launches(links, rows, 1, 1)?;
    let once = launches(links, rows, 1, 1)?.bytes_per_second.recip();
    let count = (RUN.time.as_secs_f64() / once.max(1e-9)).clamp(1.0, 50.0) as usize;
    launches(links, rows, count, count * rows * ROW)
}

/// Returns the rate of a number of launches, which process so many bytes together.
fn launches<D: Device>(links: &mut [Link<D>; 1], rows: usize, count: usize, bytes: usize) -> Result<Rate> {
    best(LEAST_RUNS, || {
        let seconds = on_threads(links, |link| {
            let begin = Instant::now();
            link.launch(rows, count)?;
            Ok(begin.elapsed().as_secs_f64())
        })?;
        Ok(per_second(bytes, seconds[0]))
    })
}

/// Returns the results of work that all links do at the same time, each on its own thread, so that the current device
/// of the caller's thread does not change.
fn on_threads<D: Device, T: Send>(
    links: &mut [Link<D>],
    work: impl Fn(&mut Link<D>) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let done = together(links, |link| work(link).map_err(Trouble::Device));
    done.map(|(results, _)| results).map_err(|trouble| match trouble {
        Trouble::Device(error) => error,
        Trouble::Thread(error) => host_error(error),
    })
}

/// Returns the error of a thread whose work failed.
enum Trouble {
    Device(Error),
    Thread(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Trouble::Thread(error)
    }
}

/// Returns the error if the system refused a thread or memory.
pub(super) fn host_error(error: io::Error) -> Error {
    Error::Device {
        device: "host".into(),
        problem: format!("it cannot be measured ({error})"),
        remedy: "close other programs, or raise the limits of this one (`ulimit -a`)".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::emulated::{Emulated, EmulatedDevice, Fault, FaultAt};

    fn device(options: &Emulated) -> EmulatedDevice {
        EmulatedDevice::new(options)
    }

    /// Its time is virtual, so its rates are meaningless, but all values are present, and copies stay inside their
    /// memory.
    #[test]
    fn every_size_that_fits_is_measured() {
        let mut steps = Vec::new();
        let small = device(&Emulated::new().memory(40 << 20));
        let limits = measure(&small, "none", 48 << 20, &mut |step| steps.push(step.to_owned())).unwrap();
        let sizes = [64, 256, 1024, 2048, 4096, 8192, 16384].map(|kib| kib << 10);
        for list in [&limits.copy_in, &limits.copy_out, &limits.duplex, &limits.two_in_one_out] {
            assert_eq!(list.iter().map(|size| size.bytes).collect::<Vec<_>>(), sizes);
            assert!(list.iter().all(|size| size.bytes_per_second.is_finite() && size.bytes_per_second > 0.0));
        }
        assert_eq!(limits.pin_driver, None, "it has no such memory");
        for rate in [limits.pin, limits.pin_new, limits.memory].map(|rate| rate.bytes_per_second) {
            assert!(rate.is_finite() && rate > 0.0, "{limits:?}");
        }
        assert!(limits.launch_seconds.is_finite() && limits.launch_seconds > 0.0, "{limits:?}");
        assert_eq!((limits.id.as_str(), limits.driver.as_str(), steps.len()), ("emulated", "none", 6));
    }

    #[test]
    fn all_at_once_takes_two() {
        let mut devices = vec![device(&Emulated::new().memory(4 << 20))];
        assert_eq!(measure_together(&devices, 16 << 20, &mut |_| {}).unwrap(), None);
        devices.push(device(&Emulated::new().memory(3 << 20)));
        let all = measure_together(&devices, 16 << 20, &mut |_| {}).unwrap().unwrap();
        let rates = [all.copy_in, all.copy_out, all.duplex, all.two_in_one_out].map(|rate| rate.bytes_per_second);
        assert!(rates.iter().all(|rate| rate.is_finite() && *rate > 0.0), "{all:?}");
    }

    /// The other link must not wait forever.
    #[test]
    fn one_of_several_fails() {
        let sound = device(&Emulated::new().memory(4 << 20));
        let failing = device(&Emulated::new().memory(4 << 20).fault(Fault::new(FaultAt::CopyIn, 9)));
        assert!(measure_together(&[sound, failing], 16 << 20, &mut |_| {}).is_err());
    }

    #[test]
    fn links_count_while_all_are_busy() {
        let every = |first: u32, step: f64, count: u32| -> Vec<f64> {
            (0..count).map(|number| f64::from(first) + step * f64::from(number)).collect()
        };
        let rate = |ends: &[Vec<f64>]| common_rate(ends, 100);
        // A link alone: the first batch, which includes the start, does not count.
        assert_eq!(rate(&[every(7, 1.0, 5)]), 100.0);
        // The second one begins later and ends later, and each is faster when it has the host for itself.
        let first = [every(1, 0.5, 8), every(5, 1.0, 10)].concat();
        let second = [every(5, 2.0, 5), every(15, 0.5, 8)].concat();
        assert_eq!(rate(&[first, second]), 150.0);
        // No time in common.
        assert_eq!(rate(&[every(0, 1.0, 4), every(50, 1.0, 4)]), 200.0);
        assert!(rate(&[every(0, 1.0, 1)]) == 0.0 && rate(&[]) == 0.0);
    }

    #[test]
    fn a_device_that_fails_is_an_error() {
        for at in [FaultAt::Allocate, FaultAt::CopyIn, FaultAt::CopyOut, FaultAt::Kernel] {
            let options = Emulated::new().memory(4 << 20).fault(Fault::new(at, 3));
            let error = measure(&device(&options), "none", 16 << 20, &mut |_| {}).err();
            // There are fewer allocations, because a failed one is tried again with a smaller size.
            assert_eq!(error.is_some(), at != FaultAt::Allocate, "{at:?}: {error:?}");
        }
        let tiny = device(&Emulated::new().memory(1 << 20));
        assert!(matches!(measure(&tiny, "none", 16 << 20, &mut |_| {}), Err(Error::OutOfMemory { .. })));
    }
}
