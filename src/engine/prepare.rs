//! Prepares a run: opens its devices, resolves its columns, makes its plan, reserves its memory.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::thread;
use std::time::Instant;

use super::check::BoundJob;
use super::columns::{Columns, Pinning};
use super::devices::{Absent, Budgets, Opened, load_products};
use super::found::Found;
use super::passes::PassContext;
use super::{BEGINNING, CORE_PRODUCTS, CORE_RATE, Engine, OPENING, reports};
use crate::data::{Input, Output};
use crate::device::kernel::Code;
use crate::device::product::DEVICE_ROWS;
use crate::device::{DeviceChoice, DeviceInfo, DeviceKind, cpu};
use crate::error::{Error, Result};
use crate::memory::{Admission, Admitted, Need, keep_freed_blocks};
use crate::pipeline::{DeviceRun, Segment, Sharded, in_tiles, segments};
use crate::plan::{Machine, Plan, RunLimits, Shape};
use crate::progress::CancelToken;
use crate::report::Setup;

/// A checked job, and the devices that it is to run on.
#[derive(Clone, Copy)]
pub(super) struct Request<'r, 'j> {
    pub(super) bound: &'r BoundJob,
    pub(super) columns: &'r Columns<'j>,
    pub(super) found: &'r Found,
    pub(super) devices: &'r [DeviceInfo],
    pub(super) opened: &'r Opened,
    pub(super) cancel: Option<&'r CancelToken>,
}

/// What a run needs before its outputs are opened.
pub(super) struct Prepared<'e, 'j> {
    pub(super) ready: Ready,
    pub(super) columns: Columns<'j>,
    /// What the engine found for this job.
    pub(super) found: &'e Found,
    pub(super) notes: Vec<String>,
    pub(super) setup: Setup,
}

/// A run whose memory is reserved and whose devices are ready.
pub(super) struct Ready {
    /// The admission of the run, which reserves its memory; `None` if the run needs no memory of the engine.
    pub(super) reserved: Option<Admitted>,
    pub(super) plan: Plan,
    /// The ranges of rows, with the device that owns each.
    pub(super) segments: Vec<Segment>,
    /// The device-specific part of the run, for each device of the plan.
    pub(super) runs: Vec<Box<dyn DeviceRun>>,
    pub(super) budgets: Vec<Budgets>,
}

impl Request<'_, '_> {
    /// Returns the reason why the run need not begin any more, if there is one.
    fn given_up(&self) -> Option<Error> {
        let Request { cancel, bound, .. } = self;
        if cancel.is_some_and(CancelToken::is_cancelled) {
            return Some(Error::Cancelled { done: 0, rows: bound.len() });
        }
        bound.operator.kernel().values.are_abandoned().then(Error::abandoned)
    }
}

