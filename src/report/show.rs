//! A report as text for people.

use std::fmt::{self, Display, Write};
use std::time::Duration;

use super::{Bottleneck, DeviceReport, OutputReport, Report, Setup, StageTime, StageTimes};
use crate::device::DeviceKind;
use crate::units;

/// The short form does not mention setup that took less time than this.
const SHORT_SETUP: Duration = Duration::from_millis(50);

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.values())?;
        for output in &self.outputs {
            let to = output
                .path
                .as_ref()
                .map(|path| format!(" -> {}", units::one_line(&path.to_string_lossy())))
                .unwrap_or_default();
            writeln!(f, "{}: {} of {}{to}", output.name, units::counted(output.rows, "row"), output.dtype)?;
        }
        writeln!(f, "{}", self.summary())?;
        for (number, pass) in self.passes.iter().enumerate() {
            writeln!(f, "pass {} of {}: {}", number + 1, self.passes.len(), pass.summary())?;
        }
        if let Some(verification) = &self.verification {
            verification.devices.iter().try_for_each(|device| writeln!(f, "verified: {device}"))?;
        }
        if f.alternate() {
            write!(f, "\n{}", self.details())?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {}", units::one_line(note)))
    }
}

impl Report {
    /// Returns the results as text: a line `name = value` for each, where large arrays are abbreviated, and a line
    /// `BLAKE3 (file) = checksum`, as `b3sum --tag` prints it, for each output with a checksum.
    #[must_use]
    pub fn values(&self) -> String {
        let mut text = String::new();
        let values = self.results.iter().map(|(name, value)| (name, value.as_ref().map(|value| value as &dyn Display)));
        let arrays = self.arrays.iter().map(|(name, array)| (name, array.as_ref().map(|array| array as &dyn Display)));
        for (name, value) in values.chain(arrays) {
            // A name may be a piece of the expression, and expressions may contain line breaks.
            let name = units::one_line(&name.split_whitespace().collect::<Vec<_>>().join(" "));
            let _ = match value {
                Some(value) => writeln!(text, "{name} = {value}"),
                None => writeln!(text, "{name} has no value (no rows)"),
            };
        }
        for OutputReport { name, path, checksum, .. } in &self.outputs {
            let place = path.as_ref().map_or(name.as_str().into(), |path| path.to_string_lossy());
            if let Some(checksum) = checksum {
                let _ = writeln!(text, "BLAKE3 ({}) = {checksum}", units::one_line(&place));
            }
        }
        text
    }

