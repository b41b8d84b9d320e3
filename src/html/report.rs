//! The picture of a report.

use std::path::Path;

use super::bars::{Part, bar, keys, share};
use super::markup::{SHORT, add, code, dim, escaped, figures, left_out_text, lines_of_code, notes, section, table};
use super::{stages, style, timeline};
use crate::device::DeviceKind;
use crate::report::{Computation, DeviceReport, Report, Setup};
use crate::units;

/// The picture has the stages of so many devices at most.
pub(super) const DEVICES: usize = 9;

impl Report {
    /// Returns a picture of this report for a notebook: an HTML fragment with its results, the stages of every device
    /// and the bottleneck, inputs, outputs and memory, and the timeline if the job asked for one
    /// ([`Job::timeline`](crate::Job::timeline)). It needs no script and no other file, and is smaller than 300 kB
    /// for every run. [`html::page`](crate::html::page) makes a page of it.
    ///
    /// ```
    /// use overshot::{DeviceChoice, Engine, Job};
    /// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
    /// let report = engine.run(Job::eval("m = max(x)")?.input("x", &[1.0, 2.0]).timeline(true))?;
    /// let html = report.html(); // what `_repr_html_` of a notebook returns
    /// assert!(html.starts_with("<div") && html.contains("m = max(x)"));
    /// # Ok::<(), overshot::Error>(())
    /// ```
    #[must_use]
    pub fn html(&self) -> String {
        let mut text = format!("<div class=\"overshot\">\n<style>{}</style>\n", style::FRAGMENT);
        text += &self.headline();
        text += &self.table_of_results();
        text += &self.table_of_passes();
        text += &self.shares();
        self.devices.iter().take(DEVICES).for_each(|device| text += &stages::device(self, device));
        if self.devices.len() > DEVICES {
            text += &left_out_text(self.devices.len() - DEVICES, "devices");
        }
        if let Some(timeline) = &self.timeline {
            text += &section("Timeline", &timeline::picture(timeline));
        }
        text += &self.table_of_columns();
        text += &self.table_of_details();
        text += &notes(&self.notes);
        text + "</div>\n"
    }

    fn headline(&self) -> String {
        let (what, text) = match &self.computation {
            Computation::Expression(text) => ("Report", text),
            Computation::Kernel(entry) => ("Report of the kernel", entry),
        };
        let devices: Vec<_> = self.devices.iter().take(DEVICES).map(name_of).collect();
        let on = if devices.is_empty() { String::new() } else { format!(" on {}", devices.join(", ")) };
        let mut numbers = vec![figure(&units::count(self.rows), if self.rows == 1 { "row" } else { "rows" })];
        if self.column_bytes() > 0 {
            numbers.push(figure(&units::bytes(self.column_bytes()), "in + out"));
        }
        let total = format!("{} with setup", units::time(self.total_time));
        numbers.push(figure(&units::time(self.time), &total));
        if let Some(time) = self.virtual_time() {
            numbers.push(figure(&units::time(time), "of virtual time"));
        }
        if let Some(rate) = self.rate() {
            numbers.push(figure(&units::rate(rate), "in + out"));
        }
        if let Some((device, bottleneck)) = self.bottleneck() {
            let whose = device.map(|device| format!("{}, ", escaped(&device.id, SHORT))).unwrap_or_default();
            let busy = format!("{:.0} %", 100.0 * bottleneck.busy);
            let what = if bottleneck.stage == bottleneck.busiest {
                format!("bottleneck: {whose}{busy} busy")
            } else {
                format!("bottleneck: {whose}{} only {busy} busy", bottleneck.busiest)
            };
            numbers.push(figure(&bottleneck.stage.to_string(), &what));
        }
        format!("<h3>{}</h3>\n{}{}", dim(&format!("{what}{on}")), lines_of_code(text), figures(&numbers))
    }

    fn table_of_results(&self) -> String {
        let row = |name: &str, value: Option<(String, String)>| {
            let name = code(&name.split_whitespace().collect::<Vec<_>>().join(" "));
            match value {
                Some((value, dtype)) => [name, code(&value), dtype],
                None => [name, "no value (no rows)".to_owned(), String::new()],
            }
        };
        let mut rows = Vec::new();
        for (name, value) in &self.results {
            rows.push(row(name, value.map(|value| (value.to_string(), value.dtype().name().to_owned()))));
        }
        for (name, array) in &self.arrays {
            let array = array.as_ref();
            let shown =
                array.map(|array| (array.to_string(), format!("{}, {}", array.dtype(), lengths(array.shape()))));
            rows.push(row(name, shown));
        }
        if rows.is_empty() {
            return String::new();
        }
        section("Results", &table(["result", "value", "dtype"], rows.into_iter(), "results"))
    }

