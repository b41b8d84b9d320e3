//! Planning, which is pure arithmetic and should be cheap to call.

use criterion::{Criterion, criterion_group, criterion_main};
use overshot::{DeviceChoice, Engine, Job, device::Emulated, io::Generator};

fn plans(criterion: &mut Criterion) {
    let choice = DeviceChoice::from(Emulated::new());
    let roomy = Engine::builder().device(choice.clone()).device_memory(8 << 30).build().expect("an engine");
    let tight =
        Engine::builder().device(choice).device_memory(2 << 20).pinned_memory(1 << 20).build().expect("an engine");
    for columns in [1, 16] {
        let names: Vec<String> = (0..columns).map(|k| format!("x{k}")).collect();
        let mut job = Job::eval(&format!("sum({})", names.join(" + "))).expect("it parses");
        for name in &names {
            job = job.input(name, Generator::new(1 << 40, |_, _: &mut [f64]| {}));
        }
        let plan = roomy.plan(&job).expect("a plan");
        assert!(plan.devices[0].device_bytes <= 8 << 30 && plan.chunk_rows > 0);
        criterion.bench_function(&format!("plan/{columns} columns, roomy"), |b| b.iter(|| roomy.plan(&job)));
        criterion.bench_function(&format!("plan/{columns} columns, tight"), |b| b.iter(|| tight.plan(&job)));
    }
}

criterion_group!(benches, plans);
criterion_main!(benches);
