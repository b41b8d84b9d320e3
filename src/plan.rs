//! The plan of a job: chunk rows, workers, slots and bytes. Planning is pure: it opens, allocates and runs nothing.

mod column;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use bytesize::ByteSize;

pub use self::column::{PlanColumn, Role};
use crate::device::kernel::Columns;
use crate::device::product::PRODUCT_ROWS;
use crate::device::{DeviceInfo, DeviceKind};
use crate::error::{Error, Result};
use crate::limits::{MachineLimits, RateBySize, RateByThreads};
use crate::memory::{Layout, PanelLayout};
use crate::ops::most_nodes;

/// Bytes of a chunk (inputs + outputs) if nothing is staged. Only the link matters then, and it is fastest with long
/// copies.
const PINNED_CHUNK: u64 = 32 << 20;
/// Bytes of a chunk on the CPU: large enough to hide the overhead per chunk, small enough to stay in the cache of a
/// core.
const HOST_CHUNK: u64 = 1 << 20;
/// Bytes of columns for which another worker of a GPU is worth its creation. With one worker instead of two,
/// `c = a * b` with 1 MiB of columns takes 190 µs instead of 235 (`latency --device cuda`).
const SMALL_PART: u64 = 2 << 20;
/// Bytes of a slot if columns are staged. Copies smaller than the first are too short for the link; nothing is gained
/// beyond the second.
const STAGED_SLOT: Range<u64> = 1 << 20..8 << 20;
/// Bytes of a chunk on the emulated device. It does not depend on the machine, so that a seed gives the same run
/// everywhere.
const EMULATED_CHUNK: u64 = 4 << 20;
/// Bytes of a chunk whose rows are all on the device, if its kernel needs memory for each row: each chunk has a few
/// calls of the driver, which take longer than the kernel of a small one.
const RESIDENT_CHUNK: u64 = 16 << 20;
/// To fit a memory limit, the plan reduces everything else before it makes chunks smaller than this.
const SMALL_CHUNK: u64 = 512 << 10;
/// Bytes of columns from which a run adapts the number of its staging workers: a smaller job ends before the change
/// makes a difference.
const ADAPTIVE: u64 = 512 << 20;
/// Bytes of a fill of a chunk that is larger than a slot, unless the limits are smaller: each is a copy of its own.
const SMALL_FILL: u64 = 64 << 10;
/// A run may have so many times as many staging workers as it has at the beginning.
const MORE_WORKERS: f64 = 1.5;
/// If slots of a tile are so large that they do not stay in the cache, this part of the first workers is enough.
/// Measured with two H200 in one host with 300 MiB of last-level cache: k-means with 64 centres, whose slots have
/// 4 MiB, takes 0.27 to 0.31 s for 24 GiB with 8 workers a GPU, 0.27 to 0.35 with 13, and 0.42 with 12 whose number is
/// fixed; with one H200, 0.49 s with 8 or 13 workers, and 0.56 with 6 (`benches/results/h200-kmeans`).
const ENOUGH_WORKERS: f64 = 2.0 / 3.0;
/// A run halves its chunks so often at most.
const MOST_HALVINGS: u32 = 2;
/// A chunk has at least so many times the bytes of the words that its kernel adds to, which are zeroed, copied and
/// added for each chunk.
const CHUNK_PER_WORDS: u64 = 8;
/// A chunk that may be larger than a slot has so many times these bytes, if the job is long enough and the device has
/// memory.
const FILLS_PER_WORDS: u64 = 32;

/// The bytes of a chunk for each byte of its halo.
const CHUNK_PER_HALO: u64 = 4;
/// The upper bound of every chunk, even if the caller sets more: far beyond any use, and small enough that no product
/// with it overflows.
const MAX_CHUNK: u64 = 64 << 30;
/// While one panel is multiplied, others are filled. With the fewest, a slow worker holds up all others.
const MOST_PANELS: usize = 3;
const LEAST_PANELS: usize = 2;
/// With fewer blocks than this, copies in, kernels and copies out cannot overlap.
const OVERLAP_BLOCKS: usize = 4;

/// The limits set by the caller. `None` leaves a value to the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunLimits {
    /// Bytes per device.
    pub(crate) device_memory: Option<u64>,
    /// Bytes per device.
    pub(crate) pinned_memory: Option<u64>,
    /// Bytes of a chunk, inputs + outputs.
    pub(crate) chunk: Option<u64>,
    /// Workers per device.
    pub(crate) workers: Option<usize>,
    /// Upper bounds for the bytes of a chunk, by device id, for devices that had no memory for larger chunks.
    pub(crate) caps: BTreeMap<String, u64>,
    /// Bytes of device memory used by rows that outlive runs, by device id. Runs have only the rest.
    pub(crate) stays: BTreeMap<String, u64>,
    /// Whether the run shares the remaining device memory and the pinned memory with another run at the same time.
    /// Each gets half.
    pub(crate) is_half: bool,
}

impl RunLimits {
    /// Returns how many of these bytes of a device's memory are left for a run.
    pub(crate) fn left(&self, id: &str, bytes: u64) -> u64 {
        self.part(bytes.saturating_sub(self.stays.get(id).copied().unwrap_or(0)))
    }

    /// Returns the pinned memory that a run may use for each device.
    pub(crate) fn pinned(&self) -> u64 {
        self.part(self.pinned_memory.unwrap_or(DEFAULT_PINNED))
    }

    fn part(&self, bytes: u64) -> u64 {
        if self.is_half { bytes / 2 } else { bytes }
    }
}

/// The default limit on pinned memory per device, in bytes.
const DEFAULT_PINNED: u64 = 256 << 20;

/// The properties of the machine that a plan depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    /// Bytes of the last-level cache that the slabs of all devices may occupy. Slots that stay in the cache are
    /// filled, copied and drained at the speed of the cache; larger slabs are limited by memory.
    pub(crate) slab_bytes: u64,
    /// Bytes per second that one core fills or drains while the other cores do the same.
    pub(crate) core_stages: f64,
    /// Bandwidth of a GPU's link in one direction, in bytes per second.
    pub(crate) link: f64,
}

impl Machine {
    /// Returns the assumptions for a machine that was not measured: those of a current server and its link.
    const fn guess(cores: usize) -> Machine {
        Machine { cores, slab_bytes: MAX_SLAB_BYTES, core_stages: 7e9, link: 55e9 }
    }

    /// Returns the machine as measured, or a guess. `files` tells whether rows come from or go to files: mapping
    /// their pages takes time of the cores, too.
    pub(crate) fn of(limits: Option<&MachineLimits>, cores: usize, files: bool) -> Machine {
        let mut machine = Machine::guess(cores);
        if let Some(limits) = limits {
            machine.measured(limits, files);
        }
        if files {
            machine.core_stages *= 0.75;
        }
        machine
    }

    fn measured(&mut self, MachineLimits { host, devices, .. }: &MachineLimits, files: bool) {
        if host.last_level_cache_bytes > 0 {
            self.slab_bytes = (host.last_level_cache_bytes / 3).clamp(MIN_SLAB_BYTES, MAX_SLAB_BYTES);
        }
        let busy = (self.cores * 3 / 4).max(1);
        let [stage, page_cache] = [&host.stage, &host.page_cache].map(|rates| RateByThreads::with(rates, busy));
        if let Some(rate) = stage.into_iter().chain(page_cache.filter(|_| files)).reduce(f64::min) {
            // Copies to and from the device take some memory bandwidth, which they did not during the measurement.
            self.core_stages = (0.9 * rate / busy as f64).max(1e9);
        }
        let links = devices.iter().filter_map(|device| Some(RateBySize::best(&device.copy_in)?.bytes_per_second));
        self.link = links.reduce(f64::max).unwrap_or(self.link);
    }
}

