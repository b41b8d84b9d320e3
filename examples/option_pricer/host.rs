//! The host side: the functions of the kernels for devices without CUDA, the formula, and the payoffs of written paths.

use std::path::Path;

use overshot::{Npy, Result, kernel::HostRows};

use super::{BATCH, STEPS, STRIKE};

/// Does the same as `philox` in the kernels.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let (a, b) = (0xD251_1F53 * u64::from(counter[0]), 0xCD9E_8D57 * u64::from(counter[2]));
        counter = [(b >> 32) as u32 ^ counter[1] ^ key[0], b as u32, (a >> 32) as u32 ^ counter[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

fn normals(path: u64, step: usize, seed: u64) -> [f32; 4] {
    let bits = philox([path as u32, (path >> 32) as u32, step as u32 / 4, 0], [seed as u32, (seed >> 32) as u32]);
    let normal = |a: u32, b: u32| {
        let (sine, cosine) =
            ((b >> 8) as f32 * (std::f32::consts::TAU / 2f32.powi(24)) - std::f32::consts::PI).sin_cos();
        let radius = (-2.0 * (((a >> 9) as f32 + 0.5) / 2f32.powi(23)).ln()).sqrt();
        [radius * cosine, radius * sine]
    };
    let ([a, b], [c, d]) = (normal(bits[0], bits[1]), normal(bits[2], bits[3]));
    [a, b, c, d]
}

pub fn paths(rows: &mut HostRows<'_>) {
    let (start, drift, volatility) =
        (rows.value::<f64>("start"), rows.value::<f64>("drift"), rows.value::<f64>("volatility"));
    let (seed, first) = (rows.value("seed"), rows.first_row());
    for (path, prices) in (first..).zip(rows.output::<f64>("prices").chunks_mut(STEPS)) {
        let mut price = start;
        for (step, prices) in prices.chunks_mut(4).enumerate() {
            for (to, z) in prices.iter_mut().zip(normals(path, 4 * step, seed)) {
                price += drift + volatility * f64::from(z);
                *to = price.exp();
            }
        }
    }
}

pub fn payoffs(rows: &mut HostRows<'_>) {
    let (start, drift, volatility) =
        (rows.value::<f64>("start"), rows.value::<f64>("drift"), rows.value::<f64>("volatility"));
    let (seed, strike, count) = (rows.value("seed"), rows.value::<f64>("strike"), rows.value::<u64>("count"));
    for (batch, sums) in (rows.first_row()..).zip(rows.output::<f64>("sums").as_chunks_mut::<2>().0) {
        *sums = [0.0; 2];
        for path in batch * BATCH..count.min((batch + 1) * BATCH) {
            let walk: f32 = (0..STEPS).step_by(4).map(|step| normals(path, step, seed).iter().sum::<f32>()).sum();
            let last = (start + STEPS as f64 * drift + volatility * f64::from(walk)).exp();
            let payoff = (last - strike).max(0.0);
            *sums = [sums[0] + payoff, sums[1] + payoff * payoff];
        }
    }
}

/// The sum of the payoffs of paths, and of their squares.
pub fn payoffs_of_rows(prices: &[f64]) -> [f64; 2] {
    let payoffs = prices.chunks(STEPS).map(|path| (path[STEPS - 1] - STRIKE).max(0.0));
    payoffs.fold([0.0; 2], |[sum, squares], payoff| [sum + payoff, squares + payoff * payoff])
}

/// Returns the same sums of a file, which it reads a few paths at a time.
pub fn payoffs_of_file(file: impl AsRef<Path>) -> Result<[f64; 2]> {
    use overshot::Source;
    let source = Npy::open(file)?;
    let mut prices = vec![0.0; 1000 * STEPS];
    let mut sums = [0.0; 2];
    for first in (0..source.rows()).step_by(prices.len()) {
        let count = (prices.len() as u64).min(source.rows() - first) as usize;
        source.read(first, bytemuck::cast_slice_mut(&mut prices[..count]))?;
        let [sum, squares] = payoffs_of_rows(&prices[..count]);
        sums = [sums[0] + sum, sums[1] + squares];
    }
    Ok(sums)
}

/// The price of a European call (Black and Scholes, 1973).
pub fn black_scholes(spot: f64, strike: f64, volatility: f64, rate: f64, years: f64) -> f64 {
    let deviation = volatility * years.sqrt();
    let d1 = ((spot / strike).ln() + rate * years) / deviation + deviation / 2.0;
    spot * normal_cdf(d1) - strike * (-rate * years).exp() * normal_cdf(d1 - deviation)
}

/// The integral of the normal density up to x, by its series of odd powers.
fn normal_cdf(x: f64) -> f64 {
    let density = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let terms = (1..200).scan(x, |term, k| Some(std::mem::replace(term, *term * x * x / f64::from(2 * k + 1))));
    0.5 + density * terms.sum::<f64>()
}
