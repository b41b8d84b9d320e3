//! The stages of a device: how much of the run's time each was busy, and the bottleneck.

use super::bars::{Part, bar, gauge, percent, share};
use super::markup::{add, dim, section};
use super::style;
use crate::device::DeviceKind;
use crate::report::{Bottleneck, DeviceReport, Report, Stage, StageTime};
use crate::units;

/// Returns the section of one device.
pub(super) fn device(report: &Report, device: &DeviceReport) -> String {
    let (rows, chunks) = (units::counted(device.rows, "row"), units::counted(device.chunks, "chunk"));
    let workers = units::counted(device.workers as u64, "worker");
    let mut content = format!("<p>{rows} in {chunks} over {workers}");
    if let Some(time) = device.virtual_time {
        add(&mut content, format_args!("; {} of virtual time", units::time(time)));
    }
    content.push_str("</p>\n");
    if device.stages.is_empty() {
        content += &format!("<p>{}</p>\n", dim("No stage took time."));
    } else {
        content += &table(report, device);
    }
    if let Some(bottleneck) = &device.bottleneck {
        content += &verdict(bottleneck);
    }
    section(&super::report::name_of(device), &content)
}

/// Returns the table of the stages, and of the workers if they have several stages.
fn table(report: &Report, device: &DeviceReport) -> String {
    let mut text = String::from(
        "<table class=\"overshot-full\">\n<thead><tr><th scope=\"col\">stage</th>\
         <th scope=\"col\" colspan=\"2\">busy, of the time</th><th scope=\"col\">busy</th>\
         <th scope=\"col\">waiting</th></tr></thead>\n<tbody>\n",
    );
    let mut of_workers = Vec::new();
    let mut all = StageTime::default();
    for (name, time) in device.stages.named() {
        if (time.busy + time.waiting).is_zero() {
            continue;
        }
        let part = Part::new(style::colour(name), busy(report, device, name, time));
        if is_on_host(device, name) {
            of_workers.push(part);
            all = StageTime { busy: all.busy + time.busy, waiting: all.waiting + time.waiting };
        }
        text += &row(name, &[part], time, bounds(device, name));
    }
    let share = of_workers.iter().map(|part| part.share).sum::<f64>();
    let is_bound = device.bottleneck.is_some_and(|bottleneck| bottleneck.stage != Stage::Latency)
        && ["fill", "drain"].iter().any(|name| bounds(device, name));
    if of_workers.len() > 1 {
        text += &row("workers", &of_workers, all, is_bound);
    }
    text.push_str("</tbody>\n</table>\n");
    if device.workers > 1 {
        let workers = units::counted(device.workers as u64, "worker");
        let what = if device.kind == DeviceKind::Cpu { "all stages" } else { "fill and drain" };
        let mut line = format!("Bars of {what} are the mean of {workers}. Busy and waiting are sums.");
        let hot = device.bottleneck.filter(|bottleneck| is_of_host(device, bottleneck.busiest));
        if hot.is_some_and(|bottleneck| bottleneck.busy > share + 0.02) {
            line += " Workers stood aside for a part of the time, which does not count for the bottleneck.";
        }
        add(&mut text, format_args!("<p>{}</p>\n", dim(&line)));
    }
    text
}

/// Returns the row of a stage, whose name is markup.
fn row(name: &str, parts: &[Part], time: StageTime, is_bottleneck: bool) -> String {
    let share = format!("{:.0} %", 100.0 * parts.iter().map(|part| part.share).sum::<f64>());
    let class = if is_bottleneck { " class=\"overshot-hot\"" } else { "" };
    let bar = bar(parts, &format!("{name}: busy for {share} of the time"));
    let [busy, waiting] = [time.busy, time.waiting].map(units::time);
    format!(
        "<tr{class}><th scope=\"row\">{name}</th><td class=\"overshot-wide\">{bar}</td><td>{share}</td>\
         <td>{busy}</td><td>{waiting}</td></tr>\n"
    )
}

/// Whether the workers do this stage, as opposed to an engine of the device.
fn is_on_host(device: &DeviceReport, name: &str) -> bool {
    device.kind == DeviceKind::Cpu || name == "fill" || name == "drain"
}

/// Whether the workers were busy if this was.
fn is_of_host(device: &DeviceReport, stage: Stage) -> bool {
    device.kind == DeviceKind::Cpu
        || matches!(stage, Stage::Fill | Stage::Decode | Stage::Drain | Stage::Encode | Stage::Memory)
}

/// Returns the fraction of the run's time for which a stage was busy: on a device its engine, on the host the mean of
/// the workers.
pub(super) fn busy(report: &Report, device: &DeviceReport, name: &str, time: StageTime) -> f64 {
    let run = device.virtual_time.unwrap_or(report.time).as_secs_f64();
    let all = if is_on_host(device, name) { run * device.workers.max(1) as f64 } else { run };
    share(time.busy.as_secs_f64(), all)
}

/// Whether a stage is the bottleneck of its device, or waited for the memory that is.
fn bounds(device: &DeviceReport, name: &str) -> bool {
    let is_cpu = device.kind == DeviceKind::Cpu;
    match device.bottleneck.map(|bottleneck| bottleneck.stage) {
        Some(Stage::Fill | Stage::Decode) => name == "fill",
        Some(Stage::CopyIn) => name == "copy in",
        Some(Stage::Kernel | Stage::DeviceMemory) => name == "kernel",
        Some(Stage::Memory) if is_cpu => name == "kernel",
        Some(Stage::Memory) => name == "fill" || name == "drain",
        Some(Stage::CopyOut) => name == "copy out",
        Some(Stage::Drain | Stage::Encode) => name == "drain",
        Some(Stage::Latency) | None => false,
    }
}

/// Returns the bottleneck in words, and how close it is to its limit.
fn verdict(bottleneck: &Bottleneck) -> String {
    let mut text = format!("<div class=\"overshot-verdict\"><p>Bottleneck: {bottleneck:#}</p>\n");
    if let Some(limit) = bottleneck.limit_bytes_per_second.filter(|limit| *limit > 0.0) {
        let share = bottleneck.bytes_per_second / limit;
        let label = format!("{} of the limit", percent(share));
        // The rates of an emulated device say nothing about this machine, so the text does not have them.
        if bottleneck.kind == DeviceKind::Emulated {
            add(&mut text, format_args!("<p>{:.0} % of its limit</p>\n", 100.0 * share));
        }
        text += &gauge(share, &label);
    }
    text + "</div>\n"
}
