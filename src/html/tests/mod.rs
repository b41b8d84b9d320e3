//! Pictures: their form, their numbers and their size.

mod form;

use std::time::Duration;

use self::form::{check, text_of};
use super::timeline;
use crate::data::Scalar;
use crate::device::{DeviceKind, Emulated};
use crate::report::tests::{example, with_arrays};
use crate::report::{Bottleneck, Computation, InputReport, OutputReport, Report, Stage, StageTimes};
use crate::trace::{Span, Timeline, Track};
use crate::{DeviceChoice, Engine, Job, Plan};

const ODD: &str = "<script>a & \"b\"</script>\u{1b}[31m\n'\u{202e}c";

fn span(track: Track, name: &'static str, chunk: u64, [begin, end]: [u64; 2]) -> Span {
    let [begin, end] = [begin, end].map(Duration::from_micros);
    Span { track, name, chunk, rows: 0..1, begin, end }
}

/// A timeline of devices with so many workers and chunks each. Copies take all of the time, the kernel half of it.
fn timeline_of(devices: usize, workers: usize, chunks: u64) -> Timeline {
    let names = (0..devices).map(|device| format!("cuda:{device} (NVIDIA Test)"));
    let workers = (0..devices * workers).map(|number| {
        let (device, worker) = (number % devices, number / devices);
        let mut spans = Vec::new();
        for chunk in 0..chunks {
            let begin = chunk * 10;
            spans.push(span(Track::Worker(worker), "fill", chunk, [begin, begin + 4]));
            spans.push(span(Track::Worker(worker), "drain", chunk, [begin + 4, begin + 7]));
            if worker == 0 {
                spans.push(span(Track::CopyIn, "copy in", chunk, [begin, begin + 10]));
                spans.push(span(Track::Compute, "kernel", chunk, [begin, begin + 5]));
                spans.push(span(Track::CopyOut, "copy out", chunk, [begin + 5, begin + 9]));
            }
        }
        (device, spans)
    });
    Timeline::new(names, workers)
}

fn plan_of(devices: usize) -> Plan {
    let x = vec![1.0f64; 1_000_000];
    let device: DeviceChoice = format!("emulated:3*{devices}").parse().unwrap();
    let engine = Engine::builder().device(device).device_memory(4 << 20).build().unwrap();
    engine.plan(&Job::eval("sum(x)").unwrap().input("x", &x)).unwrap()
}

fn assert_has(html: &str, parts: &[&str]) {
    check(html).unwrap_or_else(|problem| panic!("{problem}: {html}"));
    let text = text_of(html);
    parts.iter().for_each(|part| assert!(text.contains(part), "no '{part}' in {text}"));
}

#[test]
fn the_numbers_are_those_of_the_report() {
    let html = example().html();
    let parts = [
        "c = x * 2; m = mean(x), min(nothing), min(log(c))",
        "Report on cuda:0 (NVIDIA Test)",
        "1,000,000,000 rows",
        "10.0 GB in + out",
        "200 ms 590 ms with setup",
        "50.0 GB/s in + out",
        "host-to-device copies bottleneck: 95 % busy",
        "m 0.5 f64",
        "min(nothing) no value (no rows)",
        "min(log(c)) -inf f32",
        "max( k) -7 i8",
        "1,000,000,000 rows in 300 chunks over 8 workers",
        // Eight workers fill for 300 ms of 8 * 200; the engines of the device are busy for so many of 200 ms.
        "fill 19 % 300 ms 1.0 ms",
        "copy in 95 % 190 ms 20 ms",
        "kernel 25 % 50 ms 30 ms",
        "copy out 45 % 90 ms 40 ms",
        "drain 0 % 850 µs 2.50 s",
        "workers 19 % 301 ms 2.50 s",
        "host-to-device copies (95 % busy), 50.0 GB/s, 91 % of this machine's limit (55.0 GB/s)",
        "input x x.npy f64 1,000,000 × 1,000 8.0 GB",
        "output c c.npy f32 500,000,000 2.0 GB",
        "chunks 300 of up to 4,194,304 rows",
        "pinned memory, peak 96.0 MiB",
        "memory of cuda:0, peak 64.0 MiB",
        "copied to devices 8.0 GB copied from devices 2.0 GB",
        "cores busy 6.3",
        "devices found and opened in 300 ms kernel ready in 40 ms memory allocated in 50 ms",
        "x.npy was not in the page cache",
    ];
    assert_has(&html, &parts);
    // The bars of the stages, and how close the bottleneck is to its limit.
    for width in ["18.75%", "95%", "25%", "45%", "90.91%"] {
        assert!(html.contains(&format!("width=\"{width}\"")), "{width}: {html}");
    }
    assert!(!html.contains("Timeline") && !html.contains("Rows by device"));
}

