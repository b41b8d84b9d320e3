//! Inputs that are decoded from the first row of a grain on: row groups of Parquet files, record batches of Arrow
//! files, chunks of Zarr arrays, and those of a source that counts how it is read.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arrow_array::{ArrayRef, Float64Array, Int32Array, RecordBatch};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use ndarray::ArrayView2;
use overshot::io::Memory;
use overshot::{ArrayValue, DeviceChoice, Dtype, Engine, Input, Job, Report, Result, Scalar, Source};
use parquet::column::writer::ColumnWriter;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::harness::{Case, Module, NO_CASES, Outcome, check, engine, numbers};

pub const MODULE: Module = Module { name: "grains", cases: CASES, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("a worker reads the rows of a grain in order", in_order),
    ("results do not depend on grains", results),
    ("columns of Parquet files", columns),
    ("columns of Arrow files", arrow_columns),
    ("arrays of Zarr stores", arrays),
    ("rows of several pieces are used in place", pieces),
];

/// Rows in grains. Counts the reads that begin where no other one has ended, and not at a grain.
struct Grained<'a> {
    rows: &'a [f64],
    grains: Vec<u64>,
    /// Where reads have ended, and the reads that began elsewhere.
    read: Mutex<(Vec<u64>, u64)>,
}

impl<'a> Grained<'a> {
    /// Rows in grains of these lengths, again and again.
    fn new(rows: &'a [f64], lengths: &[u64]) -> Self {
        let firsts = lengths.iter().cycle().scan(0, |end, len| {
            *end += len;
            Some(*end - len)
        });
        let grains = firsts.take_while(|first| *first < rows.len() as u64).collect();
        Grained { rows, grains, read: Mutex::default() }
    }
}

impl Source for Grained<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F64
    }

    fn rows(&self) -> u64 {
        self.rows.len() as u64
    }

    fn name(&self) -> String {
        "grained".into()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        let rows = &self.rows[first as usize..][..dst.len() / 8];
        dst.copy_from_slice(bytemuck::cast_slice(rows));
        let (ends, others) = &mut *self.read.lock().unwrap();
        let found = ends.iter().position(|end| *end == first);
        match found {
            Some(place) => drop(ends.swap_remove(place)),
            None => *others += u64::from(self.grains.binary_search(&first).is_err()),
        }
        ends.push(first + rows.len() as u64);
        Ok(())
    }

    fn grains(&self) -> &[u64] {
        &self.grains
    }
}

fn in_order(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).chunk(64 << 10).build()?;
    // Each grain has some 30 chunks. They do not end where tiles do.
    let rows = numbers(30 * 250_000, 3);
    let source = Grained::new(&rows, &[250_000, 249_999]);
    let report = engine.run(Job::eval("sum(x)")?.input("x", &source))?;
    let expected = engine.run(Job::eval("sum(x)")?.input("x", &rows))?;
    check(report.value("sum(x)")? == expected.value("sum(x)")?, "another sum")?;
    let grains = source.grains.len() as u64;
    let (_, others) = *source.read.lock().unwrap();
    let workers: u64 = report.devices.iter().map(|device| device.workers as u64).sum();
    // A lot begins at the first whole tile of a grain, when its worker may not have read the rows before. At the end,
    // each worker takes halves of what the others have left.
    let most = grains + 12 * workers;
    check(others <= most, format!("{others} of {} reads began in the middle", report.chunks))?;
    check(report.chunks > 10 * grains, format!("only {} chunks", report.chunks))
}

fn results(choice: &DeviceChoice) -> Outcome {
    let (a, b) = (numbers(100_003, 5), numbers(100_003, 6));
    let run = |engine: &Engine, a: &Grained<'_>, x: &Grained<'_>| -> Outcome<Vec<Given>> {
        let texts = ["y = a[x > 0]; sum(y), count(y)", "y = a * x + shift(x, 1, edge); sum(y), std(x), max(a)"];
        texts.into_iter().map(|text| of_text(engine, text, [("a", a.into()), ("x", x.into())])).collect()
    };
    let [memory_a, memory_b] = [&a, &b].map(|rows| Grained::new(rows, &[100_003]));
    let expected = run(&engine(choice).build()?, &memory_a, &memory_b)?;
    for (chunk, lengths, others) in [
        (32 << 10, &[5000][..], &[20_000][..]),
        (256 << 10, &[1, 9000, 300], &[7]),
        (1 << 20, &[40_000, 3], &[100_003]),
    ] {
        let engine = engine(choice).chunk(chunk).build()?;
        let (one, other) = (Grained::new(&a, lengths), Grained::new(&b, others));
        check(run(&engine, &one, &other)? == expected, format!("others with grains of {lengths:?}"))?;
        let parts = [0..40_960, 40_960..65_536, 65_536..100_003].into_iter().map(|rows| {
            let job = Job::eval("std(x), sum(a * x)")?.input("a", &one).input("x", &other);
            engine.run_rows(job, rows)
        });
        let mut parts = parts.collect::<Result<Vec<_>>>()?.into_iter();
        let mut all = parts.next().unwrap();
        for part in parts {
            all.merge(part)?;
        }
        let whole = engine.run(Job::eval("std(x), sum(a * x)")?.input("a", &a).input("x", &b))?;
        check(all.finish()?.results == whole.results, "parts have other results")?;
    }
    Ok(())
}

