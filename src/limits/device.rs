//! Measurements of devices and their links: each alone, and all at the same time.

use std::io;
use std::time::Instant;

use super::link::{Link, MOST_BYTES, Traffic};
use super::rates::RateBySize;
use super::team::{best, together};
use super::{AggregateLimits, DeviceLimits};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::PinnedMemory;

/// The sizes of copies.
const SIZES: [usize; 8] = [64 << 10, 256 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 64 << 20];
/// The most bytes that one run of a measurement moves, and the time that it should take if moving them would take
/// longer.
const RUN_BYTES: usize = 256 << 20;
const RUN_SECONDS: f64 = 0.02;
/// The sizes of copies of all devices at the same time: the fastest size on most machines, and the largest.
const SIZES_TOGETHER: [usize; 2] = [8 << 20, 64 << 20];
/// Launches in a row.
const LAUNCHES: usize = 1000;

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
    let launch_seconds = launches(&mut links, 1, LAUNCHES)? / LAUNCHES as f64;
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

/// Returns the bytes per second of allocating and freeing pinned memory: with Overshot's allocator, and with the
/// driver's.
fn pinning<D: Device>(device: &D, bytes: usize) -> Result<(f64, Option<f64>)> {
    let ours = best(bytes as u64, || {
        let begin = Instant::now();
        drop(PinnedMemory::new(Some(device), bytes)?);
        Ok::<_, Error>(begin.elapsed().as_secs_f64())
    })?;
    if !device.allocate_pinned_once(bytes)? {
        return Ok((ours, None));
    }
    let theirs = best(bytes as u64, || {
        let begin = Instant::now();
        device.allocate_pinned_once(bytes)?;
        Ok::<_, Error>(begin.elapsed().as_secs_f64())
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
    let mut rate = |traffic| -> Result<f64> {
        let rates = by_size_of(&mut links, traffic, &SIZES_TOGETHER)?;
        Ok(rates.iter().map(|size| size.bytes_per_second).fold(0.0, f64::max))
    };
    Ok(Some(AggregateLimits {
        copy_in: rate(Traffic::In)?,
        copy_out: rate(Traffic::Out)?,
        duplex: rate(Traffic::Duplex)?,
        two_in_one_out: rate(Traffic::TwoInOneOut)?,
    }))
}

fn by_size<D: Device>(links: &mut [Link<D>], traffic: Traffic) -> Result<Vec<RateBySize>> {
    by_size_of(links, traffic, &SIZES)
}

/// Returns the rate of all links together by size, in ascending order, for all sizes for which there is memory.
fn by_size_of<D: Device>(links: &mut [Link<D>], traffic: Traffic, sizes: &[usize]) -> Result<Vec<RateBySize>> {
    let fitting = links.iter().map(|link| link.most_bytes()).min().unwrap_or(0);
    let mut sizes: Vec<usize> = sizes.iter().map(|&size| size.min(fitting)).collect();
    sizes.dedup();
    let mut rate = warm_up(links, traffic, fitting)?;
    let mut found = Vec::with_capacity(sizes.len());
    // In descending order: a smaller size is hardly faster than the next larger one, so the rate of that one
    // determines the number of copies.
    for &bytes in sizes.iter().rev() {
        let round = traffic.copies() * bytes;
        let each = (rate * RUN_SECONDS / links.len() as f64).min(RUN_BYTES as f64) as usize;
        let rounds = (each / round).max(2);
        let moved = (rounds * round * links.len()) as u64;
        rate = best(moved, || on_threads(links, |link| link.copy(traffic, bytes, rounds)))?;
        found.push(RateBySize { bytes: bytes as u64, bytes_per_second: rate });
    }
    found.reverse();
    Ok(found)
}

/// Copies once through the memory of all links, because the first copies of a kind are slow. Returns their
/// approximate rate.
fn warm_up<D: Device>(links: &mut [Link<D>], traffic: Traffic, bytes: usize) -> Result<f64> {
    let moved = traffic.copies() * bytes * links.len();
    on_threads(links, |link| link.copy(traffic, bytes, 1))?;
    Ok(moved as f64 / on_threads(links, |link| link.copy(traffic, bytes, 1))?.max(1e-9))
}

fn memory_rate<D: Device>(links: &mut [Link<D>; 1]) -> Result<f64> {
    /// Each word is read and written.
    const ROW: usize = 2 * 8;
    let rows = links[0].most_rows();
    on_threads(links, |link| link.launch(rows, 1))?;
    let once = on_threads(links, |link| link.launch(rows, 1))?;
    let count = (RUN_SECONDS / once.max(1e-9)).clamp(1.0, 50.0) as usize;
    Ok((count * rows * ROW) as f64 / launches(links, rows, count)?)
}

/// Returns the seconds for a number of launches.
fn launches<D: Device>(links: &mut [Link<D>; 1], rows: usize, count: usize) -> Result<f64> {
    Ok(1.0 / best(1, || on_threads(links, |link| link.launch(rows, count)))?)
}

/// Returns the seconds of work that all links do at the same time, each on its own thread, so that the current device
/// of the caller's thread does not change.
fn on_threads<D: Device>(links: &mut [Link<D>], work: impl Fn(&mut Link<D>) -> Result<()> + Sync) -> Result<f64> {
    together(links, |link| work(link).map_err(Trouble::Device)).map_err(|trouble| match trouble {
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
        for rate in [limits.pin, limits.pin_new, limits.memory, limits.launch_seconds] {
            assert!(rate.is_finite() && rate > 0.0, "{limits:?}");
        }
        assert_eq!((limits.id.as_str(), limits.driver.as_str(), steps.len()), ("emulated", "none", 6));
    }

    #[test]
    fn all_at_once_takes_two() {
        let mut devices = vec![device(&Emulated::new().memory(4 << 20))];
        assert_eq!(measure_together(&devices, 16 << 20, &mut |_| {}).unwrap(), None);
        devices.push(device(&Emulated::new().memory(3 << 20)));
        let all = measure_together(&devices, 16 << 20, &mut |_| {}).unwrap().unwrap();
        assert!([all.copy_in, all.copy_out, all.duplex].iter().all(|rate| rate.is_finite() && *rate > 0.0), "{all:?}");
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
