//! Memory that columns of tables and arrays of stores take while they are decoded, and that partial results take, is
//! not more than sources and plans say, and not much less.
//!
//! This program counts the bytes that Rust allocates, which is all but what the library of zstd needs.
#![cfg(all(feature = "arrow", feature = "parquet"))]
#![allow(clippy::unwrap_used, reason = "in tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use arrow_array::{ArrayRef, Float64Array, RecordBatch};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use overshot::{Arrow, DeviceChoice, Dtype, Engine, Error, Job, Parquet, Result, Source, device::Emulated};
#[cfg(feature = "zarr")]
use overshot::{Zarr, io::Codec};
use parquet::basic::Compression;
use parquet::column::writer::ColumnWriter;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

/// Allocates from the system, and counts.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: all memory is that of the system's allocator, which gets the same layouts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let all = ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(all, Ordering::Relaxed);
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

const ROWS: usize = 3_000_000;

/// Values with so many bits that differ, which compress little.
fn values(distinct: u64) -> Vec<f64> {
    (0..ROWS as u64).map(|row| (row.wrapping_mul(0x9E37_79B9_7F4A_7C15) % distinct) as f64 / 3.0).collect()
}

/// Reads all rows by several threads, each from a place of its own, and leaves some behind in the middle.
fn read(source: &(impl Source + ?Sized), expected: &[f64], threads: usize) {
    thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut rows = [0.0; 10_000];
                let part = ROWS / threads;
                for first in (thread * part..(thread + 1) * part).step_by(rows.len()) {
                    source.read(first as u64, bytemuck::cast_slice_mut(&mut rows)).unwrap();
                    assert!(rows == expected[first..first + rows.len()], "rows from {first} on");
                }
                for first in (0..part).rev().step_by(40_000).take(30) {
                    source.read(first as u64, bytemuck::cast_slice_mut(&mut rows[..100])).unwrap();
                }
            });
        }
    });
}

/// Reads all rows, and compares the memory that this takes with what the source says, which is not more than `times` as
/// much.
fn check(name: &str, source: &dyn Source, expected: &[f64], times: usize) {
    check_with(4, name, source, expected, times);
}

fn check_with(threads: usize, name: &str, source: &dyn Source, expected: &[f64], times: usize) {
    let said = source.decode_memory() as usize;
    let before = ALLOCATED.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    read(source, expected, threads);
    let most = MOST.load(Ordering::Relaxed) - before;
    println!("{name}: at most {most} bytes, and it says {said}");
    assert!(most <= said, "{name} took {most} bytes, and says that it takes at most {said}");
    assert!(most >= said / times, "{name} took {most} bytes, and says that it takes up to {said}");
}

fn parquet(path: &Path, values: &[f64], properties: WriterProperties) {
    let schema = Arc::new(parse_message_type("message m { OPTIONAL DOUBLE x; }").unwrap());
    let mut file = SerializedFileWriter::new(File::create(path).unwrap(), schema, Arc::new(properties)).unwrap();
    let mut group = file.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let ColumnWriter::DoubleColumnWriter(typed) = column.untyped() else { panic!("a column of doubles") };
    typed.write_batch(values, Some(&vec![1; values.len()]), None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    file.close().unwrap();
}

fn arrow(path: &Path, values: &[f64], batch_rows: usize, codec: CompressionType) {
    let batch = |values: &[f64]| {
        let values: ArrayRef = Arc::new(Float64Array::from_iter_values(values.iter().copied()));
        RecordBatch::try_from_iter([("x", values)]).unwrap()
    };
    let options = IpcWriteOptions::default().try_with_compression(Some(codec)).unwrap();
    let file = File::create(path).unwrap();
    let mut file = FileWriter::try_new_with_options(file, &batch(&[]).schema(), options).unwrap();
    values.chunks(batch_rows).for_each(|values| file.write(&batch(values)).unwrap());
    file.finish().unwrap();
}

/// Rows of this width, whose elements are small integers.
struct Wide([u64; 2]);

impl Source for Wide {
    fn dtype(&self) -> Dtype {
        Dtype::F64
    }
    fn rows(&self) -> u64 {
        self.0[0] * self.0[1]
    }
    fn shape(&self) -> Option<&[u64]> {
        Some(&self.0)
    }
    fn name(&self) -> String {
        "wide".into()
    }
    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        let rows: &mut [f64] = bytemuck::cast_slice_mut(dst);
        rows.iter_mut().zip(first..).for_each(|(value, row)| *value = (row % 1021) as f64);
        Ok(())
    }
}

/// Reductions along rows, whose partial results are larger than a row.
fn reduced(device: DeviceChoice, (rows, width): (u64, u64)) {
    let engine = Engine::builder().device(device).build().unwrap();
    let wide = Wide([rows, width]);
    let job = || Job::eval("m = mean(x, axis=0); s = std(x, axis=0)").unwrap().input("x", &wide);
    let plan = engine.plan(&job()).unwrap();
    let workers = plan.devices.iter().map(|device| device.other_bytes + device.device_bytes + device.pinned_bytes);
    // The results are computed, and returned as numbers of their dtype and in the report.
    let (others, results) = (workers.sum::<u64>(), 2 * width * 8 * 4);
    let before = ALLOCATED.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let report = engine.run(job()).unwrap();
    let most = (MOST.load(Ordering::Relaxed) - before) as u64;
    let said = plan.state_bytes + others + results;
    println!(
        "{}: at most {most} bytes of {said}, of which {} are partial results",
        plan.devices[0].id, plan.state_bytes
    );
    assert!(most <= said, "{most} bytes were allocated, and the plan says {said}");
    assert!(most >= said / 20, "{most} bytes are far less than {said}");
    assert_eq!(report.rows, rows);
}

