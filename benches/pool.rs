//! The pool of device blocks: takes a block and returns it, with an event recorded and reached.

use criterion::{Criterion, criterion_group, criterion_main};
use overshot::testing::Freelist;

fn freelist(criterion: &mut Criterion) {
    for blocks in [1, 24] {
        let mut freelist = Freelist::new(blocks).expect("small blocks");
        criterion.bench_function(&format!("pool/one of {blocks} blocks"), |b| {
            b.iter(|| freelist.cycle().expect("a block"));
        });
    }
}

criterion_group!(benches, freelist);
criterion_main!(benches);