/// Writes a column of doubles and one of integers in row groups of so many rows.
fn write(path: &Path, a: &[f64], k: &[i32], group_rows: usize) {
    let schema = Arc::new(parse_message_type("message m { REQUIRED DOUBLE a; OPTIONAL INT32 k; }").unwrap());
    let properties = Arc::new(WriterProperties::builder().set_data_page_row_count_limit(3000).build());
    let mut file = SerializedFileWriter::new(File::create(path).unwrap(), schema, properties).unwrap();
    for (a, k) in a.chunks(group_rows).zip(k.chunks(group_rows)) {
        let mut group = file.next_row_group().unwrap();
        while let Some(mut column) = group.next_column().unwrap() {
            match column.untyped() {
                ColumnWriter::DoubleColumnWriter(column) => column.write_batch(a, None, None).unwrap(),
                ColumnWriter::Int32ColumnWriter(column) => {
                    column.write_batch(k, Some(&vec![1; k.len()]), None).unwrap()
                }
                _ => unreachable!("no such column"),
            };
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    file.close().unwrap();
}

fn columns(choice: &DeviceChoice) -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("t.parquet");
    let a = numbers(200_001, 7);
    let k: Vec<i32> = (0..200_001).map(|row| row * 7 % 1000 - 500).collect();
    let texts = ["y = a * k; sum(y), std(a), max(k), histogram(k, 10, -500, 500)", "y = a[k > 100]; mean(y)"];
    for (group_rows, chunk) in [(200_001, 64 << 10), (50_000, 32 << 10), (999, 256 << 10)] {
        write(&path, &a, &k, group_rows);
        let engine = engine(choice).chunk(chunk).build()?;
        for text in texts {
            let column = |name: &str| overshot::Parquet::column(&path, name).map(Input::from);
            let found = of_text(&engine, text, [("a", column("a")?), ("k", column("k")?)])?;
            let expected = of_text(&engine, text, [("a", (&a).into()), ("k", (&k).into())])?;
            check(found == expected, format!("others with groups of {group_rows}: {text}"))?;
        }
    }
    Ok(())
}

/// Values that are used in place, some that are decompressed, and a column with nulls.
fn arrow_columns(choice: &DeviceChoice) -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("t.arrow");
    let a = numbers(200_001, 7);
    let k: Vec<i32> = (0..200_001).map(|row| row * 7 % 1000 - 500).collect();
    let texts = [
        "y = a * k; sum(y), std(a), max(k), histogram(k, 10, -500, 500)",
        "y = a[k > 100]; mean(y)",
        "y = (a - shift(a, 1, edge)) * k",
    ];
    // Of batches of 499 rows, several threads read the descriptions.
    let codecs = [None, Some(CompressionType::ZSTD), Some(CompressionType::LZ4_FRAME), None];
    for (codec, (batch_rows, chunk)) in
        codecs.into_iter().zip([(50_000, 64 << 10), (200_001, 32 << 10), (499, 256 << 10), (7001, 256 << 10)])
    {
        let batch = |a: &[f64], k: &[i32]| {
            let a: ArrayRef = Arc::new(Float64Array::from_iter_values(a.iter().copied()));
            let k: ArrayRef = Arc::new(Int32Array::from_iter(k.iter().map(|k| (*k != 3).then_some(*k))));
            RecordBatch::try_from_iter_with_nullable([("a", a, false), ("k", k, true)])
        };
        let options = IpcWriteOptions::default().try_with_compression(codec)?;
        let mut file = FileWriter::try_new_with_options(File::create(&path)?, &batch(&[], &[])?.schema(), options)?;
        for (a, k) in a.chunks(batch_rows).zip(k.chunks(batch_rows)) {
            file.write(&batch(a, k)?)?;
        }
        file.finish()?;
        let engine = engine(choice).chunk(chunk).build()?;
        for text in texts {
            // SAFETY: nobody changes the file.
            let stored = unsafe { overshot::Arrow::map_column(&path, "a")? };
            let filled = overshot::Arrow::column_filled(&path, "k", 3)?;
            let found = of_text(&engine, text, [("a", stored.into()), ("k", filled.into())])?;
            let expected = of_text(&engine, text, [("a", (&a).into()), ("k", (&k).into())])?;
            check(found == expected, format!("others with batches of {batch_rows}: {text}"))?;
        }
    }
    Ok(())
}

/// Rows in pieces of memory. Counts the rows that are read, and not used in place.
struct Pieced<'a> {
    rows: &'a [f64],
    piece_rows: u64,
    read: AtomicU64,
}

