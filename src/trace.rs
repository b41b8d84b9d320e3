//! The timeline of a run, and how it is written for a viewer.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;
use std::time::Duration;

use serde_json::{Value, json};

use crate::data::Chunk;

/// When every stage of every chunk began and ended, from [`Report::timeline`](crate::Report::timeline).
#[derive(Clone, Debug)]
pub struct Timeline {
    devices: Vec<Device>,
}

#[derive(Clone, Debug)]
struct Device {
    name: String,
    /// A row of the picture each: the engines of the device, then its workers.
    rows: BTreeMap<(Track, usize), Vec<Span>>,
}

impl Timeline {
    /// The timeline of devices with these names, from the spans of their workers: each with the number of its device.
    pub(crate) fn new(
        names: impl Iterator<Item = String>,
        workers: impl Iterator<Item = (usize, Vec<Span>)>,
    ) -> Timeline {
        let mut devices: Vec<Device> = names.map(|name| Device { name, rows: BTreeMap::new() }).collect();
        let mut count = vec![0; devices.len()];
        for (number, spans) in workers {
            let (device, worker) = (&mut devices[number], count[number]);
            count[number] += 1;
            for span in spans {
                let row = if span.track == Track::Worker { worker } else { 0 };
                device.rows.entry((span.track, row)).or_default().push(span);
            }
        }
        Timeline { devices }
    }

    /// Writes it in the Trace Event Format of Chrome, which <https://ui.perfetto.dev> opens: a process for each device, in it
    /// a thread for each copy engine, for the kernels and for each worker. Times are microseconds since the start of the run.
    ///
    /// # Errors
    /// When the writer fails.
    pub fn write_chrome(&self, mut to: impl Write) -> io::Result<()> {
        let to = &mut to;
        // Line by line, as a long run has many: one value of all of them would take far more memory than the spans.
        let mut first = true;
        let mut line = |to: &mut dyn Write, event: Value| {
            let before = if std::mem::take(&mut first) { "[\n" } else { ",\n" };
            write!(to, "{before}{event}")
        };
        for (pid, device) in self.devices.iter().enumerate() {
            line(to, json!({ "ph": "M", "name": "process_name", "pid": pid, "args": { "name": device.name } }))?;
            for (tid, ((track, worker), spans)) in device.rows.iter().enumerate() {
                let name = match track {
                    Track::CopyIn => "copy in".to_owned(),
                    Track::Compute => "kernels".to_owned(),
                    Track::CopyOut => "copy out".to_owned(),
                    Track::Worker => format!("worker {worker}"),
                };
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
                        "ph": "X", "name": span.name, "pid": pid, "tid": tid, "ts": begin, "dur": end - begin, "args": args,
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
    /// On the clock of the run, which begins at its epoch.
    pub(crate) begin: Duration,
    pub(crate) end: Duration,
}

/// Where a stage ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Track {
    /// On the engine of the device that copies in.
    CopyIn,
    /// On the device's stream of kernels.
    Compute,
    /// On the engine of the device that copies out.
    CopyOut,
    /// On the worker's own thread.
    Worker,
}

impl Span {
    pub(crate) fn new(track: Track, name: &'static str, chunk: &Chunk, begin: Duration, end: Duration) -> Span {
        Span { track, name, chunk: chunk.index(), rows: chunk.rows(), begin, end }
    }
}
