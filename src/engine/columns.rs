//! The properties of the inputs and outputs of a job. They are resolved once in a run, before the plan, so that the
//! plan and the pipeline use the same answers.

use super::check::BoundJob;
use super::devices::Opened;
use super::unneeded::{self, Unneeded};
use crate::data::{FillGuard, Input, Output, Placement, whole_memory, whole_shards};
use crate::device::Pinned;
use crate::error::{JobError, Result};
use crate::pipeline::{InputColumn, Segment, Sharded, lots};
use crate::plan::Plan;
use std::ops::Range;

/// The columns of a job.
pub(super) struct Columns<'j> {
    /// The inputs, then the outputs.
    pub(super) names: Vec<String>,
    pub(super) inputs: Vec<InputColumn<'j>>,
    /// For each input, whether it is in memory and is used there.
    pub(super) is_cached: Vec<bool>,
    pub(super) outputs: Vec<PlannedOutput>,
    /// Ranges of rows in whole tiles, in ascending order. All rows with the same number give the same.
    pub(super) alike: Vec<(Range<u64>, usize)>,
    /// Whether any column is a file.
    pub(super) files: bool,
    pub(super) notes: Vec<String>,
}

/// An output before it is opened.
pub(super) struct PlannedOutput {
    /// Whether its rows will be in memory.
    pub(super) in_memory: bool,
    pub(super) pinning: Pinning,
    pub(super) sharded: Option<Sharded>,
    /// The bytes of the rows that are encoded as a whole; 0 if rows are stored as they are.
    pub(super) grain_bytes: u64,
    /// The bytes of all rows.
    pub(super) bytes: u64,
}

/// Whether and where an output is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pinning {
    /// Not pinned, or not in one piece, so that it cannot be used in place.
    No,
    /// Pinned once it is opened, according to its target.
    BySink,
    /// This memory is pinned.
    At(*const [u8]),
}

