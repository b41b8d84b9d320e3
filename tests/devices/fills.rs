//! Chunks that are larger than a slot, and so are staged in several fills: wide rows, of which a tile is large, and
//! many bins, whose words want large chunks.

use std::sync::atomic::{AtomicU64, Ordering};

use overshot::device::DeviceKind;
use overshot::{DeviceChoice, Dtype, Engine, EngineBuilder, Error, Input, Job, Report, Result, Source};

use crate::harness::{Case, Module, NO_CASES, Outcome, check, cpu, each_pass, engine as builder, numbers};
use crate::rows::{has_memory, in_use, without_cpu};

pub const MODULE: Module = Module { name: "fills", cases: CASES, counts_memory: true, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("rows of large tiles have the bits of the CPU", schedules),
    ("fewer blocks than workers", few_blocks),
    ("many bins", bins),
    ("inputs in pinned memory", pinned),
    ("a dataset that stays on the devices", resident),
    ("values that are known later", passes),
    ("chunks are verified, and the timeline has their copies", verified),
    ("rows that cannot be read", failing),
    ("memory for a row at a time", row_by_row),
];

const WIDTH: u64 = 20_000;
/// A tile of the table has 16 rows, 2.56 MB.
const ROWS: u64 = 16 * 9 + 5;
const TILE: u64 = 16 * WIDTH * 8;

/// A table of numbers, whose rows from some row on cannot be read.
struct Table {
    shape: [u64; 2],
    values: Vec<f64>,
    end: AtomicU64,
}

impl Table {
    fn new(rows: u64, width: u64) -> Table {
        let values = numbers((rows * width) as usize, 7);
        Table { shape: [rows, width], values, end: AtomicU64::new(u64::MAX) }
    }
}

impl Source for Table {
    fn dtype(&self) -> Dtype {
        Dtype::F64
    }
    fn rows(&self) -> u64 {
        self.shape[0] * self.shape[1]
    }
    fn shape(&self) -> Option<&[u64]> {
        Some(&self.shape)
    }
    fn name(&self) -> String {
        "table".into()
    }
    fn read(&self, first: u64, to: &mut [u8]) -> Result<()> {
        let rows = &self.values[first as usize..][..to.len() / 8];
        if (first + rows.len() as u64) > self.end.load(Ordering::Relaxed) {
            return Err(Error::Other("planted".into()));
        }
        to.copy_from_slice(bytemuck::cast_slice(rows));
        Ok(())
    }
}

const TEXT: &str = "a = mean(x, axis=0); b = std(x, axis=0); c = min(x * x, axis=0); d = sum(x)";

/// The bits of all results.
fn bits(report: &Report) -> Vec<u64> {
    let of_arrays = report.arrays.iter().flat_map(|(_, array)| array.iter().flat_map(|array| array.values()));
    let of_values = report.results.iter().filter_map(|(_, value)| *value);
    of_arrays.chain(of_values).map(|value| value.as_f64().to_bits()).collect()
}

fn job(table: &Table) -> Result<Job<'_>> {
    Ok(Job::eval(TEXT)?.input("x", table))
}

fn on_cpu(table: &Table) -> Outcome<Vec<u64>> {
    Ok(bits(&cpu().run(job(table)?)?))
}

/// Whether a plan of an engine has several fills of a chunk, on every device with memory.
fn has_fills(engine: &Engine, job: &Job<'_>) -> Outcome<bool> {
    let plan = engine.plan(job)?;
    let mut devices = plan.devices.iter().filter(|device| device.slots > 0);
    Ok(devices.all(|device| device.fill_rows < device.max_chunk_rows))
}

/// Whether devices have so little memory that plans differ from those of others.
fn is_limited() -> bool {
    std::env::var("OVERSHOT_STANDIN_MEMORY").is_ok()
}

/// Runs a job, and compares its results and what it moved with what is expected.
fn same(engine: &Engine, table: &Table, expected: &[u64], what: &str) -> Outcome<Report> {
    let report = engine.run(job(table)?)?;
    check(bits(&report) == expected, format!("{what}: other results"))?;
    let (all, moved) = (table.rows() * 8, report.bytes_to_device);
    let is_right = if has_memory(engine) && without_cpu(engine) { moved == all } else { moved <= all };
    check(is_right, format!("{what}: {moved} bytes to devices, of {all}"))?;
    check(in_use(engine) == 0, format!("{what}: memory is in use"))?;
    Ok(report)
}

