//! Expressions on one core of the CPU, in cache and out of it.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use overshot::{DeviceChoice, Engine, Job};

fn expressions(criterion: &mut Criterion) {
    let engine = Engine::builder().device(DeviceChoice::Cpu).workers(1).build().expect("the CPU is always there");
    for (place, rows) in [("64 KiB columns", 8usize << 10), ("64 MiB columns", 8 << 20)] {
        let a: Vec<f64> = (0..rows).map(|i| i as f64 * 1e-3 + 0.5).collect();
        let b: Vec<f64> = (0..rows).map(|i| 2.0 - i as f64 * 1e-9).collect();
        let mut c = vec![0.0; rows];
        let mut group = criterion.benchmark_group(format!("expression/{place}"));
        group.throughput(Throughput::Elements(rows as u64)).sample_size(20);
        for text in [
            "c = a * b",
            "c = sqrt(a * a + b * b)",
            "c = where(a > b, a, b) + 1",
            "c = sin(a) + b",
            "c = exp(-b) + a",
            "c = log(a) + b",
            "c = a ** b",
            "c = sin(a) * exp(b) + sqrt(a * b)",
        ] {
            group.bench_function(text, |bencher| {
                bencher.iter(|| {
                    let job = Job::eval(text).expect("it parses").input("a", &a).input("b", &b).output("c", &mut c);
                    engine.run(job).expect("it runs")
                });
            });
        }
        let job = Job::eval("c = a * b").expect("it parses").input("a", &a).input("b", &b).output("c", &mut c);
        engine.run(job).expect("it runs");
        assert!(c.iter().zip(a.iter().zip(&b)).all(|(c, (a, b))| *c == a * b));
        let sum = engine.run(Job::eval("sum(a)").expect("it parses").input("a", &a)).expect("it runs").value("sum(a)");
        let sum = sum.expect("it is a result");
        let plain: f64 = a.iter().sum();
        assert!(sum.is_some_and(|sum| (sum.as_f64() / plain - 1.0).abs() < 1e-9));
        for text in ["sum(a)", "min(a), max(a)", "std(a)", "argmax(a)"] {
            group.bench_function(text, |bencher| {
                bencher.iter(|| engine.run(Job::eval(text).expect("it parses").input("a", &a)).expect("it runs"));
            });
        }
    }
}

criterion_group!(benches, expressions);
criterion_main!(benches);
