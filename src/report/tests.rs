//! The text and the JSON of a report, word for word.

use super::*;

/// A report of a run on a GPU, in which every field has a different value.
pub(crate) fn example() -> Report {
    let ms = Duration::from_millis;
    let stage = |busy, waiting| StageTime { busy: ms(busy), waiting: ms(waiting) };
    let stages = StageTimes {
        fill: stage(300, 1),
        copy_in: stage(190, 20),
        kernel: stage(50, 30),
        copy_out: stage(90, 40),
        drain: StageTime { busy: Duration::from_micros(850), waiting: ms(2500) },
    };
    let bottleneck = Bottleneck {
        stage: Stage::CopyIn,
        busiest: Stage::CopyIn,
        kind: DeviceKind::Cuda,
        busy: 0.949,
        bytes_per_second: 50e9,
        limit_bytes_per_second: Some(55e9),
    };
    let device = DeviceReport {
        id: "cuda:0".into(),
        name: "NVIDIA Test".into(),
        kind: DeviceKind::Cuda,
        chunks: 300,
        rows: 1_000_000_000,
        chunk_rows: 4_194_304,
        workers: 8,
        peak_device_bytes: 64 << 20,
        virtual_time: None,
        stages,
        bottleneck: Some(bottleneck),
    };
    Report {
        computation: Computation::Expression("c = x * 2; m = mean(x), min(nothing), min(log(c))".into()),
        rows: 1_000_000_000,
        results: vec![
            ("m".into(), Some(Scalar::F64(0.5))),
            ("min(nothing)".into(), None),
            ("min(log(c))".into(), Some(Scalar::F32(f32::NEG_INFINITY))),
            ("max(\n  k)".into(), Some(Scalar::I8(-7))),
        ],
        arrays: vec![],
        inputs: vec![InputReport {
            name: "x".into(),
            path: Some("x.npy".into()),
            dtype: Dtype::F64,
            shape: vec![1_000_000, 1000],
            rows: 1_000_000_000,
            bytes: 8_000_000_000,
        }],
        // A compacting kernel has fewer rows in its output than the job has.
        outputs: vec![OutputReport {
            name: "c".into(),
            dtype: Dtype::F32,
            path: Some("c.npy".into()),
            shape: vec![500_000_000],
            rows: 500_000_000,
            bytes: 2_000_000_000,
            checksum: None,
        }],
        chunks: 300,
        chunk_rows: 4_194_304,
        time: ms(200),
        total_time: ms(590),
        processor_time: ms(1260),
        setup: Setup { find: ms(100), open: ms(200), kernel: ms(40), memory: ms(50) },
        bytes_to_device: 8_000_000_000,
        bytes_ahead: 0,
        bytes_from_device: 2_000_000_000,
        bytes_read_directly: 0,
        peak_pinned_bytes: 96 << 20,
        devices: vec![device],
        passes: vec![],
        notes: vec!["x.npy was not in the page cache".into()],
        measured: true,
        timeline: None,
        verification: None,
        checksum_time: Duration::ZERO,
    }
}

#[test]
fn what_was_verified_and_checksums() {
    let ms = Duration::from_millis;
    let mut report = example();
    let device = |id: &str, by, chunks| VerifiedDevice { id: id.into(), by, chunks, rows: 4096 * chunks, time: ms(12) };
    let devices = vec![device("cuda:0", RecomputedBy::Cpu, 2), device("cpu", RecomputedBy::OtherInstructions, 0)];
    report.verification = Some(Verification { fraction: 0.01, devices });
    report.outputs[0].checksum = Some("00ff".into());
    report.checksum_time = ms(500);
    let text = report.to_string();
    let expected = "verified: 2 chunks (8,192 rows) of cuda:0, computed again on the CPU in 12 ms, no difference\n\
                    verified: no chunk of cpu\nnote: ";
    assert!(text.contains(expected) && text.contains("\nBLAKE3 (c.npy) = 00ff\nc: 500,000,000 rows"), "{text}");
    assert!(report.details().contains("\nchecksums of 2.0 GB in 500 ms, 4.0 GB/s\n"), "{}", report.details());
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!((&json["outputs"][0]["blake3"], &json["checksum_seconds"]), (&"00ff".into(), &0.5.into()));
    let verified = serde_json::json!({"id": "cuda:0", "by": "cpu", "chunks": 2, "rows": 8192, "seconds": 0.012});
    assert_eq!((&json["verification"]["fraction"], &json["verification"]["devices"][0]), (&0.01.into(), &verified));
}

