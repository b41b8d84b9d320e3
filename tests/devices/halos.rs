//! Halos of kernels of the user's own: rows beside those of a launch, on every device, wherever rows lie.

use overshot::device::{Emulated, Fault, FaultAt};
use overshot::kernel::{CustomKernel, RowFunction};
use overshot::testing::custom::around;
use overshot::{DeviceChoice, Engine, Input, Job, Journal, Npy, Source};

use crate::harness::{Case, EmulatedCase, Module, NO_CASES, Outcome, check, cpu, engine, numbers};

pub const MODULE: Module =
    Module { name: "halos", cases: CASES, on_host: ON_HOST, emulated: EMULATED, counts_memory: true, ..NO_CASES };

const CASES: &[(&str, Case)] = &[
    ("inputs have different halos, for all chunks and schedules", sizes),
    ("files, sharded and pinned rows", places),
    ("parts read rows of other parts", parts),
    ("what is no halo is refused", refused),
];

const EMULATED: &[(&str, EmulatedCase)] = &[("chunks of a lost device are computed with their halos", losses)];

const ON_HOST: &[(&str, Case)] = &[
    ("a Rust closure gets longer slices", row_function),
    ("random halos have the rows that exist, and no others", random_halos),
    ("a kernel with a halo selects rows", selected),
];

/// The inputs of [`around`].
struct Inputs {
    x: Vec<f32>,
    w: Vec<i32>,
    v: Vec<f64>,
}

impl Inputs {
    fn new(rows: usize) -> Inputs {
        Inputs {
            x: numbers(2 * rows, 1).iter().map(|x| *x as f32).collect(),
            w: numbers(rows, 2).iter().map(|x| *x as i32).collect(),
            v: numbers(rows, 3),
        }
    }

    /// A naive twin of [`around`].
    fn expected(&self) -> Vec<f64> {
        let rows = self.v.len() as i64;
        let row = |row: i64| {
            let near = (row - 20..=row + 30).filter(|near| (0..rows).contains(near)).map(|near| near as usize);
            let sum = near.fold(0.0, |sum, near| sum + f64::from(self.x[2 * near] - self.x[2 * near + 1]));
            let next = self.w.get(row as usize + 1).map_or(-1.0, |w| f64::from(*w));
            sum + next * self.v[row as usize]
        };
        (0..rows).map(row).collect()
    }

    fn job<'a>(&'a self, y: &'a mut [f64]) -> Job<'a> {
        Job::kernel(&around()).input("x", &self.x).input("w", &self.w).input("v", &self.v).output("y", y)
    }
}

fn sizes(choice: &DeviceChoice) -> Outcome {
    for (seed, rows) in [0, 1, 19, 256, 257, 5000, 40_000].into_iter().enumerate() {
        let inputs = Inputs::new(rows);
        let expected = inputs.expected();
        let choice = match choice {
            DeviceChoice::Emulated(_) => format!("emulated:{seed}").parse()?,
            choice => choice.clone(),
        };
        for (chunk, workers) in [(1, 3), (30 << 10, 2), (1 << 20, 1)] {
            let mut y = vec![f64::NAN; rows];
            engine(&choice).chunk(chunk).workers(workers).build()?.run(inputs.job(&mut y).verify(0.3))?;
            check(y == expected, format!("{rows} rows, chunks of {chunk}"))?;
        }
    }
    Ok(())
}

fn places(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let rows = 100_003;
    let inputs = Inputs::new(rows);
    let expected = inputs.expected();
    let engine = engine(choice).chunk(100 << 10).build()?;
    let run = |what: &str, [x, w, v]: [Input<'_>; 3]| -> Outcome {
        let mut y = vec![f64::NAN; rows];
        let job = Job::kernel(&around()).input("x", x).input("w", w).input("v", v).output("y", &mut y);
        engine.run(job.verify(0.5))?;
        check(y == expected, format!("{what}: other rows"))
    };
    let path = folder.path().join("v.npy");
    cpu().run(Job::eval("y = v")?.input("v", &inputs.v).output("y", Npy::create(&path)))?;
    run("a file", [(&inputs.x).into(), (&inputs.w).into(), Npy::open(&path)?.into()])?;
    let (x, w) = (engine.shard(&inputs.x)?, engine.shard(&inputs.w)?);
    run("sharded", [(&x).into(), (&w).into(), (&inputs.v).into()])?;
    let mut pinned = engine.pinned::<i32>(rows)?;
    pinned.copy_from_slice(&inputs.w);
    run("pinned", [(&x).into(), (&pinned).into(), (&inputs.v).into()])
}