/// Bounds for the bytes of the slabs of all devices together. More does not stay in any cache; with less, nothing
/// overlaps.
const MAX_SLAB_BYTES: u64 = 96 << 20;
const MIN_SLAB_BYTES: u64 = 64 << 20;

/// The properties of a job that a plan depends on.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) rows: u64,
    pub(crate) columns: Columns,
    /// Bytes of arrays that stay on every device for the whole job.
    pub(crate) resident_bytes: u64,
    /// For every input and output: whether it is in memory (slice, map).
    pub(crate) in_memory: Vec<bool>,
    /// For every input and output: whether it is in pinned memory.
    pub(crate) pinned: Vec<bool>,
    /// Whether all columns of some rows are resident on a device.
    pub(crate) has_resident_rows: bool,
    /// Whether the kernel selects rows.
    pub(crate) compacts: bool,
    /// Whether an input is decoded while it is read, or an output encoded while it is written.
    pub(crate) decodes: bool,
    /// The most bytes in which inputs keep decoded rows, as far as they know.
    pub(crate) decode_bytes: u64,
    /// For every output: the bytes of the rows that are encoded as a whole, or 0; and of all rows.
    pub(crate) grains: Vec<(u64, u64)>,
    /// Words of the partial results of a tile that are combined with those of others.
    pub(crate) node_words: usize,
    /// Words of a tile that are kept until the end.
    pub(crate) kept_words: usize,
}

impl Shape {
    /// Returns the most bytes in which rows of outputs are put together and encoded. Each chunk under way leaves at
    /// most two grains unfinished, and those that are next on a device one more. Each worker has a finished one, and
    /// what it makes of that. Three of each output wait for others in a file, or are written to it. All rows take at
    /// most six times their bytes: as they are, whole, and encoded, which small integers are as four bytes.
    fn encode_bytes(&self, devices: &[DevicePlan]) -> u64 {
        let held = if self.compacts { MOST_HELD } else { 1 };
        let chunks: usize = devices.iter().map(|device| device.workers * device.slots.max(held)).sum();
        let workers: usize = devices.iter().map(|device| device.workers).sum();
        let most = (2 * chunks + devices.len() + 2 * workers + 3) as u64;
        self.grains
            .iter()
            .map(|(grain, all)| grain.saturating_mul(most).min(all.max(grain).saturating_mul(6)))
            .fold(0, u64::saturating_add)
    }

    /// Returns the most bytes of partial results on the host, besides those of chunks under way. Each worker may have
    /// sums of the words of chunks, and the first half of a node that it combines. What is kept is copied for the
    /// results, and each tile may be a chunk with a place of its own.
    fn state_bytes(&self, tiles: u64, devices: &[DevicePlan]) -> u64 {
        let held = if self.compacts { MOST_HELD } else { 1 };
        let chunks: usize = devices.iter().map(|device| device.workers * device.slots.max(held)).sum();
        let workers: usize = devices.iter().map(|device| device.workers).sum();
        let nodes = most_nodes(tiles, chunks as u64).saturating_add(workers as u64);
        let sums = ((workers + 5) * self.columns.chunk_words) as u64;
        let kept = match self.kept_words {
            0 => 0,
            words => tiles.saturating_mul(4 * words as u64 + 8),
        };
        nodes.saturating_mul(self.node_words as u64).saturating_add(sums).saturating_add(kept).saturating_mul(8)
    }
}

/// The most computed chunks of a CPU worker that wait for their places in compacted outputs. If a worker with a chunk
/// before them loses its core, others go on meanwhile.
pub(crate) const MOST_HELD: usize = 4;

/// The plan of a job: how it would be run. `Display` is for people, `Serialize` for programs.
///
/// ```
/// use overshot::{Engine, Job, device::Emulated};
/// let engine = Engine::builder().device(Emulated::new()).device_memory(1 << 20).build()?;
/// let x = vec![1.0f64; 1_000_000];
/// let plan = engine.plan(&Job::eval("sum(x)")?.input("x", &x))?;
/// println!("{plan}");
/// assert_eq!((plan.rows, plan.row_bytes, plan.tile_rows), (1_000_000, 8, 4096));
/// let device = &plan.devices[0];
/// assert!(device.device_bytes <= 1 << 20 && device.max_chunk_rows.is_multiple_of(plan.tile_rows));
/// # Ok::<(), overshot::Error>(())
/// ```
#[derive(Clone, Debug, serde::Serialize)]
#[non_exhaustive]
#[must_use = "a plan changes nothing"]
pub struct Plan {
    /// The columns of the job: inputs, outputs, then values and arrays that are the same for all rows, and results that
    /// are arrays.
    pub columns: Vec<PlanColumn>,
    /// The reasons why the job could not be run here, if any.
    pub notes: Vec<String>,
    /// Rows of the job.
    pub rows: u64,
    /// Bytes of one row, inputs + outputs.
    pub row_bytes: u64,
    /// Rows of a tile.
    pub tile_rows: u64,
    /// Rows of the largest chunk of any device, in whole tiles. The first and last chunks are smaller.
    pub chunk_rows: u64,
    /// Rows of the smallest chunks, at the end of a run.
    pub min_chunk_rows: u64,
    /// The most bytes of memory in which inputs keep rows that are decoded or read ahead, for all devices
    /// ([`Source::decode_memory`](crate::Source::decode_memory)).
    pub decode_bytes: u64,
    /// The most bytes of memory in which rows of outputs wait for those that are encoded with them
    /// ([`Target::grain_bytes`](crate::io::Target::grain_bytes)), and are encoded.
    pub encode_bytes: u64,
    /// The most bytes of memory in which partial results of reductions wait for those of other rows, in whatever order
    /// these are complete. A reduction along the rows has a partial result of a row's size for every tile. Products of
    /// matrices have their sums besides.
    pub state_bytes: u64,
    /// The devices.
    pub devices: Vec<DevicePlan>,
    /// The plans of the passes over the rows, in order, if the expression needs several
    /// ([`Expression::passes`](crate::Expression::passes)); empty otherwise. The fields above are those of the last
    /// pass, but `columns` are those of the whole job.
    pub passes: Vec<Plan>,
}

/// The part of a plan that concerns one device.
#[derive(Clone, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct DevicePlan {
    /// Its id, as [`DeviceChoice`](crate::DeviceChoice) parses it, such as `cuda:0`.
    pub id: String,
    /// The product name.
    pub name: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// The number of workers. Each is a host thread.
    pub workers: usize,
    /// The number of workers that the run begins with. A long run without CPU workers adapts the number, up to
    /// `workers`, to the measured times.
    pub first_workers: usize,
    /// How often the run may halve the chunks of this device if smaller ones are faster.
    pub halvings: u32,
    /// The most rows that a worker claims at a time: a full chunk of this device.
    pub max_chunk_rows: u64,
    /// The most rows of a chunk that a slot holds at a time. A chunk of more rows is staged in several fills, which are
    /// put together in its block.
    pub fill_rows: u64,
    /// Slots per worker; 0 on the CPU.
    pub slots: usize,
    /// Blocks in the pool of device memory.
    pub blocks: usize,
    /// Bytes of a block, which holds one chunk on the device.
    pub block_bytes: u64,
    /// Bytes of a slot, which holds the staged columns of one chunk, or of `fill_rows` of its rows, in pinned memory.
    pub slot_bytes: u64,
    /// Panels in which the rows of several chunks are put together to be multiplied; 0 without products over the rows,
    /// and on the CPU.
    pub panels: usize,
    /// Bytes of these panels, of the sums of the products, and of what the device needs to multiply.
    pub panel_bytes: u64,
    /// Bytes that stay on the device for the whole job: arrays, and what the device needs to multiply rows by them.
    pub resident_bytes: u64,
    /// `blocks * block_bytes + panel_bytes + resident_bytes`.
    pub device_bytes: u64,
    /// `workers * slots * slot_bytes`, and the memory through which sums of products come to the host.
    pub pinned_bytes: u64,
    /// Bytes of pageable memory in which CPU workers stage columns that are not in memory.
    pub other_bytes: u64,
    /// The limit on device memory in bytes, without the memory of arrays and datasets that stay on the device; 0 on
    /// the CPU.
    pub device_limit: u64,
    /// The limit on pinned memory in bytes; 0 on the CPU.
    pub pinned_limit: u64,
    #[serde(skip)]
    pub(crate) layout: Layout,
}

