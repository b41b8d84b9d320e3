//! The picture of a plan.

use super::bars::{Part, bar, gauge, share};
use super::markup::{SHORT, add, code, dim, escaped, figures, left_out_text, notes, section, table};
use super::report::{DEVICES, figure};
use super::style;
use crate::device::DeviceKind;
use crate::plan::{DevicePlan, Plan, PlanColumn};
use crate::units;

impl Plan {
    /// Returns a picture of this plan for a notebook: an HTML fragment with the columns, the size of chunks, and the
    /// workers, slots and memory of every device. It needs no script and no other file.
    /// [`html::page`](crate::html::page) makes a page of it.
    ///
    /// ```
    /// use overshot::{Engine, Job, device::Emulated};
    /// let engine = Engine::builder().device(Emulated::new()).build()?;
    /// let x = vec![1.0f64; 1_000_000];
    /// let html = engine.plan(&Job::eval("sum(x)")?.input("x", &x))?.html();
    /// assert!(html.starts_with("<div") && html.contains("pinned memory"));
    /// # Ok::<(), overshot::Error>(())
    /// ```
    #[must_use]
    pub fn html(&self) -> String {
        let mut text =
            format!("<div class=\"overshot\">\n<style>{}</style>\n<h3>{}</h3>\n", style::FRAGMENT, dim("Plan"));
        text += &self.headline();
        text += &self.table_of_passes();
        let most = self.devices.iter().flat_map(uses).map(|memory| memory.bytes).max().unwrap_or(0);
        self.devices.iter().take(DEVICES).for_each(|device| text += &self.device(device, most));
        if self.devices.len() > DEVICES {
            text += &left_out_text(self.devices.len() - DEVICES, "devices");
        }
        text += &format!("<p>{}</p>\n", dim("All bars have the same scale. The thin ones are the share of the limit."));
        if !self.columns.is_empty() {
            let rows = self.columns.iter().map(cells);
            text += &section("Columns", &table(["column", "dtype", "shape, or elements per row"], rows, "columns"));
        }
        text += &notes(&self.notes);
        text + "</div>\n"
    }

    fn headline(&self) -> String {
        let all = self.rows.saturating_mul(self.row_bytes);
        let chunk = self.chunk_rows.saturating_mul(self.row_bytes);
        let each = format!("{} of {}", if self.rows == 1 { "row" } else { "rows" }, bytes_of(self.row_bytes));
        let of_chunk = format!("in a chunk of up to {}", units::counted(self.chunk_rows, "row"));
        let tile = format!("in a tile; at least {} in a chunk", units::counted(self.min_chunk_rows, "row"));
        figures(&[
            figure(&units::count(self.rows), &each),
            figure(&units::memory(all), "in + out"),
            figure(&units::memory(chunk), &of_chunk),
            figure(&units::counted(self.tile_rows, "row"), &tile),
        ])
    }

    /// Returns the passes over the rows, if there are several. The rest of the picture is that of the last one.
    fn table_of_passes(&self) -> String {
        if self.passes.is_empty() {
            return String::new();
        }
        let rows = self.passes.iter().enumerate().map(|(number, pass)| {
            let names: Vec<_> = pass.columns.iter().map(|column| column.name.as_str()).collect();
            [(number + 1).to_string(), code(&names.join(", ")), bytes_of(pass.row_bytes)]
        });
        let which = format!("<p>{}</p>\n", dim("What follows is of the last pass, and the columns are those of all."));
        section("Passes", &(table(["pass", "columns and values", "bytes of a row"], rows, "passes") + &which))
    }

    /// Returns the section of one device. The largest amount of memory of all devices fills the width.
    fn device(&self, device: &DevicePlan, most: u64) -> String {
        let mut facts = match device.first_workers {
            first if first < device.workers => vec![format!("{first} workers at first, at most {}", device.workers)],
            _ => vec![units::counted(device.workers as u64, "worker")],
        };
        match device.kind {
            DeviceKind::Cpu => facts.push("no slots: rows are used where they are".into()),
            _ => facts.push(format!("{} a worker", units::counted(device.slots as u64, "slot"))),
        }
        if device.max_chunk_rows < self.chunk_rows {
            facts.push(format!("chunks of up to {}", units::counted(device.max_chunk_rows, "row")));
        }
        if device.fill_rows < device.max_chunk_rows {
            facts.push(format!("a slot for {} of a chunk at a time", units::counted(device.fill_rows, "row")));
        }
        if device.halvings > 0 {
            facts.push(format!("may halve its chunks {}", units::counted(u64::from(device.halvings), "time")));
        }
        let mut content = format!("<p>{}</p>\n", facts.join("; "));
        content.push_str(
            "<table class=\"overshot-full\">\n<thead><tr><th scope=\"col\">memory</th><th scope=\"col\">bytes</th>\
             <th scope=\"col\">limit</th></tr></thead>\n<tbody>\n",
        );
        for memory in uses(device) {
            content += &memory.rows(most);
        }
        content.push_str("</tbody>\n</table>\n");
        section(&format!("{} ({})", escaped(&device.id, SHORT), escaped(&device.name, SHORT)), &content)
    }
}