fn parts(choice: &DeviceChoice) -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("y.npy");
    let rows = 30_000_usize;
    let inputs = Inputs::new(rows);
    let job = || {
        let job = Job::kernel(&around()).input("x", &inputs.x).input("w", &inputs.w).input("v", &inputs.v);
        job.output("y", Npy::create(&path))
    };
    let engine = engine(choice).chunk(50 << 10).build()?;
    let cut = 3 * engine.part_step(&job())?;
    let mut all = engine.run_rows(job(), cut..rows as u64)?;
    all.merge(engine.run_rows(job(), 0..cut)?)?;
    all.finish()?;
    let written = || -> Outcome<Vec<f64>> {
        let mut found = vec![0.0; rows];
        Npy::open(&path)?.read(0, bytemuck::cast_slice_mut(&mut found))?;
        Ok(found)
    };
    check(written()? == inputs.expected(), "parts wrote other rows")?;
    std::fs::remove_file(&path)?;
    engine.run_resumable(job(), &Journal::beside(&path).every(std::time::Duration::ZERO))?;
    check(written()? == inputs.expected(), "a run with a journal wrote other rows")
}

fn losses() -> Outcome {
    let inputs = Inputs::new(80_000);
    let expected = inputs.expected();
    for (at, nth) in [(FaultAt::CopyIn, 3), (FaultAt::Kernel, 2), (FaultAt::CopyOut, 4)] {
        let choice = DeviceChoice::Emulated(vec![Emulated::new().fault(Fault::new(at, nth)), Emulated::new().seed(1)]);
        let engine = Engine::builder().device(choice).chunk(64 << 10).build()?;
        let mut y = vec![f64::NAN; 80_000];
        let report = engine.run(inputs.job(&mut y))?;
        check(y == expected, format!("other rows without a lost device\n{report}"))?;
        check(report.notes.iter().any(|note| note.contains("lost")), format!("nothing was lost\n{report}"))?;
    }
    Ok(())
}

fn refused(choice: &DeviceChoice) -> Outcome {
    let engine = engine(choice).build()?;
    let error = |kernel: CustomKernel| {
        let inputs = Inputs::new(10);
        let mut y = vec![0.0; 10];
        let job = Job::kernel(&kernel).input("x", &inputs.x).input("w", &inputs.w).input("v", &inputs.v);
        engine.plan(&job.output("y", &mut y)).err().map(|error| error.to_string()).unwrap_or_default()
    };
    // SAFETY: they are refused.
    let wrong = unsafe {
        [
            (around().halo("y", 1, 1), "'y' has a halo, but is no input"),
            (around().halo("rows", 0, 1), "'rows' has a halo, but is no input"),
            (around().halo("z", 1, 0), "'z' has a halo, but is no input"),
            (around().halo("x", 65_537, 0), "a halo of 65537 rows is larger than 65536"),
            (around().halos(0, usize::MAX), "is larger than 65536"),
        ]
    };
    for (kernel, message) in wrong {
        let error = error(kernel);
        check(error.contains(message), format!("'{error}' does not say '{message}'"))?;
    }
    // A kernel that cannot know where the rows of the job begin and end.
    for (parameters, halo, missing) in
        [("const float *x, float *y", (1, 0), "first_row"), ("const float *x, float *y", (0, 1), "total_rows")]
    {
        let text = format!("extern \"C\" __global__ void f({parameters}, long long rows) {{}}");
        // SAFETY: it is refused.
        let kernel = unsafe { CustomKernel::cuda("f.cu", &text, "f")?.halos(halo.0, halo.1) };
        let (x, mut y) = ([0_f32; 10], [0_f32; 10]);
        let error = engine.plan(&Job::kernel(&kernel).input("x", &x).output("y", &mut y)).err();
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        check(error.contains(&format!("add 'long long {missing}'")), format!("'{error}' does not name {missing}"))?;
    }
    let text = "extern \"C\" __global__ void f(const float *x, int total_rows) {}";
    // SAFETY: it is refused.
    let error = unsafe { CustomKernel::cuda("f.cu", text, "f") }.err().map(|error| error.to_string());
    check(error.is_some_and(|error| error.contains("declare it 'long long total_rows'")), "an int of total_rows")
}

fn row_function(choice: &DeviceChoice) -> Outcome {
    let sums = RowFunction::new("sums").input::<[f64; 3]>("x").halo("x", 2, 1).input::<i64>("n").output::<f64>("y");
    let sums = sums.run_indexed(|first, (x, n), y| {
        let front = first.min(2) as usize;
        for (i, y) in y.iter_mut().enumerate() {
            let near = &x[(front + i).saturating_sub(2)..x.len().min(front + i + 2)];
            *y = near.iter().map(|row| row[1]).sum::<f64>() + n[i] as f64;
        }
    });
    for rows in [1, 2, 3, 300, 50_001] {
        let (x, n) = (numbers(3 * rows, 4), (0..rows as i64).collect::<Vec<_>>());
        let mut y = vec![f64::NAN; rows];
        let engine = engine(choice).chunk(40 << 10).build()?;
        engine.run(Job::kernel(&sums).input("x", &x).input("n", &n).output("y", &mut y))?;
        let expected = |row: usize| {
            let near = row.saturating_sub(2)..rows.min(row + 2);
            near.map(|near| x[3 * near + 1]).sum::<f64>() + row as f64
        };
        check((0..rows).all(|row| y[row] == expected(row)), format!("{rows} rows"))?;
    }
    Ok(())
}

