//! Prepares a run: opens its devices, resolves its columns, makes its plan, reserves its memory.

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

/// A checked job, and the devices that it is to run on.
#[derive(Clone, Copy)]
pub(super) struct Request<'r, 'j> {
    pub(super) bound: &'r BoundJob,
    pub(super) columns: &'r Columns<'j>,
    pub(super) devices: &'r [DeviceInfo],
    pub(super) opened: &'r Opened,
    pub(super) cancel: Option<&'r CancelToken>,
}

/// What a run needs before its outputs are opened.
pub(super) struct Prepared<'j> {
    pub(super) ready: Ready,
    pub(super) columns: Columns<'j>,
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
            return Some(Error::Cancelled { done: 0, rows: bound.rows });
        }
        bound.operator.kernel().values.are_abandoned().then(Error::abandoned)
    }
}

impl Engine {
    /// Prepares a run. Devices without enough memory are left out, with a note, if there are others.
    ///
    /// # Errors
    /// Those of [`run`](Engine::run) that are detected before the outputs are opened.
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
        let ready = self.ready(&request, context, &mut notes, &mut setup)?;
        notes.extend(opened.notes(&ready.plan, bound.operator.kernel()));
        Ok(Prepared { ready, columns, notes, setup })
    }

    /// Returns the devices for a job: the CPU alone if the kernel has no device code, or if opening the GPUs would take
    /// longer than the work ([`DeviceChoice::Auto`]); GPUs alone if the kernel has no host kernel.
    ///
    /// # Errors
    /// [`Error::InvalidKernel`] if no device can run the kernel.
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
        // The work of a row is known only for expressions.
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

    /// Opens the GPUs among the devices, and leaves out those that have no memory for a context.
    fn open(
        &self,
        mut devices: Vec<DeviceInfo>,
        notes: &mut Vec<String>,
        setup: &mut Setup,
    ) -> Result<(Opened, Vec<DeviceInfo>)> {
        // The CPU is not opened.
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

    /// Returns the limits of a run that starts now. If `is_half`, another run has the other half of the limits.
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
        let (mut devices, mut limits) = (request.devices.to_vec(), self.limits(context.is_half));
        // For each device that had too little memory: the bytes that it was first asked for.
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
                    return Ok(Ready { reserved, plan, segments, runs, budgets });
                }
                // This run has precedence over cached memory.
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
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the memory that a plan needs of the engine's budgets. The CPU needs none.
    fn needs(&self, plan: &Plan) -> Vec<Need> {
        let staging = plan.devices.iter().filter(|device| device.kind != DeviceKind::Cpu);
        let needs = staging.flat_map(|device| {
            let budgets = self.budgets_of(&device.id);
            [(budgets.device.clone(), device.device_bytes), (budgets.pinned.clone(), device.pinned_bytes)]
        });
        needs.collect()
    }

    /// Opens the engine's devices. Also returns the devices that have no memory for a context now.
    pub(super) fn opened(&self) -> Result<(Opened, Vec<Full>)> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let full = opened.open(&self.devices, &self.budgets)?;
        Ok((opened.clone(), full))
    }

    /// Returns the devices that are open, without opening any.
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
        assert!(request(None).given_up().is_some_and(|error| error.is_abandoned()));
    }
}