#[test]
fn the_short_form() {
    assert_eq!(
        example().to_string(),
        "\
m = 0.5
min(nothing) has no value (no rows)
min(log(c)) = -inf
max( k) = -7
c: 500,000,000 rows of f32 -> c.npy
1,000,000,000 rows (10.0 GB) in 200 ms (590 ms with setup), 50.0 GB/s; bottleneck: host-to-device copies (95 % busy)
note: x.npy was not in the page cache
"
    );
}

#[test]
fn the_details() {
    assert_eq!(
        example().details(),
        "\
300 chunks of up to 4,194,304 rows: 200 ms, 590 ms with setup, 6.3 cores busy
setup: CUDA initialised in 300 ms, kernel ready in 40 ms, memory in 50 ms
copied to and from devices: 8.0 GB and 2.0 GB, 50.0 GB/s together
peak pinned memory: 96.0 MiB
cuda:0 (NVIDIA Test): 1,000,000,000 rows in 300 chunks over 8 workers, peak device memory 64.0 MiB

stage              busy      waiting   (summed over workers)
fill             300 ms       1.0 ms
copy in          190 ms        20 ms
kernel            50 ms        30 ms
copy out          90 ms        40 ms
drain            850 µs       2.50 s
cuda:0: overlap: 330 ms of copies and kernels in 200 ms
cuda:0: bottleneck: host-to-device copies (95 % busy), 50.0 GB/s, 91 % of this machine's limit (55.0 GB/s)
"
    );
    let (short, long, details) = (example().to_string(), format!("{:#}", example()), example().details());
    let (head, note) = short.split_at(short.find("note:").unwrap());
    assert_eq!(long, format!("{head}\n{details}{note}"));
}

#[test]
fn summaries_of_other_runs() {
    let cpu = |rows: u64, time: Duration| {
        let mut report = example();
        (report.rows, report.time, report.total_time) = (rows, time, time);
        (report.inputs, report.outputs) = (vec![], vec![]);
        let device = &mut report.devices[0];
        (device.id, device.kind, device.rows) = ("cpu".into(), DeviceKind::Cpu, rows);
        device.bottleneck = None;
        report
    };
    // Without data there is no rate; without setup or a bottleneck, the report mentions none.
    assert_eq!(cpu(1, Duration::from_micros(90)).summary(), "1 row in 90 µs");
    let mut latency = cpu(10, Duration::from_micros(90));
    latency.devices[0].bottleneck =
        example().devices[0].bottleneck.map(|bottleneck| Bottleneck { stage: Stage::Latency, ..bottleneck });
    assert_eq!(
        latency.summary(),
        "10 rows in 90 µs; bottleneck: \
         latency (the busiest stage, host-to-device copies, was busy for 95 % of the time)"
    );
    // Two devices: whose bottleneck it is.
    let mut two = example();
    two.devices.insert(0, DeviceReport { rows: 5, id: "cuda:1".into(), ..two.devices[0].clone() });
    assert!(two.summary().ends_with("; bottleneck: cuda:0, host-to-device copies (95 % busy)"), "{}", two.summary());
    // An emulated device has virtual time, and no rate that says anything of this machine.
    let mut emulated = example();
    let device = &mut emulated.devices[0];
    (device.kind, device.virtual_time) = (DeviceKind::Emulated, Some(Duration::from_millis(3)));
    let expected = "1,000,000,000 rows (10.0 GB) in 200 ms (3.0 ms of virtual time); bottleneck: ";
    assert!(emulated.summary().starts_with(expected), "{}", emulated.summary());
}