impl<'j> Columns<'j> {
    /// Resolves all columns. If `begins_use`, the run may copy the resident rows of its inputs to the devices, which
    /// one run at a time can do. A plan alone only assumes so.
    pub(super) fn resolve(
        inputs: &'j [(String, Input<'_>)],
        outputs: &[(String, Output<'_>)],
        bound: &BoundJob,
        opened: &Opened,
        begins_use: bool,
    ) -> Result<Self> {
        let tile_rows = bound.operator.kernel().columns.unit_rows();
        // Rows that are the same for all rows are no columns: the kernel has them.
        let streamed = || inputs.iter().zip(&bound.inputs).filter(|(_, column)| !column.is_resident);
        let names = streamed().map(|((name, _), _)| name).chain(outputs.iter().map(|(name, _)| name));
        let mut columns = Columns {
            names: names.cloned().collect(),
            inputs: Vec::with_capacity(inputs.len()),
            is_cached: Vec::with_capacity(inputs.len()),
            outputs: Vec::with_capacity(outputs.len()),
            alike: vec![],
            files: false,
            notes: Vec::new(),
        };
        let of_kernel = &bound.operator.kernel().columns;
        // A plan alone needs no statistics.
        let Unneeded { unread, alike } = match begins_use {
            true => unneeded::of(bound, inputs, &mut columns.notes),
            false => unneeded::none(bound),
        };
        columns.alike = alike;
        for (number, (((name, input), column), unread)) in streamed().zip(unread).enumerate() {
            let (source, rows) = (input.source(), bound.rows.saturating_mul(column.elements));
            columns.notes.extend(source.warning());
            let (shards, halo) = (whole_shards(input.shards(), column.dtype, rows)?, of_kernel.halo(number));
            columns.notes.extend(input.shards().and_then(|shards| shards.warning()));
            let tile = column.elements.saturating_mul(tile_rows as u64);
            let guard = shards.filter(|_| begins_use).and_then(|shards| shards.begin_use(tile));
            let is_filling = match &guard {
                Some(guard) => Some(guard.is_filling),
                None => shards.filter(|_| !begins_use).map(|shards| !shards.is_full()),
            };
            // The chunks beside one may be copied after it, so its kernel could not read their rows on the device.
            let cannot_fill = is_filling == Some(true) && !halo.is_empty();
            if cannot_fill {
                columns.notes.push(format!(
                    "'{name}' was not copied to the devices that it is to stay on, because this job reads \
                     neighbours of its rows: first run a job that does not"
                ));
            }
            let (shards, guard) = if cannot_fill { (None, None) } else { (shards, guard) };
            let sharded = shards
                .zip(is_filling)
                .and_then(|(shards, is_filling)| Sharded::new(shards, column.elements, tile_rows, is_filling))
                .map(|sharded| sharded.with_halo(halo, bound.rows));
            columns.note_unused(name, shards.is_some(), sharded.as_ref());
            let memory = whole_memory(source, column.dtype, rows)?;
            let pinned = memory.filter(|memory| match memory.is_pinned() {
                true => true,
                false => columns.note_pinned_in_part(name, opened.find_pinned(memory.bytes(), false)),
            });
            columns.is_cached.push(memory.is_some() && source.is_cached(0, rows));
            columns.files |= source.path().is_some();
            columns.inputs.push(InputColumn {
                name,
                source,
                dtype: column.dtype,
                memory,
                pinned: pinned.map(|memory| memory.bytes()),
                elements: column.elements,
                sharded,
                guard,
                unread,
            });
        }
        for (k, ((name, output), column)) in outputs.iter().zip(&bound.outputs).enumerate() {
            let (target, keeps) = (output.target(), bound.operator.compacts());
            let rows = bound.rows.saturating_mul(column.elements);
            let shards = whole_shards(output.shards(), column.dtype, rows)?;
            columns.notes.extend(output.shards().and_then(|shards| shards.warning()));
            let sharded = shards.and_then(|shards| Sharded::new(shards, column.elements, tile_rows, false));
            if let Some(own) = &sharded
                && columns.sharded().any(|other| other.is_some_and(|other| own.is_same(other)))
            {
                return Err(JobError::MemoryClash { name: name.clone() }.into());
            }
            // A compacting kernel decides where rows go, so their places are not known yet.
            let sharded = sharded.filter(|_| !keeps);
            columns.note_unused(name, shards.is_some(), sharded.as_ref());
            let pinning = match (target.place(), target.memory()) {
                _ if keeps => Pinning::No,
                (Placement::Pinned, _) => Pinning::BySink,
                (Placement::Memory, Some(memory)) => {
                    let is_whole = columns.note_pinned_in_part(name, opened.find_pinned(memory, true));
                    if is_whole { Pinning::At(memory) } else { Pinning::No }
                }
                _ => Pinning::No,
            };
            columns.files |= target.path().is_some();
            columns.outputs.push(PlannedOutput {
                in_memory: target.place() != Placement::Elsewhere && !keeps,
                pinning,
                sharded,
                grain_bytes: target.grain_bytes(column.dtype, rows, bound.output_shape(k).as_deref())?,
                bytes: rows.saturating_mul(column.dtype.size() as u64),
            });
        }
        Ok(columns)
    }

    /// Returns the first rows of the lots of the job, by the grains of its inputs; `None` if they have none.
    pub(super) fn lots(&self, plan: &Plan) -> Option<Vec<u64>> {
        let grains = self.inputs.iter().map(|input| {
            let firsts = input.source.grains().iter();
            firsts.map(|element| element.div_ceil(input.elements.max(1))).collect::<Vec<u64>>()
        });
        let grains: Vec<_> = grains.filter(|firsts| !firsts.is_empty()).collect();
        lots(&grains, plan.tile_rows, plan.chunk_rows)
    }

    /// Returns the rows of each input and output that are on devices.
    pub(super) fn sharded(&self) -> impl Iterator<Item = Option<&Sharded>> {
        let inputs = self.inputs.iter().map(|input| input.sharded.as_ref());
        inputs.chain(self.outputs.iter().map(|output| output.sharded.as_ref()))
    }

    /// Returns the name of a column whose memory devices use in place: it is pinned, or on the devices.
    pub(super) fn in_place(&self) -> Option<&str> {
        let inputs = self.inputs.iter().map(|input| input.pinned.is_some());
        let pinned = inputs.chain(self.outputs.iter().map(|output| output.pinning != Pinning::No));
        let is_in_place = |(pinned, sharded): (bool, Option<&Sharded>)| pinned || sharded.is_some();
        let first = pinned.zip(self.sharded()).position(is_in_place)?;
        self.names.get(first).map(|name| &**name)
    }

    /// Returns whether this run copies an input to the devices, where it stays.
    pub(super) fn is_filling(&self) -> bool {
        self.inputs.iter().any(|input| input.guard.as_ref().is_some_and(|guard: &FillGuard| guard.is_filling))
    }

    /// Returns notes on columns whose rows move from one device to another.
    pub(super) fn notes_on(&self, segments: &[Segment], plan: &Plan) -> Vec<String> {
        let devices: Vec<&str> = plan.devices.iter().map(|device| &*device.id).collect();
        let away = |sharded: Option<&Sharded>| sharded.is_some_and(|sharded| sharded.goes_away(segments, &devices));
        let names = self.names.iter().zip(self.sharded()).filter(|(_, sharded)| away(*sharded));
        let note = |(name, _)| {
            format!(
                "some rows of '{name}' are on other devices than those that worked on them, and went by way of the host"
            )
        };
        names.map(note).collect()
    }

    fn note_unused(&mut self, name: &str, is_on_devices: bool, used: Option<&Sharded>) {
        if is_on_devices && used.is_none() {
            self.notes.push(format!(
                "'{name}' was not used on the devices that it is on: another job is copying it there, or its \
                 rows are not where \
                 this kernel can use them"
            ));
        }
    }

    /// Returns whether a column is pinned in one piece. Adds a note if only parts of it are pinned.
    fn note_pinned_in_part(&mut self, name: &str, pinned: Pinned) -> bool {
        if pinned == Pinned::InPart {
            self.notes.push(format!(
                "the memory of '{name}' is pinned, but not as a whole in one piece that a GPU may use: it was \
                 staged like \
                 ordinary memory"
            ));
        }
        pinned == Pinned::Whole
    }
}