    /// Returns the passes over the rows, if there are several.
    fn table_of_passes(&self) -> String {
        if self.passes.is_empty() {
            return String::new();
        }
        let rows = self.passes.iter().enumerate().map(|(number, pass)| {
            let names: Vec<_> = pass.inputs.iter().map(|input| input.name.as_str()).collect();
            let bottleneck = pass.bottleneck().map(|(_, bottleneck)| bottleneck.stage.to_string());
            let (bytes, time) = (units::bytes(pass.column_bytes()), units::time(pass.time));
            [(number + 1).to_string(), code(&names.join(", ")), bytes, time, bottleneck.unwrap_or_default()]
        });
        section("Passes", &table(["pass", "reads", "in + out", "time", "bottleneck"], rows, "passes"))
    }

    /// Returns how the rows were divided between devices, if there are several.
    fn shares(&self) -> String {
        let devices: Vec<&DeviceReport> = self.devices.iter().take(DEVICES).collect();
        let computed = self.computed_rows();
        if devices.len() < 2 || computed == 0 {
            return String::new();
        }
        let colours = || style::OTHERS.iter().copied().cycle();
        let part_of = |device: &DeviceReport| share(device.rows as f64, computed as f64);
        let parts: Vec<_> =
            devices.iter().zip(colours()).map(|(device, colour)| Part::new(colour, part_of(device))).collect();
        let names: Vec<_> = devices
            .iter()
            .map(|device| format!("{}: {:.0} %", escaped(&device.id, SHORT), 100.0 * part_of(device)))
            .collect();
        let words: Vec<_> =
            devices.iter().map(|device| format!("{} {:.0} %", device.id, 100.0 * part_of(device))).collect();
        let bar = bar(&parts, &format!("rows by device: {}", words.join(", ")));
        section("Rows by device", &format!("{bar}\n{}", keys(colours().zip(names.iter().map(String::as_str)))))
    }

    fn table_of_columns(&self) -> String {
        let of_input = self.inputs.iter().map(|input| {
            let rows = if input.shape.len() > 1 { lengths(&input.shape) } else { units::count(input.rows) };
            [
                place("input", &input.name, input.path.as_deref()),
                input.dtype.name().into(),
                rows,
                units::bytes(input.bytes),
            ]
        });
        let of_output = self.outputs.iter().map(|output| {
            let rows = units::count(output.rows);
            let place = place("output", &output.name, output.path.as_deref());
            [place, output.dtype.name().into(), rows, units::bytes(output.bytes)]
        });
        let rows: Vec<_> = of_input.chain(of_output).collect();
        if rows.is_empty() {
            return String::new();
        }
        section("Inputs and outputs", &table(["column", "dtype", "rows", "bytes"], rows.into_iter(), "columns"))
    }

    fn table_of_details(&self) -> String {
        let mut rows: Vec<(String, String)> = Vec::new();
        let mut add_row = |what: &str, value: String| rows.push((what.to_owned(), value));
        add_row("chunks", format!("{} of up to {}", units::count(self.chunks), units::counted(self.chunk_rows, "row")));
        if self.peak_pinned_bytes > 0 {
            add_row("pinned memory, peak", units::memory(self.peak_pinned_bytes));
        }
        for device in self.devices.iter().take(DEVICES).filter(|device| device.kind != DeviceKind::Cpu) {
            let what = format!("memory of {}, peak", escaped(&device.id, SHORT));
            add_row(&what, units::memory(device.peak_device_bytes));
        }
        for (what, bytes) in [
            ("copied to devices", self.bytes_to_device),
            ("of these, ahead of the values", self.bytes_ahead),
            ("copied from devices", self.bytes_from_device),
            ("read past the page cache", self.bytes_read_directly),
        ] {
            if bytes > 0 {
                add_row(what, units::bytes(bytes));
            }
        }
        if let Some(cores) = self.busy_cores() {
            add_row("cores busy", format!("{cores:.1}"));
        }
        let Setup { find, open, kernel, memory } = self.setup;
        for (what, time) in
            [("devices found and opened", find + open), ("kernel ready", kernel), ("memory allocated", memory)]
        {
            if !time.is_zero() {
                add_row(what, format!("in {}", units::time(time)));
            }
        }
        let rows = rows.into_iter().map(|(what, value)| [what, value]);
        section("Memory and setup", &table(["what", "value"], rows, "values"))
    }
}

/// Returns a device with its product name.
pub(super) fn name_of(device: &DeviceReport) -> String {
    format!("{} ({})", escaped(&device.id, SHORT), escaped(&device.name, SHORT))
}

/// Returns a number, and what it is, for the headline.
pub(super) fn figure(number: &str, what: &str) -> (String, String) {
    (number.to_owned(), what.to_owned())
}

/// Returns the lengths of the dimensions of an array.
fn lengths(shape: &[u64]) -> String {
    shape.iter().map(|length| units::count(*length)).collect::<Vec<_>>().join(" × ")
}

/// Returns the role, name and file of a column.
fn place(role: &str, name: &str, path: Option<&Path>) -> String {
    let mut text = format!("{} {}", dim(role), code(name));
    if let Some(path) = path {
        add(&mut text, format_args!("<br/>{}", code(&path.to_string_lossy())));
    }
    text
}