#[test]
fn arrays_are_rows_of_the_results() {
    let html = with_arrays().html();
    let parts = [
        "mean(x, axis=0) [0.5 NaN -2.0] f64, 3",
        "table [[0 1 2 ... 5 6 7] [8 9 10 ... 13 14 15]] i32, 2 × 8",
        "min(nothing, axis=0) no value (no rows)",
    ];
    assert_has(&html, &parts);
    // Without other results, too.
    assert_has(&Report { results: vec![], ..with_arrays() }.html(), &["Results", parts[0]]);
}

#[test]
fn the_bottleneck_is_highlighted() {
    let highlighted = |stage, kind| -> Vec<String> {
        let mut report = example();
        let device = &mut report.devices[0];
        device.kind = kind;
        let bottleneck = device.bottleneck.unwrap();
        device.bottleneck = Some(Bottleneck { stage, kind, ..bottleneck });
        let html = report.html();
        let rows = html.split("<tr class=\"overshot-hot\"><th scope=\"row\">").skip(1);
        rows.map(|row| row.split('<').next().unwrap().to_owned()).collect()
    };
    for (stage, on_gpu, on_cpu) in [
        (Stage::Fill, &["fill", "workers"][..], &["fill", "workers"][..]),
        (Stage::Decode, &["fill", "workers"], &["fill", "workers"]),
        (Stage::CopyIn, &["copy in"], &["copy in"]),
        (Stage::Kernel, &["kernel"], &["kernel"]),
        (Stage::DeviceMemory, &["kernel"], &["kernel"]),
        (Stage::Memory, &["fill", "drain", "workers"], &["kernel"]),
        (Stage::CopyOut, &["copy out"], &["copy out"]),
        (Stage::Drain, &["drain", "workers"], &["drain", "workers"]),
        (Stage::Encode, &["drain", "workers"], &["drain", "workers"]),
        (Stage::Latency, &[], &[]),
    ] {
        assert_eq!(highlighted(stage, DeviceKind::Cuda), on_gpu, "{stage:?}");
        assert_eq!(highlighted(stage, DeviceKind::Cpu), on_cpu, "{stage:?}");
    }
}

#[test]
fn workers_that_stood_aside_are_mentioned() {
    let with = |busy| {
        let mut report = example();
        let device = &mut report.devices[0];
        device.bottleneck =
            Some(Bottleneck { stage: Stage::Fill, busiest: Stage::Fill, busy, ..device.bottleneck.unwrap() });
        report.html().contains("stood aside")
    };
    // They were busy for 19 % of the time.
    assert!(with(0.9) && !with(0.19));
}

#[test]
fn text_from_outside_is_escaped() {
    let mut report = example();
    report.computation = Computation::Expression(format!("a < b &\n\t{ODD}"));
    report.results[0].0 = ODD.into();
    report.inputs[0].name = ODD.into();
    report.inputs[0].path = Some(ODD.into());
    report.outputs[0].path = Some(ODD.into());
    report.devices[0].id = ODD.into();
    report.devices[0].name = ODD.into();
    report.devices.push(report.devices[0].clone());
    report.notes = vec![ODD.into()];
    report.timeline = Some(Timeline::new(
        [ODD.to_owned()].into_iter(),
        [(0, vec![span(Track::CopyIn, "copy in", 0, [0, 5])])].into_iter(),
    ));
    let html = report.html();
    assert_has(&html, &["<script>a & \"b\"</script>\\u{1b}[31m\\n'\\u{202e}c", "a < b & <script>"]);
    assert!(html.contains("a &lt; b &amp;\n    &lt;script&gt;"), "the line break of the expression stays: {html}");
    let mut plan = plan_of(2);
    plan.columns[0].name = ODD.into();
    plan.columns[0].place = Some(ODD.into());
    plan.columns[0].dtype = ODD.into();
    plan.devices[0].id = ODD.into();
    plan.devices[0].name = ODD.into();
    plan.notes = vec![ODD.into()];
    assert_has(&plan.html(), &["<script>a & \"b\"</script>\\u{1b}[31m"]);
    let page = super::page(ODD, &html);
    assert!(page.contains("<title>&lt;script&gt;a &amp; &quot;b&quot;&lt;/script&gt;\\u{1b}[31m\\n&#39;"), "{page}");
    check(page.strip_prefix("<!DOCTYPE html>\n").unwrap()).unwrap();
}