fn schedules(choice: &DeviceChoice) -> Outcome {
    let table = Table::new(ROWS, WIDTH);
    let expected = on_cpu(&table)?;
    // Fills of one row, of a few, of nearly a tile, and of a whole one.
    for (chunk, workers, fills) in
        [(1, 1, true), (1, 3, true), (WIDTH * 8 * 5, 2, true), (TILE - 8, 3, true), (TILE, 2, false)]
    {
        let engine = builder(choice).chunk(chunk).workers(workers).build()?;
        let is_right = has_fills(&engine, &job(&table)?)? == fills || !has_memory(&engine);
        check(is_right || is_limited(), format!("fills for {chunk}"))?;
        same(&engine, &table, &expected, &format!("chunks of {chunk}, {workers} workers"))?;
    }
    // One slot a worker, which comes back between two fills.
    let engine = builder(choice).chunk(WIDTH * 8 * 5).workers(3).pinned_memory(4 * TILE / 3).build()?;
    let plan = engine.plan(&job(&table)?)?;
    check(plan.devices.iter().all(|device| device.slots < 2) || is_limited(), format!("several slots: {plan}"))?;
    same(&engine, &table, &expected, "one slot")?;
    same(&engine, &table, &expected, "one slot, again").map(drop)
}

/// With fills of so many rows, and without memory for slots of whole chunks.
fn few(choice: &DeviceChoice, rows: u64, workers: usize) -> EngineBuilder {
    builder(choice).chunk(rows * WIDTH * 8).workers(workers).pinned_memory(3 * TILE)
}

fn few_blocks(choice: &DeviceChoice) -> Outcome {
    let table = Table::new(ROWS, WIDTH);
    let expected = on_cpu(&table)?;
    // The last chunk has 5 rows: several fills, or one.
    for (tiles, rows) in [(2, 1), (3, 1), (4, 1), (2, 5), (3, 5), (4, 5)] {
        let engine = few(choice, rows, 4).device_memory(tiles * TILE).build()?;
        let plan = engine.plan(&job(&table)?)?;
        check(has_fills(&engine, &job(&table)?)? || !has_memory(&engine), format!("whole chunks: {plan}"))?;
        check(plan.devices.iter().all(|device| device.blocks < 4), format!("{plan}"))?;
        same(&engine, &table, &expected, &format!("memory of {tiles} tiles, fills of {rows} rows"))?;
    }
    Ok(())
}

fn bins(choice: &DeviceChoice) -> Outcome {
    let keys: Vec<u16> = numbers(8_000_000, 3).iter().map(|x| (x * 300.0) as i32 as u16).collect();
    let text = "bincount(k, 65536), count(k)";
    let engine = builder(choice).workers(2).build()?;
    let job = || Ok::<_, Error>(Job::eval(text)?.input("k", &keys));
    let mut expected = vec![0_i64; 65_536];
    keys.iter().for_each(|key| expected[usize::from(*key)] += 1);
    let report = engine.run(job()?)?;
    let found = report.array("bincount(k, 65536)")?.and_then(|array| array.to_vec::<i64>());
    check(found.as_deref() == Some(&expected[..]), "other counts")?;
    // How large slots are follows from the machine, but for emulated devices.
    let is_emulated = engine.devices().iter().all(|device| device.kind == DeviceKind::Emulated);
    check(has_fills(&engine, &job()?)? || !is_emulated, "chunks that are no larger than a slot")?;
    // A chunk of the size that is asked for.
    let engine = builder(choice).chunk(1 << 20).build()?;
    let plan = engine.plan(&job()?)?;
    check(plan.devices.iter().all(|device| device.max_chunk_rows == device.fill_rows), format!("{plan}"))
}

fn pinned(choice: &DeviceChoice) -> Outcome {
    let table = Table::new(ROWS, WIDTH);
    let engine = builder(choice).chunk(WIDTH * 8 * 3).workers(2).build()?;
    let mut keys = engine.pinned::<i64>(ROWS as usize)?;
    keys.iter_mut().enumerate().for_each(|(row, key)| *key = row as i64 * 7 % 5);
    let report = engine.run(Job::eval("bincount(k, 5); a = sum(x, axis=0)")?.input("x", &table).input("k", &keys))?;
    let counted = report.array("bincount(k, 5)")?.and_then(|array| array.to_vec::<i64>());
    check(counted == Some(vec![30, 30, 30, 29, 30]), format!("{counted:?}"))?;
    let alone = cpu().run(Job::eval("a = sum(x, axis=0)")?.input("x", &table))?;
    check(report.array("a")? == alone.array("a")?, "other sums")
}

fn resident(choice: &DeviceChoice) -> Outcome {
    let table = Table::new(ROWS, WIDTH);
    let expected = on_cpu(&table)?;
    let engine = limited(choice).chunk(WIDTH * 8 * 3).workers(2).build()?;
    let data = engine.resident(&table)?;
    for pass in 0..3 {
        let report = engine.run(Job::eval(TEXT)?.input("x", Input::from(&data)))?;
        check(bits(&report) == expected, format!("pass {pass}"))?;
        let all = table.rows() * 8;
        check(pass == 0 || report.bytes_to_device < all, format!("pass {pass}: {}", report.bytes_to_device))?;
    }
    Ok(())
}