impl Plan {
    /// Plans a job on these devices of this machine.
    pub(crate) fn new(shape: &Shape, devices: &[DeviceInfo], limits: &RunLimits, machine: &Machine) -> Result<Plan> {
        let columns = &shape.columns;
        let row_bytes = columns.inputs.iter().chain(&columns.outputs).sum::<usize>().max(1) as u64;
        let staged: Vec<bool> = shape.pinned.iter().map(|pinned| !pinned).collect();
        let tile = match devices.iter().all(|info| info.kind == DeviceKind::Cpu) && !columns.products.is_empty() {
            // The CPU multiplies all rows of a leaf at a time.
            true => PRODUCT_ROWS.next_multiple_of(columns.unit_rows()),
            false => columns.unit_rows(),
        };
        let tiles = shape.rows.div_ceil(tile as u64).clamp(1, (usize::MAX / tile / 64) as u64) as usize;
        let gpus = devices.iter().filter(|info| info.kind != DeviceKind::Cpu).count();
        let resident_bytes = shape.resident_bytes;
        let has_cpu = gpus < devices.len();
        let panels = PanelLayout::new(columns);
        let need = Need {
            columns,
            staged: &staged,
            limits,
            row_bytes,
            resident_bytes,
            tile,
            tiles,
            panels: panels.as_ref(),
            machine,
            gpus,
            has_cpu,
            decodes: shape.decodes,
            has_resident_rows: shape.has_resident_rows,
        };
        let drafts = devices.iter().map(|info| need.draft(info)).collect::<Result<Vec<_>>>()?;
        // One queue serves all devices, and each claims chunks that fit its memory. If there are GPUs, CPU workers
        // claim no larger chunks than they do.
        let staging = drafts.iter().filter(|draft| draft.slots > 0).map(|draft| draft.chunk_rows).max();
        let chunk_rows = staging.or(drafts.iter().map(|draft| draft.chunk_rows).max()).unwrap_or(tile);
        // Copies of a third of a chunk are still efficient. A core loses nothing with smaller chunks.
        let whole = drafts.iter().filter(|draft| draft.slots > 0).map(|draft| draft.worthwhile_rows).max();
        let least = whole.map_or(chunk_rows / 8, |rows| chunk_rows.min(rows) / 3);
        let min_chunk_rows = (least / tile * tile).max(tile);
        let devices: Vec<_> = drafts.into_iter().map(|draft| need.settle(draft, chunk_rows, shape)).collect();
        Ok(Plan {
            columns: vec![],
            notes: vec![],
            rows: shape.rows,
            row_bytes,
            decode_bytes: shape.decode_bytes,
            encode_bytes: shape.encode_bytes(&devices),
            state_bytes: shape.state_bytes(shape.rows.div_ceil(columns.tile_rows as u64), &devices),
            tile_rows: tile as u64,
            chunk_rows: chunk_rows as u64,
            min_chunk_rows: min_chunk_rows as u64,
            devices,
            passes: vec![],
        })
    }

    /// Returns the number of workers of all devices of a kind.
    pub(crate) fn workers_of(&self, kind: DeviceKind) -> usize {
        self.devices.iter().filter(|device| device.kind == kind).map(|device| device.workers).sum()
    }

    /// Returns the number of devices with their own memory.
    pub(crate) fn gpus(&self) -> usize {
        self.devices.iter().filter(|device| device.kind != DeviceKind::Cpu).count()
    }

    /// Returns the number of workers of all devices.
    pub(crate) fn workers(&self) -> usize {
        self.devices.iter().map(|device| device.workers).sum()
    }
}

/// The inputs of planning that are the same for all devices.
struct Need<'a> {
    columns: &'a Columns,
    staged: &'a [bool],
    limits: &'a RunLimits,
    row_bytes: u64,
    resident_bytes: u64,
    /// Rows of a tile, of which chunks are multiples.
    tile: usize,
    /// Tiles of the job. No chunk needs more.
    tiles: usize,
    /// Where products over the rows have their operands and sums; `None` if there are none.
    panels: Option<&'a PanelLayout>,
    machine: &'a Machine,
    /// The number of devices with their own memory.
    gpus: usize,
    /// Whether the CPU computes, too.
    has_cpu: bool,
    /// Whether an input is decoded while it is read.
    decodes: bool,
    /// Whether all columns of some rows are resident on a device.
    has_resident_rows: bool,
}

/// The plan of one device before the chunk size of all devices is known.
#[derive(Clone)]
struct Draft<'a> {
    info: &'a DeviceInfo,
    workers: usize,
    first_workers: usize,
    slots: usize,
    chunk_rows: usize,
    /// The rows of a chunk that is no larger than it has to be.
    worthwhile_rows: usize,
    /// Rows of a chunk in a slot.
    fill_rows: usize,
    panels: usize,
    device_limit: u64,
    pinned_limit: u64,
}

impl Draft<'_> {
    /// Returns whether a chunk is staged in several fills.
    fn has_fills(&self) -> bool {
        self.fill_rows < self.chunk_rows
    }

    /// Makes chunks smaller.
    fn set_chunk_rows(&mut self, rows: usize) {
        self.chunk_rows = rows;
        self.fill_rows = self.fill_rows.min(rows);
    }
}