impl Source for Pieced<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F64
    }

    fn rows(&self) -> u64 {
        self.rows.len() as u64
    }

    fn name(&self) -> String {
        "pieced".into()
    }

    fn read(&self, first: u64, dst: &mut [u8]) -> Result<()> {
        self.read.fetch_add(dst.len() as u64 / 8, Ordering::Relaxed);
        dst.copy_from_slice(bytemuck::cast_slice(&self.rows[first as usize..][..dst.len() / 8]));
        Ok(())
    }

    fn piece(&self, first: u64, rows: u64) -> Option<Memory<'_>> {
        let is_one = first / self.piece_rows == (first + rows).saturating_sub(1) / self.piece_rows;
        let bytes = bytemuck::cast_slice(&self.rows[first as usize..(first + rows) as usize]);
        if is_one { Memory::new(bytes, Dtype::F64) } else { None }
    }
}

fn pieces(choice: &DeviceChoice) -> Outcome {
    let rows = numbers(1_200_000, 9);
    // Every chunk has rows of several pieces.
    let engine = engine(choice).chunk(4 << 20).build()?;
    for text in ["y = x + b", "y = x - shift(x, 3, edge) + b", "y = x[b > 0]"] {
        let x = Pieced { rows: &rows, piece_rows: 60_001, read: AtomicU64::new(0) };
        let found = of_text(&engine, text, [("x", (&x).into()), ("b", (&rows).into())])?;
        let expected = of_text(&engine, text, [("x", (&rows).into()), ("b", (&rows).into())])?;
        check(found == expected, format!("other rows: {text}"))?;
        let read = x.read.into_inner();
        let is_in_place = *choice != DeviceChoice::Cpu || read < rows.len() as u64 / 2;
        check(is_in_place, format!("{read} of {} rows were read: {text}", rows.len()))?;
    }
    Ok(())
}

/// Writes an array of `f64` of 15 columns, in chunks of so many rows and columns, which are not compressed.
fn write_array(folder: &Path, values: &[f64], chunk: [usize; 2]) -> Outcome {
    let (rows, [chunk_rows, chunk_columns]) = (values.len() / 15, chunk);
    std::fs::create_dir_all(folder)?;
    let described = format!(
        r#"{{"zarr_format": 2, "shape": [{rows}, 15], "chunks": {chunk:?}, "dtype": "<f8", "order": "C",
            "fill_value": 0, "compressor": null, "filters": null}}"#
    );
    std::fs::write(folder.join(".zarray"), described)?;
    for first in (0..rows).step_by(chunk_rows) {
        for from in (0..15).step_by(chunk_columns) {
            let places = (first..first + chunk_rows)
                .flat_map(|row| (from..from + chunk_columns).map(move |column| (row, column)))
                .map(|(row, column)| if row < rows && column < 15 { values[row * 15 + column] } else { 0.0 });
            let bytes: Vec<u8> = places.flat_map(f64::to_le_bytes).collect();
            std::fs::write(folder.join(format!("{}.{}", first / chunk_rows, from / chunk_columns)), bytes)?;
        }
    }
    Ok(())
}

/// Values as a table in memory.
fn table(values: &[f64]) -> Outcome<ArrayView2<'_, f64>> {
    Ok(ArrayView2::from_shape((20_001, 15), values)?)
}

fn arrays(choice: &DeviceChoice) -> Outcome {
    let dir = tempfile::tempdir()?;
    let a = numbers(20_001 * 15, 7);
    let b = numbers(20_001 * 15, 8);
    let texts = ["y = a * b; sum(y), std(a)", "y = a[b > 0]; mean(y)", "y = a - shift(a, 40, edge) + b"];
    for (number, chunk) in [[3000, 15], [999, 4], [40_000, 8], [64, 1]].into_iter().enumerate() {
        let path = dir.path().join(number.to_string());
        write_array(&path, &a, chunk)?;
        for chunk in [32 << 10, 1 << 20] {
            let engine = engine(choice).chunk(chunk).build()?;
            for text in texts {
                let stored = overshot::Zarr::open(&path)?;
                let found = of_text(&engine, text, [("a", stored.into()), ("b", table(&b)?.into())])?;
                let expected = of_text(&engine, text, [("a", table(&a)?.into()), ("b", table(&b)?.into())])?;
                check(found == expected, format!("others with chunks of {chunk:?}: {text}"))?;
            }
        }
    }
    Ok(())
}

/// What a run gives: the rows of the output, the results, and those that are arrays.
type Given = (Vec<f64>, Vec<(String, Option<Scalar>)>, Vec<(String, Option<ArrayValue>)>);

/// Runs a text with an output `y`.
fn of_text(engine: &Engine, text: &str, inputs: [(&str, Input<'_>); 2]) -> Outcome<Given> {
    let [(a, first), (b, second)] = inputs;
    let mut y = vec![0.0; first.source().rows() as usize];
    let job = Job::eval(text)?.input(a, first).input(b, second).output("y", &mut y[..]);
    let Report { results, arrays, .. } = engine.run(job)?;
    Ok((y, results, arrays))
}
