//! `sum(a * b)` of two columns or arrays in the page cache: of a Parquet or a compressed Arrow file and of a Zarr store
//! beside what the crates parquet, arrow-ipc and zarrs decode on all cores, and of an Arrow file that is not
//! compressed beside `.npy` files.
//!
//! `cargo bench --bench formats -- --device cpu,cuda --size 4GiB --dir /tmp`. Each figure is the median of several
//! runs, in GB/s of decoded values. `of_other` is the rate divided by that of the crate, or of `.npy` files, in the
//! same run. The size is that of the decoded values. Results are compared with a plain loop.
//!
//! The crate parquet decodes 4096 values at a time into memory that stays in the cache of a core, and zarrs each chunk
//! by itself. With `--whole`, they leave what a program computes with: all values of a row group, and the rows of a
//! chunk in their order.

mod zarr;

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use arrow_array::{ArrayRef, Float64Array, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::reader::{FileDecoder, read_footer_length};
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_ipc::{CompressionType, root_as_footer};
use bytesize::ByteSize;
use overshot::{Arrow, DeviceChoice, Engine, Input, Job, Npy, Parquet, Zarr};
use parquet::basic::{Compression, Encoding};
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{DataType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use rayon::prelude::*;
use serde_json::json;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The rows of a row group, as PyArrow writes them.
const GROUP_ROWS: usize = 1 << 20;
/// The rows of a record batch, as PyArrow writes them to Feather files.
const BATCH_ROWS: usize = 1 << 16;
/// The values that the crate parquet decodes at once, without `--whole`.
const STEP: usize = 4096;

struct Settings {
    devices: Vec<DeviceChoice>,
    size: u64,
    runs: usize,
    /// Of each device; the plan's choice without it.
    workers: Option<usize>,
    folder: PathBuf,
    /// Only formats whose names begin so.
    only: String,
    /// Whether crates decode what a program computes with.
    is_whole: bool,
}

fn main() -> Outcome {
    let mut settings = Settings {
        devices: vec![DeviceChoice::Auto],
        size: 16 << 20,
        runs: 3,
        workers: None,
        folder: std::env::temp_dir(),
        only: String::new(),
        is_whole: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
        match name.as_str() {
            "--device" => settings.devices = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--size" => settings.size = value()?.parse::<ByteSize>()?.as_u64(),
            "--runs" => settings.runs = value()?.parse::<usize>()?.max(1),
            "--workers" => settings.workers = Some(value()?.parse()?),
            "--only" => settings.only = value()?,
            "--whole" => settings.is_whole = true,
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
    let sum_of_floats: f64 = a.par_iter().zip(&b).map(|(a, b)| a * b).sum();
    // Times that mostly grow, by -3 to 9, and begin again after about a million, and the prices in hundredths.
    let time = |place: usize| ((3 * place + number(place, 5) as usize % 7) & 0xf_ffff) as i64;
    let times: Vec<i64> = (0..rows).into_par_iter().map(time).collect();
    let hundredths: Vec<i64> = b.par_iter().map(|price| (price * 100.0).round() as i64).collect();
    let sum_of_integers: i64 = times.par_iter().zip(&hundredths).map(|(time, price)| time * price).sum();
    let path = |name: &str| settings.folder.join(format!("overshot-{}-{name}", std::process::id()));
    let (table, files) = (path("table"), ["a.npy", "b.npy"].map(path));
    let _removed = [&table, &files[0], &files[1]].map(|path| Removed(path.clone()));
    let cpu = Engine::builder().device(DeviceChoice::Cpu).build()?;
    for (file, column) in files.iter().zip([&a, &b]) {
        cpu.run(Job::eval("y = x + 0")?.input("x", column).output("y", Npy::create(file)))?;
    }
    // SAFETY: nobody changes the files.
    let npy = |name: &str| unsafe { Npy::map(&files[usize::from(name == "b")]) }.map(Input::from);
    let zstd = Compression::ZSTD(Default::default());
    let tables = [
        ("parquet, dictionary, snappy", Format::Parquet(Compression::SNAPPY, None)),
        ("parquet, dictionary, zstd", Format::Parquet(zstd, None)),
        ("parquet, plain", Format::Parquet(Compression::UNCOMPRESSED, Some(Encoding::PLAIN))),
        ("parquet, plain, zstd", Format::Parquet(zstd, Some(Encoding::PLAIN))),
        ("parquet, byte-stream-split, zstd", Format::Parquet(zstd, Some(Encoding::BYTE_STREAM_SPLIT))),
        ("parquet, delta", Format::Delta(Compression::UNCOMPRESSED)),
        ("parquet, delta, zstd", Format::Delta(zstd)),
        ("arrow, lz4", Format::Arrow(Some(CompressionType::LZ4_FRAME), BATCH_ROWS)),
        ("arrow, zstd", Format::Arrow(Some(CompressionType::ZSTD), BATCH_ROWS)),
        ("arrow", Format::Arrow(None, BATCH_ROWS)),
        ("arrow, large batches", Format::Arrow(None, 1 << 24)),
    ];
    let arrays = zarr::ALL.map(|(name, how)| (name, Format::Zarr(how)));
    for (name, format) in tables.into_iter().chain(arrays) {
        if !name.starts_with(&settings.only) {
            continue;
        }
        let expected = if matches!(format, Format::Delta(_)) { sum_of_integers as f64 } else { sum_of_floats };
        let is_stored = matches!(format, Format::Arrow(None, _));
        match format {
            Format::Parquet(codec, encoding) => write_parquet::<DoubleType>(&table, [&a, &b], codec, encoding)?,
            Format::Delta(codec) => {
                let encoding = Some(Encoding::DELTA_BINARY_PACKED);
                write_parquet::<Int64Type>(&table, [&times, &hundredths], codec, encoding)?;
            }
            Format::Arrow(codec, rows) => write_arrow(&table, [&a, &b], codec, rows)?,
            Format::Zarr(how) => {
                drop(Removed(table.clone()));
                zarr::write(&table, [&a, &b], how)?;
            }
        }
        let column = |name: &str| match format {
            Format::Parquet(..) | Format::Delta(_) => Parquet::column(&table, name).map(Input::from),
            // SAFETY: nobody changes the file.
            Format::Arrow(..) => unsafe { Arrow::map_column(&table, name) }.map(Input::from),
            Format::Zarr(_) => Zarr::open(table.join(name)).map(Input::from),
        };
        let step = if settings.is_whole { GROUP_ROWS } else { STEP };
        let decoded = match format {
            Format::Parquet(..) => settings.rate(|| decode_parquet::<DoubleType>(&table, step))?,
            Format::Delta(_) => settings.rate(|| decode_parquet::<Int64Type>(&table, step))?,
            Format::Arrow(Some(_), _) => settings.rate(|| decode_arrow(&table))?,
            Format::Arrow(None, _) => 0.0,
            Format::Zarr(how) if settings.is_whole => settings.rate(|| zarr::decode_rows(&table, how))?,
            Format::Zarr(_) => settings.rate(|| zarr::decode(&table))?,
        };
        let file_bytes = if table.is_dir() { zarr::bytes(&table)? } else { std::fs::metadata(&table)?.len() };
        for device in &settings.devices {
            let engine = Engine::builder().device(device.clone());
            let engine = settings.workers.map_or(engine.clone(), |workers| engine.workers(workers)).build()?;
            let (mut notes, mut bounds) = (Vec::new(), Vec::new());
            let mut run = |open: &dyn Fn(&str) -> overshot::Result<Input<'static>>| {
                let report = engine.run(Job::eval("sum(a * b)")?.input("a", open("a")?).input("b", open("b")?))?;
                let sum = report.value("sum(a * b)")?.map_or(f64::NAN, |sum| sum.as_f64());
                if (sum - expected).abs() > 1e-9 * expected {
                    return Err(format!("the sum is {sum}, and not {expected}").into());
                }
                let found =
                    report.devices.iter().filter_map(|device| Some((device.id.clone(), device.bottleneck?.stage)));
                bounds = found.map(|(id, stage)| format!("{id}: {stage}")).collect();
                notes = report.notes;
                Ok(())
            };
            let other = if is_stored { settings.rate(|| run(&npy))? } else { decoded };
            let rate = settings.rate(|| run(&column))?;
            let line = json!({
                "format": name, "device": device.to_string(), "rows": rows, "file_bytes": file_bytes,
                "gb_per_s": rate, "other_gb_per_s": other, "of_other": rate / other,
                "bottlenecks": bounds, "notes": notes,
            });
            println!("{line}");
        }
    }
    Ok(())
}

/// How a table is written.
#[derive(Clone, Copy)]
enum Format {
    /// The codec, and the encoding if it is no dictionary.
    Parquet(Compression, Option<Encoding>),
    /// Integers as packed differences, with the codec.
    Delta(Compression),
    /// The codec, and the rows of a batch.
    Arrow(Option<CompressionType>, usize),
    Zarr(zarr::How),
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

fn write_parquet<T: DataType>(
    path: &Path,
    columns: [&Vec<T::T>; 2],
    codec: Compression,
    encoding: Option<Encoding>,
) -> Outcome {
    let kind = T::get_physical_type();
    let schema = Arc::new(parse_message_type(&format!("message m {{ REQUIRED {kind} a; REQUIRED {kind} b; }}"))?);
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
            writer.typed::<T>().write_batch(&column[rows], None, None)?;
            writer.close()?;
        }
        group.close()?;
    }
    file.close()?;
    Ok(())
}

fn write_arrow(path: &Path, columns: [&Vec<f64>; 2], codec: Option<CompressionType>, batch_rows: usize) -> Outcome {
    let batch = |rows: std::ops::Range<usize>| {
        let [a, b] = columns.map(|column| Arc::new(Float64Array::from(column[rows.clone()].to_vec())) as ArrayRef);
        RecordBatch::try_from_iter([("a", a), ("b", b)])
    };
    let options = IpcWriteOptions::default().try_with_compression(codec)?;
    // Small writes would leave small pages in the page cache, which any reader maps more slowly.
    let out = BufWriter::with_capacity(64 << 20, File::create(path)?);
    let mut file = FileWriter::try_new_with_options(out, &batch(0..0)?.schema(), options)?;
    for first in (0..columns[0].len()).step_by(batch_rows) {
        file.write(&batch(first..(first + batch_rows).min(columns[0].len()))?)?;
    }
    file.finish()?;
    Ok(())
}

/// Decodes both columns with the crate arrow-ipc alone: each core takes the next record batch of the mapped file.
fn decode_arrow(path: &Path) -> Outcome {
    // SAFETY: nobody changes the file.
    let map = unsafe { memmap2::Mmap::map(&File::open(path)?)? };
    let bytes = Buffer::from(bytes::Bytes::from_owner(map));
    let end = bytes.len() - 10;
    let footer_len = read_footer_length(bytes[end..].try_into()?)?;
    let footer = root_as_footer(&bytes[end - footer_len..end]).map_err(|e| e.to_string())?;
    let schema = Arc::new(arrow_ipc::convert::try_fb_to_schema(footer.schema().ok_or("no schema")?)?);
    let decoder = FileDecoder::new(schema, footer.version());
    let blocks: Vec<_> = footer.recordBatches().into_iter().flatten().copied().collect();
    on_all_cores(|next| {
        while let Some(block) = blocks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let len = block.metaDataLength() as usize + block.bodyLength() as usize;
            let data = bytes.slice_with_length(block.offset() as usize, len);
            std::hint::black_box(decoder.read_record_batch(block, &data).map_err(|e| e.to_string())?);
        }
        Ok(())
    })
}

/// Decodes both columns with the crate parquet alone, `step` values at a time: each core takes the next row group.
fn decode_parquet<T: DataType>(path: &Path, step: usize) -> Outcome {
    on_all_cores(|next| {
        let file = File::open(path).map_err(|e| e.to_string())?;
        let file = SerializedFileReader::new(file).map_err(|e| e.to_string())?;
        let mut values = [Vec::with_capacity(step), Vec::with_capacity(step)];
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= file.num_row_groups() {
                return Ok(());
            }
            let group = file.get_row_group(number).map_err(|e| e.to_string())?;
            for (column, values) in values.iter_mut().enumerate() {
                let reader = group.get_column_reader(column).map_err(|e| e.to_string())?;
                let mut reader = get_typed_column_reader::<T>(reader);
                loop {
                    values.clear();
                    let read = reader.read_records(step, None, None, values).map_err(|e| e.to_string())?;
                    if read.0 == 0 {
                        break;
                    }
                    std::hint::black_box(&*values);
                }
            }
        }
    })
}

/// Runs a function on each core, with the number of the next piece of work.
fn on_all_cores(work: impl Fn(&AtomicUsize) -> Result<(), String> + Sync) -> Outcome {
    let next = AtomicUsize::new(0);
    let cores = thread::available_parallelism()?.get();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(|| work(&next))).collect();
        let ended = workers.into_iter().map(|worker| worker.join().map_err(|_| "a thread panicked".to_owned())?);
        ended.collect::<Result<(), String>>()
    })?;
    Ok(())
}

struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0).or_else(|_| std::fs::remove_dir_all(&self.0));
    }
}