impl Need<'_> {
    fn draft<'d>(&self, info: &'d DeviceInfo) -> Result<Draft<'d>> {
        let (first_workers, workers, slots, target) = match info.kind {
            DeviceKind::Cpu => {
                let workers = self.machine.cores.min(self.tiles);
                (workers, workers, 0, HOST_CHUNK)
            }
            DeviceKind::Emulated => (4, 4, 2, EMULATED_CHUNK),
            DeviceKind::Cuda => {
                let staged = self.staged.contains(&true);
                let (first, workers, slots, target) = if staged { self.staging() } else { (2, 2, 3, PINNED_CHUNK) };
                // A small job ends before many threads have begun.
                let most = usize::try_from(self.bytes().div_ceil(SMALL_PART)).unwrap_or(workers);
                (first.min(most), workers.min(most), slots, target)
            }
        };
        let staged_limits = info.kind != DeviceKind::Cpu;
        let cap = self.limits.caps.get(&info.id).copied().unwrap_or(MAX_CHUNK);
        let workers = self.limits.workers.unwrap_or(workers).max(1);
        let rows_of = |worthwhile: u64| self.rows_of(self.limits.chunk.unwrap_or(target.max(worthwhile)).min(cap));
        let worthwhile_rows = rows_of(self.worthwhile(CHUNK_PER_WORDS));
        let (chunk_rows, fill_rows) = match staged_limits && self.may_have_fills() {
            true => {
                // No worker claims more than its share.
                let share = self.tiles.div_ceil(workers) * self.tile;
                let fill = self.limits.chunk.unwrap_or(target).min(cap).max(SMALL_FILL) / self.row_bytes;
                (rows_of(self.worthwhile(FILLS_PER_WORDS)).min(share).max(worthwhile_rows), fill)
            }
            false => (worthwhile_rows, u64::MAX),
        };
        let draft = Draft {
            info,
            workers,
            first_workers: self.limits.workers.unwrap_or(first_workers).max(1),
            slots,
            panels: if staged_limits && self.panels.is_some() { MOST_PANELS } else { 0 },
            chunk_rows,
            worthwhile_rows,
            fill_rows: usize::try_from(fill_rows).unwrap_or(usize::MAX).clamp(1, chunk_rows),
            device_limit: match self.limits.device_memory {
                _ if !staged_limits => 0,
                Some(limit) => self.limits.left(&info.id, limit.min(info.memory_bytes)),
                None => self.limits.left(&info.id, info.memory_bytes),
            },
            pinned_limit: if staged_limits { self.limits.pinned() } else { 0 },
        };
        if !staged_limits {
            return Ok(draft);
        }
        let rows = draft.worthwhile_rows;
        let whole = Draft { chunk_rows: rows, fill_rows: rows, ..draft.clone() };
        let fills = self.fitted(draft)?;
        // A worker holds a block from the first fill of a chunk on. If there are few of them, it is faster to fill
        // whole chunks.
        let blocks = self.blocks_of(&fills);
        let whole = (fills.has_fills() && blocks < fills.workers).then(|| self.fitted(whole).ok()).flatten();
        Ok(whole.filter(|whole| !whole.has_fills() && whole.workers > blocks).unwrap_or(fills))
    }

    /// Fits the plan into the limits.
    fn fitted<'d>(&self, mut draft: Draft<'d>) -> Result<Draft<'d>> {
        self.fit_pinned(&mut draft)?;
        self.fit_device(&mut draft)?;
        Ok(draft)
    }

    /// Returns the bytes of the columns of the job.
    fn bytes(&self) -> u64 {
        self.row_bytes.saturating_mul((self.tiles * self.tile) as u64)
    }

    /// Returns whether the run adapts its staging workers. In a run with CPU workers the arbiter shares the cores
    /// instead. Virtual time is long enough for everything.
    fn adapts(&self, kind: DeviceKind) -> bool {
        let is_long = kind == DeviceKind::Emulated || self.bytes() >= ADAPTIVE;
        is_long && self.limits.workers.is_none() && !self.has_cpu
    }

    /// Returns the first number of workers, the most workers, slots and bytes of a chunk for a GPU with staged columns.
    /// There are enough workers to fill and drain at the bandwidth of its link, and a tenth more, because workers
    /// sometimes wait. All slots together stay in the cache.
    fn staging(&self) -> (usize, usize, usize, u64) {
        // Two, so that a worker fills one while the other is in flight.
        let slots = 2;
        let Machine { cores, slab_bytes, core_stages, link } = *self.machine;
        let bytes = |columns: &[usize], staged: &[bool]| -> usize {
            columns.iter().zip(staged).filter(|(_, staged)| **staged).map(|(bytes, _)| bytes).sum()
        };
        let (ins, outs) = self.staged.split_at(self.columns.inputs.len());
        let (fills, drains) = (bytes(&self.columns.inputs, ins), bytes(&self.columns.outputs, outs));
        let [into, out] = [&self.columns.inputs, &self.columns.outputs].map(|columns| columns.iter().sum::<usize>());
        // The link copies in both directions at once, so the direction with more bytes takes all of the time.
        let rows_per_second = link / into.max(out).max(1) as f64;
        let wanted = 1.1 * rows_per_second * (fills + drains) as f64 / core_stages;
        // Leaves an eighth of the cores to everything else on the machine.
        let most = (cores - cores.div_ceil(8).min(cores - 1)) / self.gpus.max(1);
        let most = most.clamp(2, 16);
        // Decoding takes a core several times as long as the link takes to copy, so that all cores decode.
        let most = if self.decodes { cores.div_ceil(self.gpus.max(1)).max(2) } else { most };
        let first = if self.decodes { most } else { (wanted.ceil() as usize).clamp(2, most) };
        let workers =
            if self.adapts(DeviceKind::Cuda) { ((MORE_WORKERS * first as f64) as usize).min(most) } else { first };
        // Rows of outputs stay in the cache for twice as long. So the slab takes 4/3 of its share of the cache if
        // there is no output, 1 if the output is half as large as the input, 2/3 if it is as large. Measured with two
        // H200 in one host with 300 MiB of last-level cache (`throughput --device cuda --size 2GiB --only JOB --chunk
        // SIZE`), with slots of 1 to 2.5 MiB: `sum(a)` is fastest with the largest (75 to 90 GB/s), `c = a * b` with
        // 2 MiB (127), `c = a + 1` with 1 to 1.25 MiB (132, but 100 with the largest).
        let (less, more) = (fills.min(drains) as u64, fills.max(drains).max(1) as u64);
        let slab_bytes = slab_bytes.saturating_mul(4 * more - 2 * less) / (3 * more);
        let share = slab_bytes / self.gpus.max(1) as u64;
        // A slot holds a tile at least, if chunks have no fills. With more workers than the cache has room for, all of
        // them are slower.
        let tile = (self.tile as u64).saturating_mul(more);
        let workers = match self.decodes || self.may_have_fills() || tile > STAGED_SLOT.end {
            true => workers,
            false => {
                let enough = (first as f64 * ENOUGH_WORKERS).ceil() as u64;
                workers.min((share / tile / slots as u64).max(enough) as usize)
            }
        };
        let first = first.min(workers);
        let slot = (share / (workers * slots) as u64).clamp(STAGED_SLOT.start, STAGED_SLOT.end);
        // The outputs in a slot overwrite the inputs, so a slot holds the larger of the two.
        let chunk = slot.saturating_mul(self.row_bytes) / more;
        (first, workers, slots, chunk.min(PINNED_CHUNK))
    }

    /// Returns the bytes from which a chunk is large against the rows around it, which are copied with it, and has so
    /// many times the bytes of the words that its kernel adds to.
    fn worthwhile(&self, per_words: u64) -> u64 {
        let words = (self.columns.chunk_partials().end as u64).saturating_mul(per_words);
        words.max(self.halo_bytes().saturating_mul(CHUNK_PER_HALO))
    }

    /// Returns the bytes of a chunk that has no smaller halves, unless there is no other way.
    fn small(&self) -> u64 {
        SMALL_CHUNK.max(self.halo_bytes().saturating_mul(2))
    }

    /// Returns the bytes of the rows around a chunk that its kernel reads.
    fn halo_bytes(&self) -> u64 {
        let halos = self.columns.inputs.iter().zip(&self.columns.halos);
        halos.map(|(size, halo)| (*size as u64).saturating_mul((halo.before + halo.after) as u64)).sum()
    }

    /// Returns the rows of a chunk of about `bytes`: whole tiles, at least one.
    fn rows_of(&self, bytes: u64) -> usize {
        let tile = self.tile;
        let tiles = usize::try_from(bytes / self.row_bytes / tile as u64).unwrap_or(usize::MAX);
        tiles.min(self.columns.most_rows / tile).clamp(1, self.tiles) * tile
    }

    /// Returns whether chunks may have several fills: if an input is staged, and all that is staged allows it.
    fn may_have_fills(&self) -> bool {
        self.staged[..self.columns.inputs.len()].contains(&true) && self.columns.may_have_fills()
    }

    fn layout(&self, chunk_rows: usize, fill_rows: usize) -> Layout {
        Layout::new(self.columns, self.staged, (chunk_rows, fill_rows), chunk_rows)
    }

    /// Returns the layout of chunks of so many rows. If some rows are all on a device, and the kernel needs memory for
    /// each row, blocks have room for larger chunks of such rows, as far as that leaves as many blocks.
    fn final_layout(&self, draft: &Draft<'_>, chunk_rows: usize) -> Layout {
        let layout = self.layout(chunk_rows, draft.fill_rows);
        if !self.has_resident_rows || self.columns.scratch.is_empty() || draft.slots == 0 {
            return layout;
        }
        let blocks = self.blocks(draft, &layout);
        let fits = |larger: &Layout| self.blocks(draft, larger) == blocks && larger.slot_bytes == layout.slot_bytes;
        let half = |rows: &usize| Some(rows / 2 / self.tile * self.tile);
        let larger = std::iter::successors(Some(self.rows_of(RESIDENT_CHUNK)), half)
            .take_while(|rows| *rows > chunk_rows)
            .map(|rows| Layout::new(self.columns, self.staged, (chunk_rows, draft.fill_rows), rows))
            .find(fits);
        larger.unwrap_or(layout)
    }

    fn layout_of(&self, draft: &Draft<'_>) -> Layout {
        self.layout(draft.chunk_rows, draft.fill_rows)
    }

    /// Returns the rows of half a chunk in whole tiles; `None` if the chunk cannot be smaller or the caller set its
    /// size.
    fn smaller(&self, draft: &Draft<'_>, least: u64) -> Option<usize> {
        let can = self.limits.chunk.is_none() && draft.chunk_rows as u64 * self.row_bytes > least;
        let tile = self.tile;
        (can && draft.chunk_rows > tile)
            .then(|| (draft.chunk_rows / 2).next_multiple_of(tile))
            .filter(|rows| *rows < draft.chunk_rows)
    }

    /// Returns half the rows of a fill; `None` if a slot cannot be smaller or would not be.
    fn smaller_fill(&self, draft: &Draft<'_>, least: u64) -> Option<usize> {
        let can = self.may_have_fills() && draft.fill_rows as u64 * self.row_bytes > least;
        let rows = draft.fill_rows.div_ceil(2);
        let bytes = |rows| self.layout(draft.chunk_rows, rows).slot_bytes;
        (can && rows < draft.fill_rows && bytes(rows) < bytes(draft.fill_rows)).then_some(rows)
    }

    /// Fits the plan into pinned memory. Reduces, in this order: the fills of a large chunk and the chunk size down to
    /// a small chunk, workers, slots, the chunk size down to one tile, fills down to one row. Large slots are an
    /// exception: it takes longer to fill one than the device works on it, so that a second one for the same worker is
    /// worth less than another worker.
    fn fit_pinned(&self, draft: &mut Draft<'_>) -> Result<()> {
        loop {
            let slot = self.layout_of(draft).slot_bytes as u64;
            let of_sums = self.panels.map_or(0, PanelLayout::pinned_bytes);
            let needed = slot.saturating_mul((draft.workers * draft.slots) as u64).saturating_add(of_sums);
            if needed <= draft.pinned_limit {
                return Ok(());
            }
            let fill = if draft.has_fills() { self.smaller_fill(draft, self.small()) } else { None };
            // The words of a chunk may take most of a slot, whatever its rows are.
            let shrinks = |rows: &usize| (self.layout(*rows, draft.fill_rows.min(*rows)).slot_bytes as u64) < slot;
            if let Some(rows) = fill {
                draft.fill_rows = rows;
            } else if let Some(rows) = self.smaller(draft, self.small()).filter(shrinks) {
                draft.set_chunk_rows(rows);
            } else if draft.slots > 1 && slot > STAGED_SLOT.end {
                draft.slots -= 1;
            } else if draft.workers > 1 && self.limits.workers.is_none() {
                draft.workers -= 1;
            } else if draft.slots > 1 {
                draft.slots -= 1;
            } else if let Some(rows) = self.smaller(draft, 0).filter(shrinks) {
                draft.set_chunk_rows(rows);
            } else if let Some(rows) = self.smaller_fill(draft, 0) {
                draft.fill_rows = rows;
            } else {
                return Err(self.too_small("pinned memory", draft.pinned_limit, needed));
            }
        }
    }

    /// Fits the plan into device memory: makes chunks smaller until enough blocks fit for overlap, or at least one.
    fn fit_device(&self, draft: &mut Draft<'_>) -> Result<()> {
        loop {
            let blocks = self.blocks_of(draft);
            // A worker holds a block for as long as it fills a large chunk, so each should have one.
            let is_large = draft.has_fills() && draft.chunk_rows > draft.worthwhile_rows;
            let enough = blocks >= if is_large { self.wanted(draft) } else { OVERLAP_BLOCKS.min(self.wanted(draft)) };
            match self.smaller(draft, if blocks == 0 { 0 } else { self.small() }) {
                Some(rows) if !enough => draft.set_chunk_rows(rows),
                _ if blocks > 0 => return Ok(()),
                _ if draft.panels > LEAST_PANELS => draft.panels -= 1,
                _ => {
                    let needed = self.layout_of(draft).block_bytes as u64 + self.stays(draft);
                    return Err(self.too_small("device memory", draft.device_limit, needed));
                }
            }
        }
    }

    fn blocks_of(&self, draft: &Draft<'_>) -> usize {
        self.blocks(draft, &self.layout_of(draft))
    }

    /// Returns the number of blocks: as many as wanted, or as many as fit.
    fn blocks(&self, draft: &Draft<'_>, layout: &Layout) -> usize {
        let fit = draft.device_limit.saturating_sub(self.stays(draft)) / (layout.block_bytes.max(1) as u64);
        usize::try_from(fit).unwrap_or(usize::MAX).min(self.wanted(draft))
    }

    /// Returns the number of blocks that are of use: one for each slot. If a chunk has several fills, a worker has a
    /// block while it fills one, and a few others are at the kernel or copied back.
    fn wanted(&self, draft: &Draft<'_>) -> usize {
        match draft.has_fills() {
            true => (draft.workers + OVERLAP_BLOCKS).min(draft.workers * (draft.slots + 1)),
            false => draft.workers * draft.slots,
        }
    }

    /// Returns the bytes that stay on the device for the whole job.
    fn stays(&self, draft: &Draft<'_>) -> u64 {
        self.resident_bytes + self.of_panels(draft)
    }

    /// Returns the bytes of the panels, and of the sums of products.
    fn of_panels(&self, draft: &Draft<'_>) -> u64 {
        self.panels.filter(|_| draft.panels > 0).map_or(0, |layout| layout.device_bytes(draft.panels))
    }

    fn too_small(&self, what: &'static str, limit: u64, needed: u64) -> Error {
        let mut remedy = format!("set the {what} limit to at least {needed} bytes");
        if self.limits.chunk.is_some() || self.limits.workers.is_some() {
            remedy += ", or leave the chunk size and the number of workers to the plan";
        }
        Error::Budget { what, limit, needed, remedy }
    }

    fn settle(&self, draft: Draft<'_>, chunk_rows: usize, shape: &Shape) -> DevicePlan {
        let max_chunk_rows = draft.chunk_rows.min(chunk_rows);
        let layout = self.final_layout(&draft, max_chunk_rows);
        let blocks = self.blocks(&draft, &layout);
        let (slots, workers) = (draft.slots, draft.workers);
        let halvings = (1..=MOST_HALVINGS).filter(|k| (layout.slot_bytes as u64) >> k >= STAGED_SLOT.start).count();
        let may_halve = self.adapts(draft.info.kind) && self.limits.chunk.is_none() && self.staged.contains(&true);
        let may_halve = may_halve && layout.fill_rows == max_chunk_rows;
        let cpu = draft.info.kind == DeviceKind::Cpu;
        let (of_inputs, of_outputs) = shape.in_memory.split_at(self.columns.inputs.len().min(shape.in_memory.len()));
        let staged = |sizes: &[usize], in_memory: &[bool]| -> usize {
            sizes.iter().zip(in_memory).filter(|(_, in_memory)| !**in_memory).map(|(size, _)| size).sum()
        };
        let inputs = self.columns.inputs.iter().zip(of_inputs).zip(&self.columns.halos);
        let halos = inputs.filter(|((_, in_memory), _)| !**in_memory);
        let halos: usize = halos.map(|((size, _), halo)| size * (halo.before + halo.after)).sum();
        let held = if shape.compacts { MOST_HELD } else { 1 };
        let results =
            staged(&self.columns.outputs, of_outputs) * max_chunk_rows + self.columns.partial_bytes(max_chunk_rows);
        // Outputs in memory are computed tile by tile, so only a tile of them is staged.
        let tile = self.columns.outputs.iter().sum::<usize>() * self.columns.rows_in_cache();
        let of_step = match self.columns.chunk_words {
            0 => 0,
            _ => self.columns.partial_bytes(self.columns.rows_in_cache()),
        };
        let read = staged(&self.columns.inputs, of_inputs) * max_chunk_rows + halos;
        let products = if cpu { self.columns.product_bytes(max_chunk_rows) } else { 0 };
        let staging = read + tile + results * held + of_step + products;
        DevicePlan {
            id: draft.info.id.clone(),
            name: draft.info.name.clone(),
            kind: draft.info.kind,
            workers,
            first_workers: draft.first_workers.min(workers),
            halvings: if may_halve && !cpu { halvings as u32 } else { 0 },
            max_chunk_rows: max_chunk_rows as u64,
            fill_rows: layout.fill_rows as u64,
            slots,
            blocks,
            block_bytes: layout.block_bytes as u64,
            slot_bytes: layout.slot_bytes as u64,
            panels: draft.panels,
            panel_bytes: self.of_panels(&draft),
            resident_bytes: if cpu { 0 } else { self.resident_bytes },
            device_bytes: if cpu { 0 } else { (blocks * layout.block_bytes) as u64 + self.stays(&draft) },
            pinned_bytes: (workers * slots * layout.slot_bytes) as u64
                + if cpu { 0 } else { self.panels.map_or(0, PanelLayout::pinned_bytes) },
            other_bytes: if cpu { (workers * staging) as u64 } else { 0 },
            device_limit: draft.device_limit,
            pinned_limit: draft.pinned_limit,
            layout,
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { columns, notes, passes, .. } = self;
        if passes.is_empty() {
            columns.iter().try_for_each(|column| writeln!(f, "{column}"))?;
            return self.write_resources(f).and(notes.iter().try_for_each(|note| writeln!(f, "note: {note}")));
        }
        for (number, pass) in passes.iter().enumerate() {
            writeln!(f, "pass {} of {}", number + 1, passes.len())?;
            write!(f, "{pass}")?;
        }
        Ok(())
    }
}