#[test]
fn a_fragment_needs_nothing_from_outside() {
    let report = Report { timeline: Some(timeline_of(2, 4, 20)), ..example() };
    for html in [report.html(), plan_of(1).html(), super::page("a", &report.html())] {
        for word in ["<script", "://", "url(", "@import", " id=", " src=", " href=", " onload"] {
            assert!(!html.contains(word), "{word}: {html}");
        }
    }
    // Fragments stand side by side in one document.
    check(&format!("<body>{}{}</body>", report.html(), report.html())).unwrap();
}

#[test]
fn what_is_not_there_is_left_out() {
    let mut report = example();
    (report.rows, report.time, report.total_time) = (0, Duration::ZERO, Duration::ZERO);
    (report.inputs, report.outputs, report.results, report.notes) = (vec![], vec![], vec![], vec![]);
    report.computation = Computation::Kernel("saxpy".into());
    report.devices[0].stages = StageTimes::default();
    report.devices[0].bottleneck = None;
    report.timeline = Some(timeline_of(1, 1, 0));
    assert_has(&report.html(), &["Report of the kernel", "saxpy", "0 rows", "No stage took time.", "Timeline"]);
    for absent in ["NaN", "inf", "Results", "Inputs", "Bottleneck", "GB/s", "Notes"] {
        assert!(!text_of(&report.html()).contains(absent), "{absent}: {}", report.html());
    }
    // Stages that took time, in a run whose time is zero.
    report.devices = example().devices;
    assert_has(&report.html(), &["fill 0 % 300 ms"]);
    report.devices.clear();
    report.timeline = None;
    assert_has(&report.html(), &["0 rows"]);
}

