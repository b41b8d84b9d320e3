//! Preparing a run: its devices opened, its columns resolved, its plan made, its memory taken.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Instant;

use super::check::BoundJob;
use super::columns::{Columns, Pinning};
use super::devices::{Budgets, Full, Opened};
use super::passes::PassContext;
use super::{CORE_RATE, Engine, OPENING, reports};
use crate::data::{Input, Output};
use crate::device::kernel::Code;
use crate::device::{DeviceChoice, DeviceInfo, DeviceKind, cpu};
use crate::error::{Error, Result};
use crate::memory::{Admission, Admitted, Need};
use crate::pipeline::{DeviceRun, Segment, Sharded, segments};
use crate::plan::{Machine, Plan, RunLimits, Shape};
use crate::progress::CancelToken;
use crate::report::Setup;

/// A job that was checked, and where it is to run.
#[derive(Clone, Copy)]
pub(super) struct Request<'r, 'j> {
    pub(super) bound: &'r BoundJob,
    pub(super) columns: &'r Columns<'j>,
    pub(super) devices: &'r [DeviceInfo],
    pub(super) opened: &'r Opened,
    pub(super) cancel: Option<&'r CancelToken>,
}

/// All that a run needs before its outputs are opened.
pub(super) struct Prepared<'j> {
    /// Its place among the runs that have memory of the engine; `None` if it needs none.
    pub(super) reserved: Option<Admitted>,
    pub(super) plan: Plan,
    /// Whose rows are whose.
    pub(super) segments: Vec<Segment>,
    /// What the plan needs on each of its devices.
    pub(super) runs: Vec<Box<dyn DeviceRun>>,
    pub(super) budgets: Vec<Budgets>,
    pub(super) columns: Columns<'j>,
    pub(super) notes: Vec<String>,
    pub(super) setup: Setup,
}

impl Request<'_, '_> {
    /// Why the run need not wait any longer to begin, if it need not.
    fn given_up(&self) -> Option<Error> {
        let Request { cancel, bound, .. } = self;
        if cancel.is_some_and(CancelToken::is_cancelled) {
            return Some(Error::Cancelled { done: 0, rows: bound.rows });
        }
        bound.operator.kernel().values.are_abandoned().then_some(Error::Abandoned)
    }
}

/// What is reserved for a run, its plan, whose rows are whose, and what it needs on each of its devices.
type Ready = (Option<Admitted>, Plan, Vec<Segment>, Vec<Box<dyn DeviceRun>>, Vec<Budgets>);

