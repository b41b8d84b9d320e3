//! The timeline of a run, and its export for trace viewers.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::ops::Range;
use std::time::Duration;

use serde_json::{Value, json};

use crate::data::Chunk;

/// The begin and end of every stage of every chunk, from [`Report::timeline`](crate::Report::timeline).
///
/// ```
/// use overshot::{DeviceChoice, Engine, Job};
/// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
/// let report = engine.run(Job::eval("sum(x)")?.input("x", &[1.0, 2.0]).timeline(true))?;
/// let mut json = Vec::new();
/// if let Some(timeline) = &report.timeline {
///     timeline.write_chrome(&mut json)?;
/// }
/// assert!(json.starts_with(b"["));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Timeline {
    devices: Vec<Device>,
}

/// The timeline of one device.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    pub(crate) name: String,
    /// One row of the picture per entry: the engines of the device, then its workers.
    pub(crate) rows: BTreeMap<Track, Vec<Span>>,
}

impl Timeline {
    /// Creates the timeline of the devices with these names from the spans of their workers. Each worker comes with
    /// the number of its device.
    pub(crate) fn new(
        names: impl Iterator<Item = String>,
        workers: impl Iterator<Item = (usize, Vec<Span>)>,
    ) -> Timeline {
        let mut devices: Vec<Device> = names.map(|name| Device { name, rows: BTreeMap::new() }).collect();
        for (number, spans) in workers {
            for span in spans {
                devices[number].rows.entry(span.track).or_default().push(span);
            }
        }
        Timeline { devices }
    }

    /// Returns one timeline of several, each of which follows the previous one after its time. `None` if there is none.
    pub(crate) fn in_order(timelines: impl Iterator<Item = (Timeline, Duration)>) -> Option<Timeline> {
        let mut all: Option<Timeline> = None;
        let mut begin = Duration::ZERO;
        for (mut timeline, time) in timelines {
            for span in timeline.devices.iter_mut().flat_map(|device| device.rows.values_mut()).flatten() {
                span.begin += begin;
                span.end += begin;
            }
            begin += time;
            match &mut all {
                None => all = Some(timeline),
                Some(all) => all.append(timeline),
            }
        }
        all
    }

    fn append(&mut self, other: Timeline) {
        for device in other.devices {
            match self.devices.iter_mut().find(|own| own.name == device.name) {
                Some(own) => {
                    device.rows.into_iter().for_each(|(track, spans)| own.rows.entry(track).or_default().extend(spans));
                }
                None => self.devices.push(device),
            }
        }
    }

    pub(crate) fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Writes the timeline in Chrome's Trace Event Format, which <https://ui.perfetto.dev> opens. Each device is a
    /// process; each copy engine, the kernels and each worker are threads of it. Times are microseconds since the
    /// start of the run.
    ///
    /// # Errors
    /// The error of the writer.
    pub fn write_chrome(&self, mut to: impl Write) -> io::Result<()> {
        let to = &mut to;
        // Written line by line: a JSON value of all events of a long run would need far more memory than the spans.
        let mut first = true;
        let mut line = |to: &mut dyn Write, event: Value| {
            let before = if std::mem::take(&mut first) { "[\n" } else { ",\n" };
            write!(to, "{before}{event}")
        };
        for (pid, device) in self.devices.iter().enumerate() {
            line(to, json!({ "ph": "M", "name": "process_name", "pid": pid, "args": { "name": device.name } }))?;
            for (tid, (track, spans)) in device.rows.iter().enumerate() {
                let name = track.to_string();
                line(
                    to,
                    json!({ "ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": { "name": name } }),
                )?;
                let order = json!({ "sort_index": tid });
                line(to, json!({ "ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": order }))?;
                for span in spans {
                    let args =
                        json!({ "chunk": span.chunk, "row": span.rows.start, "rows": span.rows.end - span.rows.start });
                    let (begin, end) = (span.begin.as_secs_f64() * 1e6, span.end.as_secs_f64() * 1e6);
                    let event = json!({
                        "ph": "X", "name": span.name, "pid": pid, "tid": tid, "ts": begin, "dur": end - begin,
                        "args": args,
                    });
                    line(to, event)?;
                }
            }
        }
        writeln!(to, "{}]", if first { "[" } else { "\n" })
    }
}

/// One stage of one chunk.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) track: Track,
    pub(crate) name: &'static str,
    pub(crate) chunk: u64,
    pub(crate) rows: Range<u64>,
    /// Times on the clock of the run, which starts at its epoch.
    pub(crate) begin: Duration,
    pub(crate) end: Duration,
}

/// The place where a stage ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Track {
    /// The engine of the device that copies from the host.
    CopyIn,
    /// The stream of the device that runs kernels.
    Compute,
    /// The stream of the device that multiplies panels.
    Products,
    /// The engine of the device that copies to the host.
    CopyOut,
    /// The stream of the device that copies sums of products to the host.
    Sums,
    /// The thread with this number on the device that absorbs sums of products.
    Absorber(usize),
    /// The thread of the worker with this number on the device.
    Worker(usize),
}

impl fmt::Display for Track {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Track::CopyIn => f.write_str("copy in"),
            Track::Compute => f.write_str("kernels"),
            Track::Products => f.write_str("products"),
            Track::CopyOut => f.write_str("copy out"),
            Track::Sums => f.write_str("copy out of sums"),
            Track::Absorber(number) => write!(f, "absorber {number}"),
            Track::Worker(number) => write!(f, "worker {number}"),
        }
    }
}

impl Span {
    pub(crate) fn new(track: Track, name: &'static str, chunk: &Chunk, begin: Duration, end: Duration) -> Span {
        Span { track, name, chunk: chunk.index(), rows: chunk.rows(), begin, end }
    }
}
