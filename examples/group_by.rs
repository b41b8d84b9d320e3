//! Sums a file that is larger than the memory of the device by keys, and counts values in bins.
//!
//! `cargo run --release --example group_by [ROWS]`
//!
//! Each row is a sale: the number of a shop, and a price. One pass over the rows has the sales of each shop, the number
//! of them and a histogram of the prices. The emulated device has 16 MiB of memory, so the example shows the same on
//! every machine; with a GPU, try `DeviceChoice::Auto`.

use std::env;

use overshot::{DeviceChoice, Engine, Job, Npy, device::Emulated};

const SHOPS: usize = 1000;
const TEXT: &str = "n = bincount(shop, 1000); total = bincount(shop, 1000, price); mean = total / n; \
                    h = histogram(price, 50, 0, 100); dear = bincount(shop[price > 90], 1000)";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rows = env::args().nth(1).map_or(Ok(4 << 20), |rows| rows.parse())?;
    group(rows)
}

fn group(rows: u64) -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir_in(".")?;
    let path = |name: &str| folder.path().join(name).with_extension("npy");
    let cpu = Engine::builder().device(DeviceChoice::Cpu).build()?;
    // A few shops have most of the sales.
    let job = Job::eval("shop = i32(1000 * rand(1) ** 4); price = f32(100 * rand(2) ** 2)")?.rows(rows);
    cpu.run(job.output("shop", Npy::create(path("shop"))).output("price", Npy::create(path("price"))))?;

    let job = || -> overshot::Result<Job<'_>> {
        Ok(Job::eval(TEXT)?.input("shop", Npy::open(path("shop"))?).input("price", Npy::open(path("price"))?))
    };
    let engine = Engine::builder().device(Emulated::new()).device_memory(16 << 20).build()?;
    println!("{}", engine.plan(&job()?)?);
    let report = engine.run(job()?)?;
    println!("{report}");

    // A second way: every row by itself.
    let (mut counts, mut totals, mut dear) = (vec![0_i64; SHOPS], vec![0.0_f64; SHOPS], vec![0_i64; SHOPS]);
    let (mut shops, mut prices) = (vec![0_i32; rows as usize], vec![0_f32; rows as usize]);
    let read = Job::eval("shops = shop; prices = price")?;
    let read = read.input("shop", Npy::open(path("shop"))?).input("price", Npy::open(path("price"))?);
    cpu.run(read.output("shops", &mut shops).output("prices", &mut prices))?;
    for (shop, price) in shops.iter().zip(&prices) {
        counts[*shop as usize] += 1;
        totals[*shop as usize] += f64::from(*price);
        dear[*shop as usize] += i64::from(*price > 90.0);
    }
    let integers = |name: &str| -> Result<Vec<i64>, Box<dyn std::error::Error>> {
        Ok(report.array(name)?.and_then(|array| array.to_vec()).ok_or("no rows")?)
    };
    assert!(integers("n")? == counts && integers("dear")? == dear);
    assert_eq!(integers("h")?.iter().sum::<i64>(), rows as i64);
    let found = report.array("total")?.and_then(|array| array.to_vec::<f64>()).ok_or("no rows")?;
    assert!(found.iter().zip(&totals).all(|(found, total)| (found - total).abs() <= 1e-9 * total));
    assert_eq!(cpu.run(job()?)?.arrays, report.arrays, "the CPU has other bits");
    Ok(())
}

#[test]
fn runs() -> Result<(), Box<dyn std::error::Error>> {
    group(300_000)
}