impl Engine {
    /// Prepares a run. Devices without enough memory are left out, with a note, if there are others.
    ///
    /// # Errors
    /// Those of [`run`](Engine::run) that are detected before the outputs are opened.
    pub(super) fn prepare<'e, 'j>(
        &'e self,
        inputs: &'j [(String, Input<'_>)],
        outputs: &[(String, Output<'_>)],
        bound: &BoundJob,
        cancel: Option<&CancelToken>,
        context: &PassContext,
    ) -> Result<Prepared<'e, 'j>> {
        let found = self.found_for(bound);
        let mut notes = found.notes.clone();
        let devices = self.devices_for(found, bound, &mut notes)?;
        let on_cpu = devices.iter().all(|device| device.kind == DeviceKind::Cpu);
        if self.limits.device_memory.or(self.limits.pinned_memory).is_some() && on_cpu {
            notes.push("the CPU uses no device or pinned memory, so their limits have no effect".into());
        }
        let mut setup = Setup { find: found.took, ..Setup::default() };
        let multiplies = bound.operator.kernel().columns.are_multiplied();
        let (opened, devices) = self.open(devices, multiplies, &mut notes, &mut setup)?;
        let mut columns = Columns::resolve(inputs, outputs, bound, &opened, true)?;
        notes.append(&mut columns.notes);
        let request = Request { bound, columns: &columns, found, devices: &devices, opened: &opened, cancel };
        let ready = self.ready(&request, context, &mut notes, &mut setup);
        let ready = ready.inspect_err(|error| self.lose_failed(error))?;
        notes.extend(opened.notes(&ready.plan, bound.operator.kernel()));
        Ok(Prepared { ready, columns, found, notes, setup })
    }

    /// Returns what the engine found. For a small job with [`DeviceChoice::Auto`], this is the CPU, and the driver is
    /// not asked for GPUs if nothing has needed them yet.
    pub(super) fn found_for(&self, bound: &BoundJob) -> &Found {
        match self.found.get() {
            None if is_small(bound) => self.cpu.get_or_init(|| Found::cpu(&self.limits)),
            _ => self.found(),
        }
    }

    /// Returns the devices for a job: the CPU alone if the kernel has no device code, or if the GPUs would begin too
    /// late ([`DeviceChoice::Auto`]); GPUs alone if the kernel has no host kernel.
    ///
    /// # Errors
    /// [`Error::InvalidKernel`] if no device can run the kernel.
    pub(super) fn devices_for(
        &self,
        found: &Found,
        bound: &BoundJob,
        notes: &mut Vec<String>,
    ) -> Result<Vec<DeviceInfo>> {
        let kernel = bound.operator.kernel();
        let is_cpu = |device: &&DeviceInfo| device.kind == DeviceKind::Cpu;
        if kernel.code == Code::HostOnly {
            let able = found.devices.iter().filter(|device| device.kind != DeviceKind::Cuda);
            let able: Vec<_> = able.cloned().collect();
            return match found.devices.first() {
                Some(first) if able.is_empty() => Err(kernel.no_device_code(&first.id)),
                _ if able.len() < found.devices.len() => {
                    notes.push(format!(
                        "no GPU was used: '{}' is a function in Rust, which runs on the CPU",
                        kernel.entry
                    ));
                    Ok(able)
                }
                _ => Ok(able),
            };
        }
        if kernel.host.is_none() {
            let gpus = found.devices.iter().filter(|device| device.kind == DeviceKind::Cuda);
            let gpus: Vec<_> = gpus.cloned().collect();
            return match found.devices.first() {
                Some(first) if gpus.is_empty() => Err(match (&self.choice, DeviceChoice::Cuda.resolve()) {
                    (DeviceChoice::Auto, Err(Error::Device { problem, .. })) => kernel.no_gpu(&problem),
                    _ => kernel.no_host_kernel(&first.id),
                }),
                _ if gpus.len() < found.devices.len() => {
                    notes.push(format!("the CPU took no part: the kernel '{}' has no function for it", kernel.entry));
                    Ok(gpus)
                }
                _ => Ok(gpus),
            };
        }
        if kernel.columns.are_multiplied() && found.devices.iter().any(|device| !is_cpu(&device)) {
            let is_auto = self.choice == DeviceChoice::Auto;
            let on_cpu = is_auto && (is_small(bound) && !self.is_opened() || is_tiny(bound));
            if found.devices.iter().any(|device| is_cpu(&device)) {
                notes.push(match on_cpu {
                    true => "no GPU was used: the CPU multiplies so few rows before a GPU could begin".into(),
                    false => {
                        "the CPU took no part: its products of matrices have other bits than those of a GPU".into()
                    }
                });
            }
            return Ok(found.devices.iter().filter(|device| is_cpu(device) == on_cpu).cloned().collect());
        }
        let has_no_gpu = self.found.get().is_some_and(|found| found.devices.iter().all(|device| is_cpu(&device)));
        if self.choice != DeviceChoice::Auto || has_no_gpu {
            return Ok(found.devices.clone());
        }
        notes.push(match self.is_opened() {
            true if is_tiny(bound) => "no GPU was used: the CPU computes so few rows before a GPU could begin".into(),
            false if is_small(bound) => format!(
                "no GPU was used: opening one takes about {OPENING} s, longer than the CPU takes for so few rows"
            ),
            _ => return Ok(found.devices.clone()),
        });
        Ok(found.devices.iter().filter(is_cpu).cloned().collect())
    }

    fn is_opened(&self) -> bool {
        !self.opened.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Opens the GPUs among the devices, and leaves out those that cannot be used. Meanwhile the library for products,
    /// which is large, is loaded if the job `multiplies` matrices.
    fn open(
        &self,
        mut devices: Vec<DeviceInfo>,
        multiplies: bool,
        notes: &mut Vec<String>,
        setup: &mut Setup,
    ) -> Result<(Opened, Vec<DeviceInfo>)> {
        // The CPU is not opened.
        if devices.iter().all(|device| device.kind == DeviceKind::Cpu) {
            return Ok((Opened::default(), devices));
        }
        let begin = Instant::now();
        let loads = multiplies && devices.iter().any(|device| device.kind == DeviceKind::Cuda) && !self.is_opened();
        let (opened, absent) = thread::scope(|scope| {
            // Without the thread, the library is loaded when a stream needs it.
            let _ = loads.then(|| thread::Builder::new().spawn_scoped(scope, load_products));
            self.opened()
        })?;
        setup.open = begin.elapsed();
        for (id, error) in absent {
            devices.retain(|device| device.id != id);
            if devices.is_empty() {
                return Err(error);
            }
            notes.push(match error {
                Error::OutOfMemory { .. } => format!("{id} took no part: it had no memory for a context"),
                Error::Device { problem, .. } => format!("{id} took no part: {problem}"),
                error => format!("{id} took no part: {error}"),
            });
        }
        Ok((opened, devices))
    }

    /// Returns the limits of a run that starts now. If `is_half`, another run has the other half of the limits.
    pub(super) fn limits(&self, found: &Found, is_half: bool) -> RunLimits {
        let stays = found.devices.iter().zip(&found.budgets);
        let stays = stays.map(|(device, budgets)| (device.id.clone(), budgets.stays.in_use())).collect();
        RunLimits { stays, is_half, ..self.limits.clone() }
    }

    pub(super) fn plan_of(&self, request: &Request<'_, '_>, limits: &RunLimits) -> Result<(Plan, Vec<Segment>)> {
        let Request { bound, columns, found, devices, .. } = *request;
        let (rows, kernel, keeps) = (bound.rows, bound.operator.kernel(), bound.operator.compacts());
        let names: Vec<&str> = devices.iter().map(|device| &*device.id).collect();
        let sharded: Vec<_> = columns.sharded().collect();
        let mut segments = segments(&sharded, rows, kernel.columns.unit_rows(), &names, keeps);
        if !kernel.columns.products.is_empty() {
            segments = in_tiles(&segments, DEVICE_ROWS as u64);
            // Rows that are claimed in order have no owner.
            let columns = sharded.iter().flatten().filter(|_| !keeps);
            columns.for_each(|column| column.hold_what_is_processed(&segments, &names));
        }
        for Segment { rows, .. } in &mut segments {
            *rows = rows.start.max(bound.range.start)..rows.end.min(bound.range.end);
        }
        segments.retain(|segment| segment.rows.start < segment.rows.end);
        let is_home = |column: &Option<&Sharded>| {
            column.is_some_and(|column| !column.is_filling && column.stays_home(&segments, &names))
        };
        let inputs = columns.inputs.iter().map(|input| input.pinned.is_some());
        let pinned = inputs.chain(columns.outputs.iter().map(|output| output.pinning != Pinning::No));
        let state = bound.operator.state();
        let shape = Shape {
            rows: bound.len(),
            columns: kernel.columns.clone(),
            resident_bytes: kernel.resident_bytes(),
            in_memory: columns
                .is_cached
                .iter()
                .copied()
                .chain(columns.outputs.iter().map(|out| out.in_memory))
                .collect(),
            pinned: pinned.zip(&sharded).map(|(pinned, sharded)| pinned || is_home(sharded)).collect(),
            has_resident_rows: segments.iter().any(|segment| segment.resident_on.is_some()),
            compacts: keeps,
            decodes: columns.inputs.iter().any(|input| input.source.decodes())
                || columns.outputs.iter().any(|output| output.grain_bytes > 0),
            decode_bytes: columns.inputs.iter().map(|input| input.source.decode_memory()).fold(0, u64::saturating_add),
            grains: columns.outputs.iter().map(|output| (output.grain_bytes, output.bytes)).collect(),
            node_words: state.node_words(),
            kept_words: state.kept_words(),
        };
        let files = columns.files;
        let plan = Plan::new(&shape, devices, limits, &Machine::of(found.machine.as_ref(), cpu::cores(), files))?;
        Ok((plan, segments))
    }

    /// Plans the run, waits until the other runs of the engine leave enough memory for the plan, and makes every device
    /// ready. A device that has less memory than it reported gets smaller chunks. A device without memory is left out
    /// if there are others. A pass that is prepared while another pass runs returns the error instead, because the
    /// memory of the other pass becomes free soon.
    fn ready(
        &self,
        request: &Request<'_, '_>,
        context: &PassContext,
        notes: &mut Vec<String>,
        setup: &mut Setup,
    ) -> Result<Ready> {
        let kernel = request.bound.operator.kernel();
        let (mut devices, mut limits) = (request.devices.to_vec(), self.limits(request.found, context.is_half));
        // For each device that had too little memory: the bytes that it was first asked for.
        let mut short = BTreeMap::new();
        let mut admission = Admission { nested: context.nested, ..Admission::default() };
        let mut reserved: Option<Admitted> = None;
        // Other engines may fill their caches again meanwhile.
        let mut others_have_freed = false;
        loop {
            let (plan, segments) = self.plan_of(&Request { devices: &devices, ..*request }, &limits)?;
            if plan.decode_bytes > 0 || plan.encode_bytes > 0 {
                keep_freed_blocks();
            }
            let needs = needs(request.found, &plan);
            match &mut reserved {
                Some(reserved) => reserved.change(needs),
                None if needs.is_empty() => {}
                None => reserved = Some(self.admissions.admit(needs, admission, || request.given_up())?),
            }
            let budgets: Vec<_> = plan.devices.iter().map(|device| Budgets::of_run(&limits, &device.id)).collect();
            let runs = plan.devices.iter().zip(&budgets).map(|(device, budgets)| {
                request.opened.ready(&self.choice, device, kernel, budgets, request.found.budgets_of(&device.id))
            });
            match runs.collect::<Result<Vec<_>>>() {
                Ok(runs) => {
                    notes.extend(runs.iter().zip(&plan.devices).filter_map(|(run, device)| run.shortage(device)));
                    notes.extend(reports::of_smaller_chunks(&plan, &short));
                    notes.extend(request.columns.notes_on(&segments, &plan));
                    for (kernel, memory) in runs.iter().map(|run| run.setup()) {
                        setup.kernel += kernel;
                        setup.memory += memory;
                    }
                    return Ok(Ready { reserved, plan, segments, runs, budgets });
                }
                // This run has precedence over cached memory.
                Err(Error::OutOfMemory { .. }) if request.opened.trim() > 0 => {}
                Err(Error::OutOfMemory { .. })
                    if !std::mem::replace(&mut others_have_freed, true) && request.opened.trim_others() > 0 => {}
                Err(Error::OutOfMemory { .. })
                    if !context.place.is_behind()
                        && !context.nested
                        && reserved.as_ref().is_some_and(Admitted::has_others) =>
                {
                    admission = Admission { alone: true, place: reserved.take().map(|own| own.place), ..admission };
                }
                Err(Error::OutOfMemory { device, bytes }) if !context.place.is_behind() => {
                    let its_own = plan.devices.iter().find(|plan| plan.id == device);
                    let chunk_rows = its_own.map_or(0, |plan| plan.max_chunk_rows);
                    // A chunk size that the user set is not changed.
                    if chunk_rows > plan.tile_rows && self.limits.chunk.is_none() {
                        limits.caps.insert(device.clone(), chunk_rows * plan.row_bytes / 2);
                        short.entry(device).or_insert(bytes);
                    } else if devices.len() > 1 {
                        notes.push(format!("{device} took no part: it had no memory for a block of {bytes} bytes"));
                        devices.retain(|other| other.id != device);
                    } else {
                        return Err(Error::OutOfMemory { device, bytes });
                    }
                }
                // The GPU has failed. Its kernel may be right for other devices.
                Err(Error::Device { device, problem, .. })
                    if devices.len() > 1 && devices.iter().any(|other| other.id == device) =>
                {
                    self.lose(&device, &problem);
                    notes.push(format!("{device} took no part: {problem}"));
                    devices.retain(|other| other.id != device);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens the engine's devices. Also returns those that cannot be used now.
    pub(super) fn opened(&self) -> Result<(Opened, Vec<Absent>)> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let absent = opened.open(&self.choice, &self.found().devices, &self.found().budgets)?;
        Ok((opened.clone(), absent))
    }

    /// Returns the devices that are open, without opening any.
    pub(super) fn opened_so_far(&self) -> Opened {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns whether opening a GPU would take longer than the CPU takes for the job.
fn is_small(bound: &BoundJob) -> bool {
    cpu_seconds(bound).is_some_and(|seconds| seconds <= OPENING)
}

/// Returns whether the CPU takes about as long for the job as an open GPU needs to begin.
fn is_tiny(bound: &BoundJob) -> bool {
    cpu_seconds(bound).is_some_and(|seconds| seconds <= BEGINNING && !bound.is_resident)
}

/// Returns the most seconds that all cores take for the job. `None` for custom kernels: the work of a row is known only
/// for expressions.
fn cpu_seconds(bound: &BoundJob) -> Option<f64> {
    let kernel = bound.operator.kernel();
    let columns = &kernel.columns;
    let row_bytes: usize = columns.inputs.iter().chain(&columns.outputs).sum();
    let products = columns.products.iter().map(|product| product.product.elements());
    let matrices = kernel.layers.iter().flat_map(|layer| &layer.multiplied);
    let products: usize = products.chain(matrices.map(|by| by.product.inner * by.product.width)).sum();
    let of_row = row_bytes.max(8) as f64 / CORE_RATE + products as f64 / CORE_PRODUCTS;
    let seconds = bound.len() as f64 * of_row / cpu::cores() as f64;
    bound.is_expression.then_some(seconds)
}

/// Returns the memory that a plan needs of the engine's budgets. The CPU needs none.
fn needs(found: &Found, plan: &Plan) -> Vec<Need> {
    let staging = plan.devices.iter().filter(|device| device.kind != DeviceKind::Cpu);
    let needs = staging.flat_map(|device| {
        let budgets = found.budgets_of(&device.id);
        [(budgets.device.clone(), device.device_bytes), (budgets.pinned.clone(), device.pinned_bytes)]
    });
    needs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::check::bind;
    use crate::job::Job;

    #[test]
    fn a_run_gives_up_that_is_cancelled_or_whose_values_never_come() {
        let job = Job { deferred: true, ..Job::eval("sum(i * a)").unwrap().rows(5).scalar("a", 1.0) };
        let bound = bind(&job).unwrap();
        let (opened, cancel) = (Opened::default(), CancelToken::new());
        let columns = Columns::resolve(&job.inputs, &job.outputs, &bound, &opened, false).unwrap();
        let found = Found::cpu(&RunLimits::default());
        let request =
            |cancel| Request { bound: &bound, columns: &columns, found: &found, devices: &[], opened: &opened, cancel };
        assert!(request(Some(&cancel)).given_up().is_none());
        cancel.cancel();
        assert!(matches!(request(Some(&cancel)).given_up(), Some(Error::Cancelled { done: 0, rows: 5 })));
        assert!(request(None).given_up().is_none());
        bound.operator.kernel().values.abandon();
        assert!(request(None).given_up().is_some_and(|error| error.is_abandoned()));
    }

    #[test]
    fn a_small_job_does_not_look_for_gpus() {
        let run = |engine: &Engine, rows: u64| engine.run(Job::eval("sum(i)").unwrap().rows(rows)).unwrap();
        let engine = Engine::builder().build().unwrap();
        let report = run(&engine, 1000);
        assert!(engine.found.get().is_none() && report.devices.len() == 1);
        assert!(report.notes.iter().any(|note| note.contains("no GPU was used")), "{:?}", report.notes);
        // A job without rows is small, too, but a job of many rows is not.
        assert!(engine.plan(&Job::eval("sum(i)").unwrap().rows(0)).is_ok() && engine.found.get().is_none());
        assert!(engine.plan(&Job::eval("sum(i)").unwrap().rows(1 << 50)).is_ok() && engine.found.get().is_some());
        // There is one note at most on why no GPU was used.
        let notes = run(&engine, 1000).notes;
        assert_eq!(notes.iter().filter(|note| note.contains("no GPU")).count(), 1, "{notes:?}");
        let engine = Engine::builder().build().unwrap();
        assert!(!engine.devices().is_empty() && engine.found.get().is_some());
        // A named device is found, or is an error, at once.
        let engine = Engine::builder().device(DeviceChoice::Cpu).build().unwrap();
        assert!(engine.found.get().is_some());
    }
}
