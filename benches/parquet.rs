//! `sum(a * b)` of two columns of a Parquet file in the page cache, beside what the crate parquet decodes on all cores.
//!
//! `cargo bench --bench parquet -- --device cpu,cuda --size 4GiB --dir /tmp`. Each figure is the median of several
//! runs, in GB/s of decoded values; `of_decode` is the rate divided by that of the crate in the same run. The size is
//! that of the decoded values. Results are compared with a plain loop.

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use bytesize::ByteSize;
use overshot::{DeviceChoice, Engine, Job, Parquet};
use parquet::basic::{Compression, Encoding};
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::DoubleType;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use rayon::prelude::*;
use serde_json::json;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The rows of a row group, as PyArrow writes them.
const GROUP_ROWS: usize = 1 << 20;
/// The values that the crate decodes at once.
const STEP: usize = 4096;

struct Settings {
    devices: Vec<DeviceChoice>,
    size: u64,
    runs: usize,
    folder: PathBuf,
}

fn main() -> Outcome {
    let mut settings =
        Settings { devices: vec![DeviceChoice::Auto], size: 16 << 20, runs: 3, folder: std::env::temp_dir() };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
        match name.as_str() {
            "--device" => settings.devices = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--size" => settings.size = value()?.parse::<ByteSize>()?.as_u64(),
            "--runs" => settings.runs = value()?.parse::<usize>()?.max(1),
            "--dir" => settings.folder = value()?.into(),
            // `cargo bench` and `cargo test` pass these.
            "--bench" | "--test" => {}
            other => return Err(format!("unknown argument {other}").into()),
        }
    }
    let rows = settings.size as usize / 16;
    let number = |place: usize, seed: usize| (place.wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ seed) >> 20) as f64;
    // Random digits, and prices with two of them, of which a dictionary holds some.
    let a: Vec<f64> = (0..rows).into_par_iter().map(|place| number(place, 5) / (1u64 << 44) as f64).collect();
    let b: Vec<f64> = (0..rows).into_par_iter().map(|place| (number(place, 9) % 20_000.0).round() / 100.0).collect();
    let expected: f64 = a.par_iter().zip(&b).map(|(a, b)| a * b).sum();
    let path = settings.folder.join(format!("overshot-{}.parquet", std::process::id()));
    let _removed = Removed(path.clone());
    let zstd = Compression::ZSTD(Default::default());
    for (name, codec, encoding) in [
        ("dictionary, snappy", Compression::SNAPPY, None),
        ("dictionary, zstd", zstd, None),
        ("plain", Compression::UNCOMPRESSED, Some(Encoding::PLAIN)),
        ("plain, zstd", zstd, Some(Encoding::PLAIN)),
        ("byte-stream-split, zstd", zstd, Some(Encoding::BYTE_STREAM_SPLIT)),
    ] {
        write(&path, [&a, &b], codec, encoding)?;
        let decoded = settings.rate(|| decode(&path))?;
        let file_bytes = std::fs::metadata(&path)?.len();
        for device in &settings.devices {
            let engine = Engine::builder().device(device.clone()).build()?;
            let (mut notes, mut bounds) = (Vec::new(), Vec::new());
            let rate = settings.rate(|| {
                let [a, b] = ["a", "b"].map(|name| Parquet::column(&path, name));
                let report = engine.run(Job::eval("sum(a * b)")?.input("a", a?).input("b", b?))?;
                let sum = report.value("sum(a * b)")?.map_or(f64::NAN, |sum| sum.as_f64());
                if (sum - expected).abs() > 1e-9 * expected {
                    return Err(format!("the sum is {sum}, and not {expected}").into());
                }
                let found =
                    report.devices.iter().filter_map(|device| Some((device.id.clone(), device.bottleneck?.stage)));
                bounds = found.map(|(id, stage)| format!("{id}: {stage}")).collect();
                notes = report.notes;
                Ok(())
            })?;
            let line = json!({
                "format": name, "device": device.to_string(), "rows": rows, "file_bytes": file_bytes,
                "gb_per_s": rate, "decode_gb_per_s": decoded, "of_decode": rate / decoded,
                "bottlenecks": bounds, "notes": notes,
            });
            println!("{line}");
        }
    }
    Ok(())
}

impl Settings {
    /// Returns the median rate of several runs, in GB/s of values. The first one is not counted.
    fn rate(&self, mut run: impl FnMut() -> Outcome) -> Outcome<f64> {
        let mut seconds = Vec::with_capacity(self.runs);
        for number in 0..=self.runs {
            let begin = Instant::now();
            run()?;
            if number > 0 {
                seconds.push(begin.elapsed().as_secs_f64());
            }
        }
        seconds.sort_by(f64::total_cmp);
        Ok(self.size as f64 / seconds[seconds.len() / 2] / 1e9)
    }
}

fn write(path: &Path, columns: [&Vec<f64>; 2], codec: Compression, encoding: Option<Encoding>) -> Outcome {
    let schema = Arc::new(parse_message_type("message m { REQUIRED DOUBLE a; REQUIRED DOUBLE b; }")?);
    let mut properties = WriterProperties::builder().set_compression(codec).set_dictionary_enabled(encoding.is_none());
    if let Some(encoding) = encoding {
        properties = properties.set_encoding(encoding);
    }
    let mut file = SerializedFileWriter::new(File::create(path)?, schema, Arc::new(properties.build()))?;
    for first in (0..columns[0].len()).step_by(GROUP_ROWS) {
        let mut group = file.next_row_group()?;
        for column in columns {
            let mut writer = group.next_column()?.ok_or("no column")?;
            let rows = first..(first + GROUP_ROWS).min(column.len());
            writer.typed::<DoubleType>().write_batch(&column[rows], None, None)?;
            writer.close()?;
        }
        group.close()?;
    }
    file.close()?;
    Ok(())
}

/// Decodes both columns with the crate alone: each core takes the next row group.
fn decode(path: &Path) -> Outcome {
    let next = AtomicUsize::new(0);
    let worker = || -> Result<(), String> {
        let file = File::open(path).map_err(|e| e.to_string())?;
        let file = SerializedFileReader::new(file).map_err(|e| e.to_string())?;
        let mut values = Vec::with_capacity(STEP);
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= file.num_row_groups() {
                return Ok(());
            }
            let group = file.get_row_group(number).map_err(|e| e.to_string())?;
            for column in 0..2 {
                let reader = group.get_column_reader(column).map_err(|e| e.to_string())?;
                let mut reader = get_typed_column_reader::<DoubleType>(reader);
                loop {
                    values.clear();
                    let read = reader.read_records(STEP, None, None, &mut values).map_err(|e| e.to_string())?;
                    if read.0 == 0 {
                        break;
                    }
                    std::hint::black_box(&values);
                }
            }
        }
    };
    let cores = thread::available_parallelism()?.get();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        let ended = workers.into_iter().map(|worker| worker.join().map_err(|_| "a thread panicked".to_owned())?);
        ended.collect::<Result<(), String>>()
    })?;
    Ok(())
}

struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