/// Rows of 64 MiB, within a limit that holds three of them; and with a limit that holds none.
fn large_rows() {
    let (rows, width) = (12, 8 << 20);
    let wide = Wide([rows, width]);
    let engine = |bytes: u64| Engine::builder().device(Emulated::new()).device_memory(bytes).build().unwrap();
    let job = || Job::eval("sum(max(x, axis=1)), max(sum(x, axis=1))").unwrap().input("x", &wide);
    let few = engine(200 << 20);
    let plan = few.plan(&job()).unwrap();
    let said: u64 =
        plan.devices.iter().map(|device| device.other_bytes + device.device_bytes + device.pinned_bytes).sum();
    assert!(plan.devices[0].device_bytes <= 200 << 20 && plan.devices[0].pinned_bytes <= 256 << 20, "{plan}");
    let before = ALLOCATED.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let report = few.run(job()).unwrap();
    let most = (MOST.load(Ordering::Relaxed) - before) as u64;
    println!("rows of 64 MiB: at most {most} bytes of {said}");
    // Threads, names and the report take some kilobytes.
    assert!(most <= said + (1 << 20), "{most} bytes were allocated, and the plan says {said}");
    let sums = (0..rows).map(|row| (row * width..(row + 1) * width).map(|element| element % 1021).sum::<u64>());
    let results: Vec<_> = report.results.into_iter().map(|(_, result)| result.unwrap()).collect();
    assert_eq!(results, [((1020 * rows) as f64).into(), (sums.max().unwrap() as f64).into()]);
    assert!(report.devices[0].peak_device_bytes <= 200 << 20, "{:?}", report.devices);
    let error = engine(60 << 20).run(job()).unwrap_err();
    let Error::Budget { needed, .. } = error else { panic!("{error}") };
    assert!(engine(needed).plan(&job()).is_ok() && engine(needed - 1).plan(&job()).is_err(), "{needed} bytes");
}

// One test, because others would allocate at the same time.
#[test]
fn no_more_memory_is_taken_than_sources_and_plans_say() {
    // A tile in each chunk, and many.
    for shape in [(2000, 20_000), (100_000, 600)] {
        reduced(DeviceChoice::Cpu, shape);
        reduced(Emulated::new().into(), shape);
    }
    large_rows();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    for (distinct, pages, codec) in [
        // A row group of 24 MB.
        (1 << 50, None, Compression::ZSTD(Default::default())),
        (1 << 50, None, Compression::UNCOMPRESSED),
        (1000, None, Compression::SNAPPY),
        // The dictionary becomes too large, so plain pages follow.
        (200_000, None, Compression::SNAPPY),
        (1 << 50, Some(1_000_000), Compression::LZ4_RAW),
    ] {
        let values = values(distinct);
        let properties = WriterProperties::builder().set_compression(codec);
        let properties = match pages {
            Some(rows) => properties
                .set_dictionary_enabled(false)
                .set_data_page_size_limit(8 * rows)
                .set_data_page_row_count_limit(rows)
                .set_write_batch_size(rows / 10),
            None => properties,
        };
        parquet(&path, &values, properties.build());
        let column = Parquet::column(&path, "x").unwrap();
        check(&format!("Parquet, {distinct} values, {codec}, pages {pages:?}"), &column, &values, 40);
    }
    for (codec, times) in [(CompressionType::ZSTD, 100), (CompressionType::LZ4_FRAME, 40)] {
        for batch_rows in [ROWS, 65_536] {
            let values = values(1 << 50);
            arrow(&path, &values, batch_rows, codec);
            let column = Arrow::column(&path, "x").unwrap();
            check(&format!("Arrow, {codec:?}, batches of {batch_rows}"), &column, &values, times);
        }
    }
    #[cfg(feature = "zarr")]
    for (codec, shards) in [(Codec::Zstd(1), false), (Codec::Lz4, false), (Codec::None, false), (Codec::Zstd(1), true)]
    {
        // Chunks of 6 MB.
        let (values, chunk) = (values(1 << 50), ROWS as u64 / 4);
        let path = dir.path().join(format!("{codec} {shards}.zarr"));
        let file = Zarr::create(&path).codec(codec).chunks(&[chunk]);
        let file = if shards { file.shards(&[2 * chunk]) } else { file };
        let engine = Engine::builder().device(DeviceChoice::Cpu).build().unwrap();
        engine.run(Job::eval("y = x").unwrap().input("x", &values).output("y", file)).unwrap();
        drop(engine);
        let array = Zarr::open(&path).unwrap();
        // As many as decode at a time in a run.
        let threads = thread::available_parallelism().map_or(1, usize::from).min(4);
        check_with(threads, &format!("Zarr, {codec}, shards {shards}"), &array, &values, 4);
    }
}