#[test]
fn the_json() {
    let text = serde_json::to_string_pretty(&example()).unwrap();
    let expected = r#"{
  "schema_version": 1,
  "overshot_version": "VERSION",
  "expression": "c = x * 2; m = mean(x), min(nothing), min(log(c))",
  "kernel": null,
  "rows": 1000000000,
  "results": [
    {
      "name": "m",
      "dtype": "f64",
      "value": 0.5
    },
    {
      "name": "min(nothing)",
      "dtype": null,
      "value": null
    },
    {
      "name": "min(log(c))",
      "dtype": "f32",
      "value": "-inf"
    },
    {
      "name": "max(\n  k)",
      "dtype": "i8",
      "value": -7
    }
  ],
  "arrays": [],
  "inputs": [
    {
      "name": "x",
      "path": "x.npy",
      "dtype": "f64",
      "shape": [
        1000000,
        1000
      ],
      "rows": 1000000000,
      "bytes": 8000000000
    }
  ],
  "outputs": [
    {
      "name": "c",
      "path": "c.npy",
      "dtype": "f32",
      "shape": [
        500000000
      ],
      "rows": 500000000,
      "bytes": 2000000000,
      "blake3": null
    }
  ],
  "input_bytes": 8000000000,
  "output_bytes": 2000000000,
  "chunks": 300,
  "chunk_rows": 4194304,
  "seconds": 0.2,
  "total_seconds": 0.59,
  "processor_seconds": 1.26,
  "setup": {
    "find_seconds": 0.1,
    "open_seconds": 0.2,
    "kernel_seconds": 0.04,
    "memory_seconds": 0.05
  },
  "bytes_to_device": 8000000000,
  "bytes_ahead": 0,
  "bytes_from_device": 2000000000,
  "bytes_read_directly": 0,
  "peak_pinned_bytes": 100663296,
  "devices": [
    {
      "id": "cuda:0",
      "name": "NVIDIA Test",
      "kind": "cuda",
      "chunks": 300,
      "rows": 1000000000,
      "chunk_rows": 4194304,
      "workers": 8,
      "peak_device_bytes": 67108864,
      "virtual_seconds": null,
      "stages": {
        "fill": {
          "busy_seconds": 0.3,
          "waiting_seconds": 0.001
        },
        "copy_in": {
          "busy_seconds": 0.19,
          "waiting_seconds": 0.02
        },
        "kernel": {
          "busy_seconds": 0.05,
          "waiting_seconds": 0.03
        },
        "copy_out": {
          "busy_seconds": 0.09,
          "waiting_seconds": 0.04
        },
        "drain": {
          "busy_seconds": 0.00085,
          "waiting_seconds": 2.5
        }
      },
      "bottleneck": {
        "stage": "copy_in",
        "busiest": "copy_in",
        "kind": "cuda",
        "busy": 0.949,
        "bytes_per_second": 50000000000.0,
        "limit_bytes_per_second": 55000000000.0
      }
    }
  ],
  "verification": null,
  "checksum_seconds": null,
  "measured": true,
  "passes": [],
  "notes": [
    "x.npy was not in the page cache"
  ]
}"#;
    assert_eq!(text, expected.replace("VERSION", env!("CARGO_PKG_VERSION")));
}

#[test]
fn nothing_measured_is_null_in_json() {
    let mut report = example();
    report.devices[0].stages = StageTimes::default();
    report.computation = Computation::Kernel("saxpy".into());
    let json = serde_json::to_value(&report).unwrap();
    assert!(json["devices"][0]["stages"].is_null() && json["expression"].is_null(), "{json}");
    assert_eq!(json["kernel"], "saxpy");
}