/// The host function says which rows it was given.
fn random_halos(choice: &DeviceChoice) -> Outcome {
    let text = "extern \"C\" __global__ void f(const long long *x, long long first_row, long long rows,
                                              long long total_rows, long long *front, long long *all,
                                              long long *wrong) {}";
    for number in 0..40_u64 {
        let random = |salt: u64, bound: u64| {
            let value = (number * 8 + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (value >> 40) % bound
        };
        let halo = [random(0, 3) * random(1, 5000), random(2, 3) * random(3, 5000)];
        let (rows, tile) = (1 + random(4, 20_000), 1 + random(5, 700) as usize);
        let [before, after] = halo.map(|rows| rows as usize);
        // SAFETY: it does nothing.
        let kernel = unsafe {
            let kernel = CustomKernel::cuda("f.cu", text, "f")?.rows_per_block(tile);
            if number % 2 == 0 { kernel.halo("x", before, after) } else { kernel.halos(before, after) }
        };
        let kernel = kernel.on_host(move |own| {
            let (first, x, total) = (own.first_row(), own.input::<i64>("x"), own.total_rows());
            let end = (first + own.rows() as u64 + after as u64).min(total);
            let wanted = first.saturating_sub(before as u64)..end;
            let is_wrong = x.iter().map(|x| *x as u64).ne(wanted) || x[own.halo_before("x")] as u64 != first;
            own.output::<i64>("front").fill(own.halo_before("x") as i64);
            own.output::<i64>("all").fill(x.len() as i64);
            own.output::<i64>("wrong").fill(i64::from(is_wrong));
        });
        let x: Vec<i64> = (0..rows as i64).collect();
        let [mut front, mut all, mut wrong] = [0; 3].map(|_: i32| vec![-1_i64; x.len()]);
        let engine = engine(choice).chunk(1 + random(6, 100_000)).build()?;
        let job = Job::kernel(&kernel).input("x", &x).output("front", &mut front).output("all", &mut all);
        engine.run(job.output("wrong", &mut wrong))?;
        check(wrong.iter().all(|wrong| *wrong == 0), format!("{rows} rows, tiles of {tile}, halo {halo:?}"))?;
        check(front[0] == 0 && front.iter().all(|front| *front <= before as i64), "rows before the first one")?;
        let exist = |(all, front): (&i64, &i64)| (front + 1..=rows as i64).contains(all);
        check(all.iter().zip(&front).all(exist), "rows that the job does not have")?;
    }
    Ok(())
}

/// Keeps the rows that are larger than the one before.
fn selected(choice: &DeviceChoice) -> Outcome {
    let text = "extern \"C\" __global__ void f(long long first_row, long long rows, const double *x, double *kept,
                                              unsigned long long *num_selected) {}";
    // SAFETY: it does nothing.
    let kernel = unsafe { CustomKernel::cuda("f.cu", text, "f")?.halo("x", 1, 0) }.on_host(|rows| {
        let (x, front, tile_rows) = (rows.input::<f64>("x"), rows.halo_before("x"), rows.tile_rows());
        let (own, kept, counts) = (rows.rows(), rows.output::<f64>("kept"), rows.num_selected());
        for (tile, count) in counts.iter_mut().enumerate() {
            let first = tile * tile_rows;
            let is_larger = |i: &usize| front + i > 0 && x[front + i] > x[front + i - 1];
            let found = (first..own.min(first + tile_rows)).filter(is_larger);
            *count = found.zip(&mut kept[first..]).map(|(i, kept)| *kept = x[front + i]).count() as u64;
        }
    });
    let x = numbers(60_000, 7);
    let expected: Vec<f64> = x.windows(2).filter(|pair| pair[1] > pair[0]).map(|pair| pair[1]).collect();
    for chunk in [8 << 10, 70 << 10, 1 << 20] {
        let mut kept = vec![f64::NAN; x.len()];
        let report =
            engine(choice).chunk(chunk).build()?.run(Job::kernel(&kernel).input("x", &x).output("kept", &mut kept))?;
        check(report.outputs[0].rows as usize == expected.len(), format!("{} rows", report.outputs[0].rows))?;
        check(kept[..expected.len()] == expected, format!("chunks of {chunk}: other rows"))?;
    }
    Ok(())
}
