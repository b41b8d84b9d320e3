//! `.npy` files in the page cache: opening, reading through a memory map and with `pread`, writing.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use overshot::{DeviceChoice, Engine, Job, Npy, Source};

fn files(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.npy");
    let rows = 8 << 20;
    let a: Vec<f64> = (0..rows).map(|i| i as f64).collect();
    let engine = Engine::builder().device(DeviceChoice::Cpu).build().expect("the CPU is always there");
    let write = |path| {
        engine.run(Job::eval("b = a").expect("it parses").input("a", &a).output("b", Npy::create(path).force(true)))
    };
    write(&path).expect("written");
    criterion.bench_function("npy/open", |b| b.iter(|| Npy::open(&path).expect("it opens")));

    let mut group = criterion.benchmark_group("npy/64 MiB");
    group.throughput(Throughput::Bytes(8 * rows as u64)).sample_size(20);
    let mut row = vec![0u8; 1 << 20];
    // SAFETY: the file belongs to this bench, which only replaces it as a whole.
    let mapped = unsafe { Npy::map(&path) }.expect("it opens");
    for (how, file) in [("Map", mapped), ("Pread", Npy::open(&path).expect("it opens"))] {
        group.bench_function(format!("read, {how}"), |b| {
            b.iter(|| {
                for first in (0..rows as u64).step_by(row.len() / 8) {
                    file.read(first, &mut row).expect("it reads");
                }
            });
        });
        assert_eq!(row[row.len() - 8..], ((rows - 1) as f64).to_ne_bytes());
    }
    group.bench_function("write", |b| b.iter(|| write(&path).expect("written")));
}

criterion_group!(benches, files);
criterion_main!(benches);