impl Engine {
    /// Prepares a run. Devices that have no memory for it take no part, with a note, if others are there.
    ///
    /// # Errors
    /// Those of [`run`](Engine::run) that can be known before the outputs are opened.
    pub(super) fn prepare<'j>(
        &self,
        inputs: &'j [(String, Input<'_>)],
        outputs: &[(String, Output<'_>)],
        bound: &BoundJob,
        cancel: Option<&CancelToken>,
        context: &PassContext,
    ) -> Result<Prepared<'j>> {
        let mut notes: Vec<String> = self.note.iter().chain(&self.limits_note).cloned().collect();
        let devices = self.devices_for(bound, &mut notes)?;
        let on_cpu = devices.iter().all(|device| device.kind == DeviceKind::Cpu);
        if self.limits.device_memory.or(self.limits.pinned_memory).is_some() && on_cpu {
            notes.push("the CPU uses no device or pinned memory, so their limits have no effect".into());
        }
        let mut setup = Setup { find: self.found, ..Setup::default() };
        let (opened, devices) = self.open(devices, &mut notes, &mut setup)?;
        let mut columns = Columns::resolve(inputs, outputs, bound, &opened, true)?;
        notes.append(&mut columns.notes);
        let request = Request { bound, columns: &columns, devices: &devices, opened: &opened, cancel };
        let (reserved, plan, segments, runs, budgets) = self.ready(&request, context, &mut notes, &mut setup)?;
        notes.extend(opened.notes(&plan, bound.operator.kernel()));
        Ok(Prepared { reserved, plan, segments, runs, budgets, columns, notes, setup })
    }

    /// The devices for a job: with [`DeviceChoice::Auto`] the CPU alone if opening the GPUs would take longer than
    /// the work; GPUs alone if the kernel has no function for the host.
    ///
    /// # Errors
    /// [`Error::Job`] if no device can run the kernel.
    pub(super) fn devices_for(&self, bound: &BoundJob, notes: &mut Vec<String>) -> Result<Vec<DeviceInfo>> {
        let (kernel, rows) = (bound.operator.kernel(), bound.rows);
        let is_cpu = |device: &&DeviceInfo| device.kind == DeviceKind::Cpu;
        if kernel.code == Code::HostOnly {
            let able = self.devices.iter().filter(|device| device.kind != DeviceKind::Cuda);
            let able: Vec<_> = able.cloned().collect();
            return match self.devices.first() {
                Some(first) if able.is_empty() => Err(kernel.no_device_code(&first.id)),
                _ if able.len() < self.devices.len() => {
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
            let gpus = self.devices.iter().filter(|device| device.kind == DeviceKind::Cuda);
            let gpus: Vec<_> = gpus.cloned().collect();
            return match self.devices.first() {
                Some(first) if gpus.is_empty() => Err(match (&self.choice, DeviceChoice::Cuda.resolve()) {
                    (DeviceChoice::Auto, Err(Error::Device { problem, .. })) => kernel.no_gpu(&problem),
                    _ => kernel.no_host_kernel(&first.id),
                }),
                _ if gpus.len() < self.devices.len() => {
                    notes.push(format!("the CPU took no part: the kernel '{}' has no function for it", kernel.entry));
                    Ok(gpus)
                }
                _ => Ok(gpus),
            };
        }
        let gpus = self.devices.iter().any(|device| !is_cpu(&device));
        // How much work a row is, is known of expressions only.
        if self.choice != DeviceChoice::Auto || !gpus || self.is_opened() || !bound.is_expression {
            return Ok(self.devices.clone());
        }
        let row_bytes: usize = kernel.columns.inputs.iter().chain(&kernel.columns.outputs).sum();
        let seconds = rows as f64 * row_bytes.max(8) as f64 / (CORE_RATE * cpu::cores() as f64);
        if seconds > OPENING {
            return Ok(self.devices.clone());
        }
        notes.push(format!(
            "no GPU was used: opening one takes about {OPENING} s, longer than the CPU takes for so few rows"
        ));
        Ok(self.devices.iter().filter(is_cpu).cloned().collect())
    }

    fn is_opened(&self) -> bool {
        !self.opened.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Opens the GPUs among the devices, and leaves out those that have no memory for that.
    fn open(
        &self,
        mut devices: Vec<DeviceInfo>,
        notes: &mut Vec<String>,
        setup: &mut Setup,
    ) -> Result<(Opened, Vec<DeviceInfo>)> {
        // The CPU needs nothing opened.
        if devices.iter().all(|device| device.kind == DeviceKind::Cpu) {
            return Ok((Opened::default(), devices));
        }
        let begin = Instant::now();
        let (opened, full) = self.opened()?;
        setup.open = begin.elapsed();
        for (id, error) in full {
            devices.retain(|device| device.id != id);
            if devices.is_empty() {
                return Err(error);
            }
            notes.push(format!("{id} took no part: it had no memory for a context"));
        }
        Ok((opened, devices))
    }

    /// The limits of a run that starts now; `is_half`, beside another one that has the other half.
    pub(super) fn limits(&self, is_half: bool) -> RunLimits {
        let stays = self.devices.iter().zip(&self.budgets);
        let stays = stays.map(|(device, budgets)| (device.id.clone(), budgets.stays.in_use())).collect();
        RunLimits { stays, is_half, ..self.limits.clone() }
    }

    pub(super) fn plan_of(&self, request: &Request<'_, '_>, limits: &RunLimits) -> Result<(Plan, Vec<Segment>)> {
        let Request { bound, columns, devices, .. } = *request;
        let (rows, kernel, keeps) = (bound.rows, bound.operator.kernel(), bound.operator.compacts());
        let names: Vec<&str> = devices.iter().map(|device| &*device.id).collect();
        let sharded: Vec<_> = columns.sharded().collect();
        let segments = segments(&sharded, rows, kernel.columns.tile_rows, &names, keeps);
        let is_home = |column: &Option<&Sharded>| {
            column.is_some_and(|column| !column.is_filling && column.stays_home(&segments, &names))
        };
        let inputs = columns.inputs.iter().map(|input| input.pinned.is_some());
        let pinned = inputs.chain(columns.outputs.iter().map(|output| output.pinning != Pinning::No));
        let shape = Shape {
            rows,
            columns: kernel.columns.clone(),
            resident_bytes: kernel.resident.iter().map(|array| array.bytes().len() as u64).sum(),
            in_memory: columns
                .is_cached
                .iter()
                .copied()
                .chain(columns.outputs.iter().map(|out| out.in_memory))
                .collect(),
            pinned: pinned.zip(&sharded).map(|(pinned, sharded)| pinned || is_home(sharded)).collect(),
        };
        let files = columns.files;
        let plan = Plan::new(&shape, devices, limits, &Machine::of(self.machine.as_ref(), cpu::cores(), files))?;
        Ok((plan, segments))
    }

    /// Plans, waits until there is memory for that beside other runs of the engine, and makes every device ready. A
    /// device that has less memory than it said gets smaller chunks, or takes no part if it has none and others are
    /// there; but a pass that is made ready while another one runs had better wait for the memory of that.
    fn ready(
        &self,
        request: &Request<'_, '_>,
        context: &PassContext,
        notes: &mut Vec<String>,
        setup: &mut Setup,
    ) -> Result<Ready> {
        let kernel = request.bound.operator.kernel();
        let (mut devices, mut limits) = (request.devices.to_vec(), self.limits(context.is_half));
        // What each device that had too little memory was asked for first, in bytes.
        let mut short = BTreeMap::new();
        let mut admission = Admission { nested: context.nested, ..Admission::default() };
        let mut reserved: Option<Admitted> = None;
        loop {
            let (plan, segments) = self.plan_of(&Request { devices: &devices, ..*request }, &limits)?;
            let needs = self.needs(&plan);
            match &mut reserved {
                Some(reserved) => reserved.change(needs),
                None if needs.is_empty() => {}
                None => reserved = Some(self.admissions.admit(needs, admission, || request.given_up())?),
            }
            let budgets: Vec<_> = plan.devices.iter().map(|device| Budgets::of_run(&limits, &device.id)).collect();
            let runs = plan.devices.iter().zip(&budgets).map(|(device, budgets)| {
                request.opened.ready(&self.choice, device, kernel, budgets, self.budgets_of(&device.id))
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
                    return Ok((reserved, plan, segments, runs, budgets));
                }
                // What is kept for the next run is for this one first.
                Err(Error::OutOfMemory { .. }) if request.opened.trim() > 0 => {}
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
                    // A chunk that was set is kept.
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
                Err(error) => return Err(error),
            }
        }
    }

    /// What a plan needs of the engine's budgets; nothing on the CPU.
    fn needs(&self, plan: &Plan) -> Vec<Need> {
        let staging = plan.devices.iter().filter(|device| device.kind != DeviceKind::Cpu);
        let needs = staging.flat_map(|device| {
            let budgets = self.budgets_of(&device.id);
            [(budgets.device.clone(), device.device_bytes), (budgets.pinned.clone(), device.pinned_bytes)]
        });
        needs.collect()
    }

    /// The engine's devices, opened, and those that now have no memory for that.
    pub(super) fn opened(&self) -> Result<(Opened, Vec<Full>)> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let full = opened.open(&self.devices, &self.budgets)?;
        Ok((opened.clone(), full))
    }

    /// For whoever looks, and is not to open anything.
    pub(super) fn opened_so_far(&self) -> Opened {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn budgets_of(&self, id: &str) -> &Budgets {
        let number = self.devices.iter().position(|device| device.id == id);
        &self.budgets[number.expect("a plan is for devices of the engine")]
    }
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
        let request = |cancel| Request { bound: &bound, columns: &columns, devices: &[], opened: &opened, cancel };
        assert!(request(Some(&cancel)).given_up().is_none());
        cancel.cancel();
        assert!(matches!(request(Some(&cancel)).given_up(), Some(Error::Cancelled { done: 0, rows: 5 })));
        assert!(request(None).given_up().is_none());
        bound.operator.kernel().values.abandon();
        assert!(matches!(request(None).given_up(), Some(Error::Abandoned)));
    }
}
