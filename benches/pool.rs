//! The freelist of device blocks: taking a block and giving it back, with an event recorded and reached.

use criterion::{Criterion, criterion_group, criterion_main};
use overshot::testing::Freelist;

fn freelist(criterion: &mut Criterion) {
    for blocks in [1, 24] {
        let mut freelist = Freelist::new(blocks).expect("small blocks");
        criterion.bench_function(&format!("pool/own block, {blocks} blocks"), |b| {
            b.iter(|| freelist.cycle(0).expect("a block"));
        });
        let mut lane = 0;
        criterion.bench_function(&format!("pool/block of another lane, {blocks} blocks"), |b| {
            b.iter(|| {
                lane += 1;
                freelist.cycle(lane).expect("a block");
            });
        });
    }
}

criterion_group!(benches, freelist);
criterion_main!(benches);