/// With memory for a part of the table.
fn limited(choice: &DeviceChoice) -> EngineBuilder {
    builder(choice).device_memory(24 << 20)
}

fn passes(choice: &DeviceChoice) -> Outcome {
    let table = Table::new(ROWS, WIDTH);
    let text = "a = mean(x * c, axis=0); s = sum(x * c)";
    let engine = builder(choice).chunk(WIDTH * 8 * 3).workers(2).build()?;
    let mut found = vec![];
    each_pass(&engine, Job::eval(text)?.input("x", &table).scalar("c", 1.0), |report| {
        found.push(bits(report));
        (found.len() < 3).then_some([("c", found.len() as f64 + 1.0)])
    })?;
    for (pass, found) in found.iter().enumerate() {
        let alone = cpu().run(Job::eval(text)?.input("x", &table).scalar("c", pass as f64 + 1.0))?;
        check(*found == bits(&alone), format!("pass {pass}"))?;
    }
    check(found.len() == 3, "three passes")
}

fn verified(choice: &DeviceChoice) -> Outcome {
    let table = Table::new(ROWS, WIDTH);
    let engine = builder(choice).chunk(WIDTH * 8 * 5).workers(2).build()?;
    let report = engine.run(job(&table)?.verify(1.0).timeline(true))?;
    check(bits(&report) == on_cpu(&table)?, "other results")?;
    let rows: u64 = report.verification.iter().flat_map(|all| &all.devices).map(|device| device.rows).sum();
    check(rows == ROWS, format!("{rows} rows were verified"))?;
    if !without_cpu(&engine) || !has_memory(&engine) || is_limited() {
        return Ok(());
    }
    // Every chunk is timed: its tiles have 16 rows, of which 5 are copied at a time.
    let mut json = vec![];
    report.timeline.as_ref().ok_or("no timeline")?.write_chrome(&mut json)?;
    let events: serde_json::Value = serde_json::from_slice(&json)?;
    let spans = events.as_array().ok_or("no list")?.iter().filter(|event| event["ph"] == "X");
    let spans: Vec<_> = spans.collect();
    let of = |name: &str| spans.iter().filter(|span| span["name"] == name).count();
    let (chunks, tiles) = (report.chunks as usize, ROWS as usize / 16);
    check(chunks >= tiles, format!("{chunks} chunks"))?;
    check(of("copy in") == 4 * tiles + 1, format!("{} copies in", of("copy in")))?;
    check((of("fill"), of("kernel"), of("drain")) == (4 * tiles + 1, chunks, chunks), "spans")
}

/// The rest of the chunk is given up, and what it holds is there for the next run.
fn failing(choice: &DeviceChoice) -> Outcome {
    let table = Table::new(ROWS, WIDTH);
    let expected = on_cpu(&table)?;
    // As many blocks as workers, or fewer.
    for memory in [3 * TILE, 64 << 20] {
        let engine = few(choice, 3, 4).device_memory(memory).build()?;
        for row in [1, 16 * 4 + 7, ROWS - 1] {
            table.end.store(row * WIDTH, Ordering::Relaxed);
            let error = engine.run(job(&table)?).err().ok_or("the run goes on")?;
            check(error.to_string().contains("planted"), format!("another error: {error}"))?;
            check(in_use(&engine) == 0, "memory is in use after a failure")?;
            table.end.store(u64::MAX, Ordering::Relaxed);
            same(&engine, &table, &expected, "the run after a failure")?;
        }
    }
    Ok(())
}

/// A slot for one row: less than a tile needs.
fn row_by_row(choice: &DeviceChoice) -> Outcome {
    if is_limited() {
        // A tile does not fit each of the devices.
        return Ok(());
    }
    let table = Table::new(20, 1 << 16);
    let expected = on_cpu(&table)?;
    let row = 8 << 16;
    // Partial results, which have five words for each column, are in a slot, too, and reach to a whole page.
    let engine = builder(choice).pinned_memory(6 * row).device_memory(32 << 20).build()?;
    same(&engine, &table, &expected, "rows one by one")?;
    let engine = builder(choice).pinned_memory(row / 2).device_memory(32 << 20).build()?;
    match engine.run(job(&table)?) {
        Err(Error::Budget { needed, .. }) => {
            check(needed < 6 * row, format!("{needed} bytes are asked for"))?;
            same(&builder(choice).pinned_memory(needed).device_memory(32 << 20).build()?, &table, &expected, "needed")?;
            let less = builder(choice).pinned_memory(needed - 1).device_memory(32 << 20).build()?;
            check(less.run(job(&table)?).is_err(), "less is enough")
        }
        other => check(!has_memory(&engine), format!("{:?}", other.map(|report| report.chunks))),
    }
}