    /// Returns one line with rows, bytes of the inputs and outputs, time, rate and bottleneck. The bottleneck is that
    /// of the device that processed the most rows.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut text = units::counted(self.rows, "row");
        let bytes = self.column_bytes();
        if bytes > 0 {
            let _ = write!(text, " ({})", units::bytes(bytes));
        }
        let _ = write!(text, " in {}", units::time(self.time));
        let setup = self.total_time.saturating_sub(self.time);
        if let Some(time) = self.virtual_time() {
            let _ = write!(text, " ({} of virtual time)", units::time(time));
        } else if setup >= SHORT_SETUP && setup * 10 >= self.time {
            let _ = write!(text, " ({} with setup)", units::time(self.total_time));
        }
        if let Some(rate) = self.rate() {
            let _ = write!(text, ", {}", units::rate(rate));
        }
        if let Some((device, bottleneck)) = self.bottleneck() {
            let whose = device.map(|device| format!("{}, ", device.id)).unwrap_or_default();
            let _ = write!(text, "; bottleneck: {whose}{bottleneck}");
        }
        text
    }

    /// Returns the bytes of all inputs and outputs.
    pub(crate) fn column_bytes(&self) -> u64 {
        self.input_bytes().saturating_add(self.output_bytes())
    }

    /// Returns the virtual time of the whole run, if it has one.
    pub(crate) fn virtual_time(&self) -> Option<Duration> {
        self.devices.iter().filter_map(|device| device.virtual_time).max()
    }

    /// Returns the bytes of inputs and outputs per second. The real speed of an emulated device is that of the host
    /// simulating it, which is of no interest, so it has none.
    pub(crate) fn rate(&self) -> Option<f64> {
        let is_emulated = self.devices.iter().any(|device| device.kind == DeviceKind::Emulated);
        let bytes = self.column_bytes();
        // Rows that give the same as others were not read.
        let bytes = bytes as f64 * (self.computed_rows() as f64 / self.rows.max(1) as f64);
        (bytes > 0.0 && !is_emulated && !self.time.is_zero()).then(|| bytes / self.time.as_secs_f64())
    }

    /// Returns the rows that devices have computed: all but those that give the same as others, as statistics say.
    pub(crate) fn computed_rows(&self) -> u64 {
        self.devices.iter().map(|device| device.rows).sum::<u64>().min(self.rows)
    }

    /// Returns the bottleneck of the device that processed the most rows, and this device if there are others.
    pub(crate) fn bottleneck(&self) -> Option<(Option<&DeviceReport>, Bottleneck)> {
        let worked = || self.devices.iter().filter(|device| device.rows > 0);
        let most = worked().max_by_key(|device| device.rows)?;
        Some(((worked().count() > 1).then_some(most), most.bottleneck?))
    }

    /// Returns the details that the short form omits: chunks, setup, copies, memory, devices, the time of each stage,
    /// and the bottleneck of each device.
    #[must_use]
    pub fn details(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write_details(&mut text);
        text
    }

    /// Returns how many cores the workers kept busy, on average over [`time`](Report::time); `None` if that is unknown.
    #[must_use]
    pub fn busy_cores(&self) -> Option<f64> {
        let is_known = !self.processor_time.is_zero() && !self.time.is_zero();
        is_known.then(|| self.processor_time.as_secs_f64() / self.time.as_secs_f64())
    }

    fn write_details(&self, f: &mut String) -> fmt::Result {
        let (chunks, chunk_rows) = (units::counted(self.chunks, "chunk"), units::counted(self.chunk_rows, "row"));
        let (time, total) = (units::time(self.time), units::time(self.total_time));
        write!(f, "{chunks} of up to {chunk_rows}: {time}, {total} with setup")?;
        match self.busy_cores() {
            Some(cores) => writeln!(f, ", {cores:.1} cores busy")?,
            None => writeln!(f)?,
        }
        if self.devices.iter().any(|device| device.kind == DeviceKind::Cuda) {
            let Setup { find, open, kernel, memory } = self.setup;
            let [cuda, kernel, memory] = [find + open, kernel, memory].map(units::time);
            writeln!(f, "setup: CUDA initialised in {cuda}, kernel ready in {kernel}, memory in {memory}")?;
        }
        let (bytes_in, bytes_out) = (self.bytes_to_device, self.bytes_from_device);
        if bytes_in + bytes_out > 0 {
            write!(f, "copied to and from devices: {} and {}", units::bytes(bytes_in), units::bytes(bytes_out))?;
            if self.bytes_ahead > 0 {
                write!(f, " ({} ahead of the values)", units::bytes(self.bytes_ahead))?;
            }
            // The rate is meaningful only if all copies crossed the link of a GPU.
            if self.devices.iter().all(|device| device.kind == DeviceKind::Cuda) && !self.time.is_zero() {
                let rate = (bytes_in + bytes_out) as f64 / self.time.as_secs_f64();
                write!(f, ", {} together", units::rate(rate))?;
            }
            writeln!(f)?;
        }
        if self.bytes_read_directly > 0 {
            writeln!(f, "read past the page cache: {}", units::bytes(self.bytes_read_directly))?;
        }
        if self.peak_pinned_bytes > 0 {
            writeln!(f, "peak pinned memory: {}", units::memory(self.peak_pinned_bytes))?;
        }
        if self.outputs.iter().any(|output| output.checksum.is_some()) {
            write!(f, "checksums of {} in {}", units::bytes(self.output_bytes()), units::time(self.checksum_time))?;
            let seconds = self.checksum_time.as_secs_f64();
            match seconds > 0.0 {
                true => writeln!(f, ", {}", units::rate(self.output_bytes() as f64 / seconds))?,
                false => writeln!(f)?,
            }
        }
        self.devices.iter().try_for_each(|device| write!(f, "{device}"))?;
        let stages = self.stages();
        if !stages.is_empty() {
            write!(f, "\n{stages}")?;
        }
        self.devices.iter().try_for_each(|device| self.write_overlap(f, device))?;
        for device in &self.devices {
            if let Some(bottleneck) = &device.bottleneck {
                writeln!(f, "{}: bottleneck: {bottleneck:#}", device.id)?;
            }
        }
        Ok(())
    }

    /// Writes how far copies and kernels of a device overlapped: their summed time, and the elapsed time.
    fn write_overlap(&self, f: &mut String, device: &DeviceReport) -> fmt::Result {
        let StageTimes { copy_in, kernel, copy_out, .. } = device.stages;
        let (work, time) = (copy_in.busy + kernel.busy + copy_out.busy, device.virtual_time.unwrap_or(self.time));
        if device.kind == DeviceKind::Cpu || work.is_zero() || time.is_zero() {
            return Ok(());
        }
        let [work, time] = [work, time].map(units::time);
        writeln!(f, "{}: overlap: {work} of copies and kernels in {time}", device.id)
    }
}

impl fmt::Display for DeviceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, chunks) = (units::counted(self.rows, "row"), units::counted(self.chunks, "chunk"));
        let workers = units::counted(self.workers as u64, "worker");
        write!(f, "{} ({}): {rows} in {chunks} over {workers}", self.id, self.name)?;
        if self.kind != DeviceKind::Cpu {
            write!(f, ", peak device memory {}", units::memory(self.peak_device_bytes))?;
        }
        match self.virtual_time {
            Some(time) => writeln!(f, "; {} of virtual time", units::time(time)),
            None => writeln!(f),
        }
    }
}

impl fmt::Display for StageTimes {
    /// Writes a table of the stages that took time.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return Ok(());
        }
        writeln!(f, "{:10} {:>12} {:>12}   (summed over workers)", "stage", "busy", "waiting")?;
        for (name, StageTime { busy, waiting }) in self.named() {
            if !(busy + waiting).is_zero() {
                writeln!(f, "{name:10} {:>12} {:>12}", units::time(busy), units::time(waiting))?;
            }
        }
        Ok(())
    }
}