impl Plan {
    fn write_resources(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { rows, row_bytes, chunk_rows, tile_rows, .. } = self;
        let chunk = ByteSize(chunk_rows * row_bytes);
        writeln!(f, "rows           {rows} x {row_bytes} bytes = {}", ByteSize(rows.saturating_mul(*row_bytes)))?;
        writeln!(f, "chunk rows     {chunk_rows} x {row_bytes} bytes = {chunk} (whole tiles of {tile_rows} rows)")?;
        if self.decode_bytes > 0 {
            writeln!(
                f,
                "decoding       at most {} of rows in memory, decoded or read ahead",
                ByteSize(self.decode_bytes)
            )?;
        }
        if self.encode_bytes > 0 {
            writeln!(f, "encoding       at most {} of rows in memory", ByteSize(self.encode_bytes))?;
        }
        // Those of numbers take some kilobytes.
        if self.state_bytes >= 1 << 20 {
            writeln!(f, "reducing       at most {} of partial results in memory", ByteSize(self.state_bytes))?;
        }
        for device in &self.devices {
            let DevicePlan { id, name, workers, slots, blocks, .. } = device;
            writeln!(f, "device         {id} ({name})")?;
            match device.first_workers {
                first if first < *workers => writeln!(f, "  workers        {first} at first, at most {workers}")?,
                _ => writeln!(f, "  workers        {workers}")?,
            }
            if device.max_chunk_rows < *chunk_rows {
                writeln!(f, "  chunk rows   {}", device.max_chunk_rows)?;
            }
            if device.kind == DeviceKind::Cpu {
                writeln!(f, "  slots        0 (rows are used where they are)")?;
                let each = ByteSize(device.other_bytes / (*workers).max(1) as u64);
                writeln!(f, "  other        {workers} workers x {each} staging = {}", ByteSize(device.other_bytes))?;
                continue;
            }
            let (block, slot) = (ByteSize(device.block_bytes), ByteSize(device.slot_bytes));
            match device.fill_rows {
                rows if rows < device.max_chunk_rows => {
                    writeln!(f, "  slots        {slots} a worker, each for {rows} rows of a chunk at a time")?
                }
                _ => writeln!(f, "  slots        {slots} a worker")?,
            }
            writeln!(
                f,
                "  device       {blocks} blocks x {block}{}{} = {} (limit {})",
                match device.panels {
                    0 => String::new(),
                    panels => format!(" + {panels} panels and sums of {}", ByteSize(device.panel_bytes)),
                },
                match device.resident_bytes {
                    0 => String::new(),
                    bytes => format!(" + {} resident", ByteSize(bytes)),
                },
                ByteSize(device.device_bytes),
                ByteSize(device.device_limit)
            )?;
            writeln!(
                f,
                "  pinned       {workers} workers x {slots} slots x {slot}{} = {} (limit {})",
                match device.pinned_bytes - (workers * slots) as u64 * device.slot_bytes {
                    0 => String::new(),
                    bytes => format!(" + {} for sums", ByteSize(bytes)),
                },
                ByteSize(device.pinned_bytes),
                ByteSize(device.pinned_limit)
            )?;
            writeln!(f, "  other        {} (nothing else is staged)", ByteSize(device.other_bytes))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceDetails;
    use crate::device::kernel::{Halo, TILE_ROWS};
    use proptest::prelude::*;

    fn shape(rows: u64) -> Shape {
        let columns = Columns { inputs: vec![8, 8], outputs: vec![8], partial_words: 1, ..Columns::default() };
        Shape {
            rows,
            columns,
            resident_bytes: 0,
            in_memory: vec![true; 3],
            pinned: vec![false; 3],
            has_resident_rows: false,
            compacts: false,
            decodes: false,
            decode_bytes: 0,
            grains: vec![],
            node_words: 1,
            kept_words: 0,
        }
    }

    fn gpu(memory_bytes: u64) -> DeviceInfo {
        let id = "cuda:0".to_owned();
        DeviceInfo {
            name: "GPU".into(),
            id,
            kind: DeviceKind::Cuda,
            memory_bytes,
            compute_capability: None,
            details: DeviceDetails::default(),
        }
    }

    #[test]
    fn a_large_device_gets_a_block_for_every_slot() {
        let plan = Plan::new(&shape(1 << 30), &[gpu(80 << 30)], &RunLimits::default(), &Machine::guess(16)).unwrap();
        let device = &plan.devices[0];
        assert_eq!((device.first_workers, device.workers, device.slots, device.blocks), (13, 14, 2, 28));
        assert!(device.pinned_bytes <= DEFAULT_PINNED);
    }

    #[test]
    fn blocks_have_room_for_large_chunks_of_rows_that_stay() {
        // As a step of k-means: rows of 4 KiB, and scratch of 4 KiB and 256 bytes.
        let columns = Columns {
            inputs: vec![4096],
            scratch: vec![4096, 256],
            chunk_words: 64,
            batch_rows: 1024,
            tile_rows: 4,
            ..Columns::default()
        };
        let plan = |has_resident_rows, device_memory| {
            let shape = Shape {
                columns: columns.clone(),
                in_memory: vec![true],
                pinned: vec![false],
                has_resident_rows,
                ..shape(1 << 20)
            };
            let limits = RunLimits { device_memory: Some(device_memory), ..RunLimits::default() };
            let plan = Plan::new(&shape, &[gpu(80 << 30)], &limits, &Machine::guess(16)).unwrap();
            let DevicePlan { layout, blocks, slot_bytes, max_chunk_rows, .. } = plan.devices[0].clone();
            assert!(plan.devices[0].device_bytes <= device_memory);
            (max_chunk_rows, blocks, slot_bytes, layout.resident_chunk_rows)
        };
        let (rows, blocks, slot, resident) = plan(false, 2 << 30);
        assert_eq!((rows, resident), (1024, 1024));
        // Large chunks need 21.25 MiB a block instead of 8.25, half of them 12.5.
        for (memory, resident) in [(2 << 30, 4096), (400 << 20, 2048), (240 << 20, 1024)] {
            assert_eq!(plan(true, memory), (rows, blocks, slot, resident), "{memory} bytes");
        }
        // There are fewer blocks: none of them is larger.
        let (_, fewer, _, resident) = plan(true, 200 << 20);
        assert!(fewer < blocks && resident == 1024);
    }

    #[test]
    fn slots_of_whole_tiles_stay_in_the_cache() {
        // As the assignment of k-means: rows that are multiplied by a matrix, 1024 at a time, and a number for each.
        let planned = |row_bytes, gpus, limits| {
            let (inputs, outputs) = (vec![row_bytes], vec![8]);
            let columns = Columns { inputs, outputs, batch_rows: 1024, tile_rows: 4, ..Columns::default() };
            let shape = Shape { columns, in_memory: vec![true; 2], pinned: vec![false; 2], ..shape(1 << 24) };
            let plan = Plan::new(&shape, &vec![gpu(80 << 30); gpus], limits, &Machine::guess(64)).unwrap();
            let DevicePlan { first_workers, workers, slots, slot_bytes, .. } = plan.devices[0].clone();
            (first_workers, workers, ((gpus * workers * slots) as u64 * slot_bytes) >> 20)
        };
        let limits = RunLimits::default();
        for (row_bytes, gpus, plan) in [
            (512, 1, (9, 13, 117)),
            (4096, 1, (9, 13, 104)),
            (512, 2, (9, 13, 104)),
            // The cache has room for 15 slots of 4 MiB on each device, or 15 of 8 MiB on one.
            (4096, 2, (7, 7, 112)),
            (8192, 1, (7, 7, 112)),
            (16_384, 1, (9, 13, 208)),
            // It has room for too few workers.
            (4096, 4, (6, 6, 192)),
        ] {
            assert_eq!(planned(row_bytes, gpus, &limits), plan, "{row_bytes} bytes a row, {gpus} devices");
        }
        let limits = RunLimits { workers: Some(12), ..RunLimits::default() };
        assert_eq!(planned(4096, 2, &limits), (12, 12, 192));
    }

    #[test]
    fn all_cores_decode() {
        let shape = Shape { decodes: true, ..shape(1 << 30) };
        for (cores, gpus, each) in [(16, 1, 16), (64, 4, 16), (64, 1, 64), (1, 1, 2)] {
            let gpus = vec![gpu(80 << 30); gpus];
            let plan = Plan::new(&shape, &gpus, &RunLimits::default(), &Machine::guess(cores)).unwrap();
            for device in &plan.devices {
                assert_eq!((device.first_workers, device.slots), (each, 2), "{cores} cores");
                assert!(device.pinned_bytes <= DEFAULT_PINNED);
            }
        }
    }

    #[test]
    fn a_budget_below_one_tile_is_an_error_that_says_how_much() {
        let limits = RunLimits { device_memory: Some(1000), ..RunLimits::default() };
        let error = Plan::new(&shape(1 << 30), &[gpu(80 << 30)], &limits, &Machine::guess(16)).unwrap_err();
        let Error::Budget { needed, .. } = error else { panic!("{error}") };
        let limits = RunLimits { device_memory: Some(needed), ..RunLimits::default() };
        assert_eq!(
            Plan::new(&shape(1 << 30), &[gpu(80 << 30)], &limits, &Machine::guess(16)).unwrap().devices[0].blocks,
            1
        );
    }

    #[test]
    fn a_set_chunk_is_kept_or_refused() {
        let limits = RunLimits { chunk: Some(48 << 20), pinned_memory: Some(1 << 20), ..RunLimits::default() };
        let error = Plan::new(&shape(1 << 30), &[gpu(80 << 30)], &limits, &Machine::guess(16)).unwrap_err();
        assert!(error.to_string().contains("leave the chunk size"), "{error}");
    }

    #[test]
    fn few_rows_take_a_small_chunk() {
        for rows in [0, 1, 5000] {
            let plan = Plan::new(&shape(rows), &[gpu(1 << 30)], &RunLimits::default(), &Machine::guess(16)).unwrap();
            assert_eq!(plan.chunk_rows, rows.div_ceil(4096).max(1) * 4096);
        }
    }

    #[test]
    fn a_small_device_makes_no_others_chunks_smaller() {
        let plan = |devices: &[DeviceInfo], limits: &RunLimits| {
            Plan::new(&shape(1 << 30), devices, limits, &Machine::guess(16)).unwrap()
        };
        let named = |number: usize, memory| DeviceInfo { id: format!("cuda:{number}"), ..gpu(memory) };
        let alike = plan(&[named(0, 80 << 30), named(1, 80 << 30)], &RunLimits::default());
        let unlike = plan(&[named(0, 80 << 30), named(1, 2 << 20)], &RunLimits::default());
        let [large, small] = &unlike.devices[..] else { panic!("two devices, two plans") };
        assert_eq!((large.max_chunk_rows, large.blocks), (alike.devices[0].max_chunk_rows, alike.devices[0].blocks));
        assert!(small.max_chunk_rows < large.max_chunk_rows && small.device_bytes <= 2 << 20, "{unlike}");
        assert_eq!(unlike.chunk_rows, large.max_chunk_rows);
        // So it is with a device that turned out to have less than it said.
        let cap = 1 << 20;
        let limits = RunLimits { caps: [("cuda:0".to_owned(), cap)].into(), ..RunLimits::default() };
        let capped = plan(&[named(0, 80 << 30), named(1, 80 << 30)], &limits);
        assert!(capped.devices[0].max_chunk_rows * capped.row_bytes <= cap);
        assert_eq!(capped.devices[1].max_chunk_rows, alike.devices[1].max_chunk_rows);
    }

    #[test]
    fn a_chunk_is_larger_than_its_halo() {
        // Lines of a volume, of which a kernel reads the ones of the slabs around each.
        let halo = Halo { before: 1001, after: 1001 };
        let columns = Columns {
            inputs: vec![4000],
            outputs: vec![4000],
            tile_rows: 32,
            halos: vec![halo],
            total_rows: 1 << 30,
            ..Columns::default()
        };
        let (in_memory, pinned) = (vec![true; 2], vec![false; 2]);
        let shape = Shape { columns, in_memory, pinned, ..shape(1 << 30) };
        for pinned in [DEFAULT_PINNED, 32 << 20] {
            let limits = RunLimits { pinned_memory: Some(pinned), ..RunLimits::default() };
            let plan = Plan::new(&shape, &[gpu(80 << 30)], &limits, &Machine::guess(16)).unwrap();
            let device = &plan.devices[0];
            assert!(device.pinned_bytes <= pinned && device.max_chunk_rows >= 1000, "{plan}");
        }
    }

    /// Tiles of wide rows, which are reduced to one row.
    fn wide(rows: u64) -> Shape {
        let columns = Columns { inputs: vec![800_000; 2], partial_words: 600_000, tile_rows: 16, ..Columns::default() };
        let (in_memory, pinned) = (vec![true; 2], vec![false; 2]);
        Shape { columns, in_memory, pinned, node_words: 600_000, ..shape(rows) }
    }

    #[test]
    fn a_large_tile_is_staged_in_small_slots() {
        let plan = |limits: &RunLimits| {
            Plan::new(&wide(10_000), &[gpu(80 << 30)], limits, &Machine::guess(16)).map(|plan| plan.devices[0].clone())
        };
        let device = plan(&RunLimits::default()).unwrap();
        assert_eq!((device.max_chunk_rows, device.workers, device.slots, device.halvings), (16, 13, 2, 0));
        // As large as the partial results of a tile.
        assert!(device.fill_rows <= 3 && device.slot_bytes == 4_800_512, "{device:?}");
        assert_eq!(device.blocks, device.workers + OVERLAP_BLOCKS);
        // A second slot for a worker is worth less than another worker, if slots are large.
        let plan_of = |pinned| plan(&RunLimits { pinned_memory: Some(pinned), ..RunLimits::default() });
        let few = plan_of(80 << 20).unwrap();
        assert_eq!((few.workers, few.slots), (8, 2));
        let shape = Shape { columns: Columns { outputs: vec![8], ..wide(1).columns }, ..wide(10_000) };
        let shape = Shape { in_memory: vec![true; 3], pinned: vec![false; 3], ..shape };
        let whole = Plan::new(&shape, &[gpu(80 << 30)], &RunLimits::default(), &Machine::guess(16)).unwrap();
        let whole = &whole.devices[0];
        assert_eq!(
            (whole.fill_rows, whole.workers, whole.slots),
            (16, 10, 1),
            "rows of outputs leave a slot as a whole"
        );
        // Partial results must fit, and a row.
        let Err(Error::Budget { needed, .. }) = plan_of(1) else { panic!("no memory is enough") };
        assert_eq!((needed, plan_of(needed).unwrap().fill_rows), (4_800_512, 3));
    }

    #[test]
    fn fills_wait_for_no_block_if_whole_chunks_need_none() {
        let plan = |pinned: u64, tiles: u64| {
            let limits = RunLimits {
                device_memory: Some((tiles * 31) << 20),
                pinned_memory: Some(pinned),
                ..RunLimits::default()
            };
            Plan::new(&wide(10_000), &[gpu(80 << 30)], &limits, &Machine::guess(16)).unwrap().devices[0].clone()
        };
        // With fewer blocks than workers, whole chunks are filled, if more workers can do so than blocks are there.
        let whole = plan(256 << 20, 3);
        assert_eq!((whole.fill_rows, whole.blocks, whole.workers, whole.slots), (16, 3, 10, 1));
        let fills = plan(70 << 20, 3);
        assert!(fills.fill_rows < 16 && fills.blocks == 3, "{fills:?}");
    }

    /// A worker of the CPU holds the results of several chunks whose place is not known.
    #[test]
    fn the_plan_counts_the_chunks_that_a_worker_holds() {
        let of = |compacts| {
            let in_memory = vec![true, true, false];
            let shape = Shape { compacts, in_memory, ..shape(1 << 24) };
            let cpu = DeviceInfo { kind: DeviceKind::Cpu, id: "cpu".into(), ..gpu(1 << 30) };
            let plan = Plan::new(&shape, &[cpu], &RunLimits::default(), &Machine::guess(4)).unwrap();
            (plan.devices[0].other_bytes, plan.chunk_rows as usize)
        };
        let ((one, rows), (held, _)) = (of(false), of(true));
        let results = 8 * rows + shape(1).columns.partial_bytes(rows);
        assert_eq!(held - one, (4 * (MOST_HELD - 1) * results) as u64);
    }

    #[test]
    fn the_plan_bounds_partial_results() {
        let of = |rows, node_words, tile_rows| {
            let columns = Columns { tile_rows, ..shape(rows).columns };
            let shape = Shape { node_words, columns, ..shape(rows) };
            let gpus = [gpu(80 << 30)];
            let plan = Plan::new(&shape, &gpus, &RunLimits::default(), &Machine::guess(16)).unwrap();
            (plan.state_bytes, plan.devices[0].workers as u64)
        };
        // Numbers take little, whatever the number of rows is; large results no more than one for each tile.
        assert!(of(1 << 40, 3, 4096).0 < 100_000);
        let (bytes, workers) = of(3 * 32, 1000, 32);
        assert_eq!(bytes, (3 + workers) * 8000);
        assert_eq!(of(1 << 30, 0, 4096).0, 0);
    }

    proptest! {
        #[test]
        fn limits_hold(
            rows in 0u64..1 << 40, device in 1u64..1 << 36, pinned in 1u64..1 << 32, cores in 1usize..128,
            chunk in prop::option::of(1u64..1 << 30), workers in prop::option::of(1usize..64),
            sizes in prop::collection::vec(20u32..36, 1..9), words in prop::option::of(0usize..100_000),
        ) {
            // With words of chunks instead of an output, a chunk may have several fills.
            let mut shape = shape(rows);
            if let Some(words) = words {
                shape.columns = Columns { outputs: vec![], chunk_words: words, ..shape.columns };
                (shape.in_memory, shape.pinned) = (vec![true; 2], vec![false; 2]);
            }
            let (device_memory, pinned_memory) = (Some(device), Some(pinned));
            let limits = RunLimits { device_memory, pinned_memory, chunk, workers, ..RunLimits::default() };
            let gpus: Vec<_> = sizes.iter().map(|size| gpu(1 << size)).collect();
            if let Ok(plan) = Plan::new(&shape, &gpus, &limits, &Machine::guess(cores)) {
                for (d, size) in plan.devices.iter().zip(sizes) {
                    prop_assert!((1..=d.max_chunk_rows).contains(&d.fill_rows));
                    prop_assert!(d.fill_rows == d.max_chunk_rows || words.is_some());
                    prop_assert!(d.pinned_bytes == (d.workers * d.slots) as u64 * d.slot_bytes);
                    prop_assert!(d.blocks > 0 && d.device_bytes <= device.min(1 << size) && d.pinned_bytes <= pinned);
                    prop_assert_eq!(d.device_bytes, d.blocks as u64 * d.block_bytes);
                    prop_assert!(d.max_chunk_rows > 0 && d.max_chunk_rows.is_multiple_of(TILE_ROWS as u64));
                    prop_assert!(d.max_chunk_rows <= plan.chunk_rows);
                }
                prop_assert!(plan.chunk_rows > 0 && plan.chunk_rows.is_multiple_of(TILE_ROWS as u64));
            }
        }
    }
}
