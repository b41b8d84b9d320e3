//! Numbers that look random and are the same for the same seed, and their order.

pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        let mut random = Random(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed + 1) | 1);
        (0..10).for_each(|_| _ = random.unit());
        random
    }

    pub(super) fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.unit() * end as f64) as usize
    }

    /// Draws a number, uniform on a logarithmic scale.
    pub(super) fn scale(&mut self, least: f64, most: f64) -> f64 {
        (least.ln() + (most / least).ln() * self.unit()).exp()
    }
}

/// Returns the numbers in ascending order.
pub(super) fn sorted(numbers: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers
}