#[test]
fn a_result_that_is_not_there_differs_from_one_without_a_value() {
    let report = example();
    assert_eq!(report.value("m"), Ok(Some(Scalar::F64(0.5))));
    assert_eq!(report.value("min(nothing)"), Ok(None));
    let error = report.value("mean(x)").unwrap_err();
    let UnknownResult::Name { name, known } = &error else { panic!("{error}") };
    assert_eq!(
        (&**name, &known[..]),
        ("mean(x)", &["m", "min(nothing)", "min(log(c))", "max(\n  k)"].map(String::from)[..])
    );
    let text = "there is no result 'mean(x)'; the results are 'm', 'min(nothing)', 'min(log(c))', 'max(\n  k)'";
    assert_eq!(error.to_string(), text);
    let none = Report { results: vec![], ..report }.value("m").unwrap_err();
    assert_eq!(none.to_string(), "there is no result 'm'; the job has no reduction");
}

/// A report of reductions along the rows.
pub(crate) fn with_arrays() -> Report {
    let floats = [0.5, f64::NAN, -2.0].map(Scalar::F64);
    let integers: Vec<_> = (0..16).map(Scalar::I32).collect();
    let arrays = vec![
        ("mean(x,\n  axis=0)".into(), Some(ArrayValue::new(Dtype::F64, vec![3], &floats))),
        ("table".into(), Some(ArrayValue::new(Dtype::I32, vec![2, 8], &integers))),
        ("min(nothing, axis=0)".into(), None),
    ];
    Report { arrays, ..example() }
}

#[test]
fn arrays_are_lines_behind_the_other_results() {
    let text = with_arrays().values();
    let expected = "\
max( k) = -7
mean(x, axis=0) = [0.5 NaN -2.0]
table = [[0 1 2 ... 5 6 7] [8 9 10 ... 13 14 15]]
min(nothing, axis=0) has no value (no rows)
";
    assert!(text.ends_with(expected), "{text}");
    assert!(with_arrays().to_string().starts_with(&text));
}

#[test]
fn arrays_are_nested_lists_in_json() {
    let json = serde_json::to_value(with_arrays()).unwrap();
    let expected = serde_json::json!([
        { "name": "mean(x,\n  axis=0)", "dtype": "f64", "shape": [3], "values": [0.5, "NaN", -2.0] },
        {
            "name": "table", "dtype": "i32", "shape": [2, 8],
            "values": [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13, 14, 15]],
        },
        { "name": "min(nothing, axis=0)", "dtype": null, "shape": null, "values": null },
    ]);
    assert_eq!(json["arrays"], expected);
    assert_eq!(json["results"], serde_json::to_value(example()).unwrap()["results"]);
    let empty = ArrayValue::new(Dtype::F32, vec![2, 0], &[]);
    let report = Report { arrays: vec![("none".into(), Some(empty))], ..example() };
    assert_eq!(serde_json::to_value(report).unwrap()["arrays"][0]["values"], serde_json::json!([[], []]));
}

#[test]
fn an_array_and_one_value_are_not_confused() {
    let report = with_arrays();
    assert_eq!(report.array("table").unwrap().and_then(ArrayValue::to_vec), Some((0..16).collect::<Vec<i32>>()));
    assert_eq!(report.array("min(nothing, axis=0)"), Ok(None));
    let texts = [report.value("table").unwrap_err(), report.array("m").unwrap_err(), report.array("q").unwrap_err()]
        .map(|error| error.to_string());
    assert_eq!(texts[0], "the result 'table' is an array; read it with `array`");
    assert_eq!(texts[1], "the result 'm' is one value; read it with `value`");
    assert!(texts[2].starts_with("there is no result 'q'; the results are 'm', 'min(nothing)', "), "{}", texts[2]);
    assert!(texts[2].ends_with(", 'table', 'min(nothing, axis=0)'"), "{}", texts[2]);
    let error = Error::from(report.value("table").unwrap_err());
    assert_eq!(error.to_string(), texts[0]);
}