#[test]
fn several_devices_share_the_rows() {
    let mut report = example();
    let mut other = report.devices[0].clone();
    (other.id, other.rows) = ("cuda:1".into(), 250_000_000);
    report.devices[0].rows = 750_000_000;
    report.devices.push(other);
    let html = report.html();
    assert_has(&html, &["cuda:0: 75 % cuda:1: 25 %", "cuda:1 (NVIDIA Test)", "bottleneck: cuda:0, 95 % busy"]);
    let bar = html.split("rows by device: cuda:0 75 %, cuda:1 25 %").nth(1).unwrap().split("</svg>").next().unwrap();
    assert!(bar.contains(r#"x="0%" width="75%""#) && bar.contains(r#"x="75%" width="25%""#), "{bar}");
    // Virtual time has no rate.
    let device = &mut report.devices[0];
    (device.kind, device.virtual_time) = (DeviceKind::Emulated, Some(Duration::from_millis(400)));
    assert_has(&report.html(), &["400 ms of virtual time", "copy in 48 % 190 ms"]);
    assert!(!text_of(&report.html()).contains("GB/s in + out"));
}

#[test]
fn a_short_timeline_has_every_span() {
    let html = timeline::picture(&timeline_of(1, 2, 10));
    let parts = [
        "The whole run: 70 spans.",
        "copy in 100 % kernels 50 % copy out 40 % worker 0 70 % worker 1 70 %",
        // The last chunk is drained at 97 µs, and copied in until 100 µs.
        "0 s 50 µs busy",
    ];
    assert_has(&html, &parts);
    let rectangles = html.split("h-").count() - 1;
    assert_eq!(rectangles, 70, "{html}");
    // Of 4000 units, the third kernel has those from 800 to 1000. It is the second of the darker ones.
    assert!(html.contains("M0 0h200v14h-200zM800 0h200v14h-200z"), "{html}");
    // No time passes: nothing can be drawn.
    let still =
        Timeline::new(["a".to_owned()].into_iter(), [(0, vec![span(Track::CopyIn, "copy in", 0, [3, 3])])].into_iter());
    assert_has(&timeline::picture(&still), &["No stage took time."]);
}

#[test]
fn a_long_timeline_is_drawn_in_steps() {
    let html = timeline::picture(&timeline_of(1, 64, 1600));
    let parts = [
        // Of three engines and eight workers.
        "The whole run: 30,400 spans. A bar is as high as the lane was busy in a step of 100 µs.",
        "worker 7 70 % and 56 workers that are not shown",
        "A part in its middle: 126 µs from 7.9 ms on, ",
    ];
    assert_has(&html, &parts);
    // Every step has ten chunks, of which copies in take all of the time, kernels half of it, copies out 40 %. A worker
    // fills for 40 % and drains for 30 %, which are on top of each other.
    for (name, tops) in [("copy in", &[0][..]), ("kernels", &[50]), ("copy out", &[60]), ("worker 7", &[30, 60])] {
        let lane = html.split(&format!("aria-label=\"{name}: ")).nth(1).unwrap().split("</svg>").next().unwrap();
        let drawn: Vec<_> = lane.split(" d=\"").skip(1).map(|path| path.split('"').next().unwrap()).collect();
        let expected: Vec<_> = tops.iter().map(|top| format!("M0 100V{top}h160V100z")).collect();
        assert_eq!(drawn, expected, "{name}");
    }
    let parts = html.matches("<path").count();
    assert!((11..60).contains(&parts), "{parts} paths");
}

#[test]
fn pictures_of_large_runs_are_small() {
    let mut report = example();
    let long = |number: usize| format!("{number}{}", "<&>'\"\u{202e}".repeat(1000));
    report.computation = Computation::Expression(long(0) + "\n" + &long(1).repeat(10) + &"\n".repeat(100_000));
    report.results = (0..1000).map(|number| (long(number), Some(Scalar::F64(0.1)))).collect();
    report.inputs = (0..1000)
        .map(|number| InputReport {
            name: long(number),
            path: Some(long(number).into()),
            ..example().inputs[0].clone()
        })
        .collect();
    report.outputs = (0..1000)
        .map(|number| OutputReport {
            name: long(number),
            path: Some(long(number).into()),
            ..example().outputs[0].clone()
        })
        .collect();
    report.notes = (0..1000).map(long).collect();
    report.devices = vec![example().devices[0].clone(); 64];
    report.devices.iter_mut().enumerate().for_each(|(number, device)| {
        (device.id, device.name) = (long(number), long(number));
    });
    report.timeline = Some(timeline_of(64, 16, 300));
    let html = report.html();
    assert_has(&html, &["and 55 more devices", "and 960 more notes", "and 1,960 more columns", "and 960 more results"]);
    assert!(html.len() < 300_000, "{} bytes", html.len());
}

#[test]
fn a_plan_shows_what_a_run_would_use() {
    let plan = plan_of(2);
    let device = &plan.devices[1];
    let memory = crate::units::memory;
    let parts = [
        "1,000,000 rows of 8 bytes".to_owned(),
        format!("{} in a chunk of up to {} rows", memory(plan.chunk_rows * 8), crate::units::count(plan.chunk_rows)),
        format!("emulated:1 ({})", device.name),
        format!("{} blocks × {} {} 4.0 MiB", device.blocks, memory(device.block_bytes), memory(device.device_bytes)),
        format!("4 workers × 2 slots × {} {} 256.0 MiB", memory(device.slot_bytes), memory(device.pinned_bytes)),
        "input x slice f64 1".to_owned(),
    ];
    let html = plan.html();
    assert_has(&html, &parts.each_ref().map(String::as_str));
    // One piece for each block.
    let bar = html.split("aria-label=\"device memory: ").nth(1).unwrap().split("</svg>").next().unwrap();
    assert_eq!(bar.matches("<rect").count(), 1 + device.blocks, "{bar}");
    let mut other = plan.clone();
    other.devices[0].resident_bytes = 1 << 20;
    other.devices[0].device_bytes += 1 << 20;
    (other.devices[0].first_workers, other.devices[0].halvings) = (2, 1);
    other.columns[0].exists = true;
    let parts =
        ["+ 1.0 MiB resident", "2 workers at first, at most 4", "may halve its chunks 1 time", "(exists already)"];
    assert_has(&other.html(), &parts);
    let none = Engine::builder().device(Emulated::new()).build().unwrap();
    assert_has(&none.plan(&Job::eval("sum(i)").unwrap().rows(0)).unwrap().html(), &["0 rows of 1 byte", "0 B"]);
}

#[test]
fn passes_have_a_table() {
    let engine = Engine::builder().device(DeviceChoice::Cpu).build().unwrap();
    let x = vec![1.0f64; 100_000];
    let job = || Job::eval("m = mean(x); max(x - m) + sum(x * m)").unwrap().input("x", &x);
    assert_has(&engine.plan(&job()).unwrap().html(), &["Passes", "x, m", "What follows is of the last pass"]);
    let report = engine.run(job()).unwrap();
    assert_has(&report.html(), &["Passes", "800.0 kB", "bottleneck"]);
    let many = Report { passes: vec![report; 5000], ..example() };
    assert!(many.html().len() < 300_000);
}