/// One kind of memory that a device uses.
struct Memory {
    what: &'static str,
    /// How the bytes come about.
    formula: String,
    bytes: u64,
    limit: Option<u64>,
    /// Each part with its bytes and the number of its pieces.
    parts: Vec<(&'static str, u64, u64)>,
}

/// Returns the kinds of memory that a device uses.
fn uses(device: &DevicePlan) -> Vec<Memory> {
    let DevicePlan { workers, slots, blocks, block_bytes, slot_bytes, .. } = device;
    let staging = Memory {
        what: "other memory",
        formula: match device.kind {
            DeviceKind::Cpu => {
                let each = device.other_bytes / (*workers).max(1) as u64;
                format!("{} × {} staging", units::counted(*workers as u64, "worker"), units::memory(each))
            }
            _ => "nothing else is staged".into(),
        },
        bytes: device.other_bytes,
        limit: None,
        parts: vec![(style::colour("drain"), device.other_bytes, *workers as u64)],
    };
    if device.kind == DeviceKind::Cpu {
        return vec![staging];
    }
    let mut of_device = format!("{} × {}", units::counted(*blocks as u64, "block"), units::memory(*block_bytes));
    if device.resident_bytes > 0 {
        add(&mut of_device, format_args!(" + {} resident", units::memory(device.resident_bytes)));
    }
    let pieces = (workers * slots) as u64;
    let of_slots = format!(
        "{} × {} × {}",
        units::counted(*workers as u64, "worker"),
        units::counted(*slots as u64, "slot"),
        units::memory(*slot_bytes)
    );
    let pool = device.device_bytes.saturating_sub(device.resident_bytes);
    let mut all = vec![
        Memory {
            what: "device memory",
            formula: of_device,
            bytes: device.device_bytes,
            limit: Some(device.device_limit),
            parts: vec![
                (style::colour("kernel"), pool, *blocks as u64),
                (style::colour("copy out"), device.resident_bytes, 1),
            ],
        },
        Memory {
            what: "pinned memory",
            formula: of_slots,
            bytes: device.pinned_bytes,
            limit: Some(device.pinned_limit),
            parts: vec![(style::colour("copy in"), device.pinned_bytes, pieces)],
        },
    ];
    if device.other_bytes > 0 {
        all.push(staging);
    }
    all
}

impl Memory {
    /// Returns two rows of a table: the numbers, and the bars. A bar that fills the width has `most` bytes.
    fn rows(&self, most: u64) -> String {
        let Memory { what, formula, bytes, limit, parts } = self;
        let shown = units::memory(*bytes);
        let of_limit = limit.map_or_else(|| "none".into(), units::memory);
        let mut text =
            format!("<tr><th scope=\"row\">{what}<br/>{}</th><td>{shown}</td><td>{of_limit}</td></tr>\n", dim(formula));
        let parts: Vec<_> = parts
            .iter()
            .filter(|(_, bytes, _)| *bytes > 0)
            .map(|(colour, bytes, pieces)| Part {
                pieces: *pieces,
                ..Part::new(colour, share(*bytes as f64, most as f64))
            })
            .collect();
        let mut bars = bar(&parts, &format!("{what}: {formula} = {shown}"));
        if let Some(limit) = limit.filter(|limit| *limit > 0) {
            let used = share(*bytes as f64, limit as f64);
            let line = format!("{} % of the limit", used_text(used));
            bars += &gauge(used, &line);
            bars += &dim(&line);
        }
        add(&mut text, format_args!("<tr><td colspan=\"3\">{bars}</td></tr>\n"));
        text
    }
}

/// Returns a share as a number of percent, with a digit after the point if it is small.
fn used_text(share: f64) -> String {
    let percent = 100.0 * share;
    if percent < 9.95 { format!("{percent:.1}") } else { format!("{percent:.0}") }
}

/// Returns the cells of a column.
fn cells(column: &PlanColumn) -> [String; 3] {
    let PlanColumn { name, role, dtype, elements, shape, place, exists } = column;
    let mut first = format!("{} {}", dim(role.name()), code(name));
    if let Some(place) = place {
        add(&mut first, format_args!("<br/>{}", code(place)));
    }
    if *exists {
        add(&mut first, format_args!(" {}", dim("(exists already)")));
    }
    let size = shape.as_ref().map_or_else(|| units::count(*elements), |shape| units::shape(shape));
    [first, escaped(dtype, SHORT), size]
}

/// Returns a number of bytes as words.
fn bytes_of(bytes: u64) -> String {
    units::counted(bytes, "byte")
}
