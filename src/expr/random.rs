//! Random numbers that depend on a seed and a position only: the generator Philox4x64-10 of Random123 (Salmon, Moraes,
//! Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011).
//!
//! NumPy has the same generator: the number at position k is number k of
//! `np.random.Generator(np.random.Philox(key=seed)).random(n)`. `kernels/random.cu` gives the same bits.

use super::dispatch::Work;

const MULTIPLIERS: [u64; 2] = [0xd2e7_470e_e14c_6c93, 0xca5a_8263_9512_1157];
const KEY_STEPS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xbb67_ae85_84ca_a73b];
const ROUNDS: usize = 10;

/// The first position of the numbers from which `randn` is computed, so that they are not those of `rand`.
pub(super) const NORMAL_FROM: u64 = 1 << 63;

/// Returns the four words of a block.
fn block(seed: u64, number: u64) -> [u64; 4] {
    let (mut words, mut key) = ([number, 0, 0, 0], [seed, 0]);
    for _ in 0..ROUNDS {
        let [first, second] = [0, 1].map(|k| u128::from(MULTIPLIERS[k]) * u128::from(words[2 * k]));
        let high = |product: u128| (product >> 64) as u64;
        words = [high(second) ^ words[1] ^ key[0], second as u64, high(first) ^ words[3] ^ key[1], first as u64];
        key = [0, 1].map(|k| key[k].wrapping_add(KEY_STEPS[k]));
    }
    words
}

/// Numbers from 0 to below 1 at positions, in steps of 2⁻⁵³.
pub(super) struct Random<'a> {
    pub(super) seeds: &'a [u64],
    pub(super) positions: &'a [u64],
    pub(super) out: &'a mut [f64],
}

impl Work for Random<'_> {
    #[inline(always)]
    fn run(self) {
        // A block serves four positions, which are often neighbours.
        let mut known = None;
        let mut words = [0; 4];
        for ((slot, seed), position) in self.out.iter_mut().zip(self.seeds).zip(self.positions) {
            // NumPy counts before it computes.
            let wanted = (*seed, position / 4 + 1);
            if known != Some(wanted) {
                words = block(wanted.0, wanted.1);
                known = Some(wanted);
            }
            *slot = (words[(position % 4) as usize] >> 11) as f64 * (1.0 / (1u64 << 53) as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers at the positions from `first` on, as multiples of 2⁻⁵³.
    fn numbers<const N: usize>(seed: u64, first: u64) -> [u64; N] {
        let positions: [u64; N] = std::array::from_fn(|k| first + k as u64);
        let mut out = [0.0; N];
        Random { seeds: &[seed; N], positions: &positions, out: &mut out }.run();
        out.map(|number| (number * (1u64 << 53) as f64) as u64)
    }

    #[test]
    fn numbers_are_those_of_numpy() {
        // [hex(int(x * 2**53)) for x in np.random.Generator(np.random.Philox(key=KEY, counter=COUNTER)).random(N)]
        let seven = [
            0x1b_e806_9705_3d3f,
            0x9_73a2_19bf_1cc8,
            0xd_7170_afca_0d55,
            0xc_f8f9_28b6_374d,
            0x2_a6a5_b4ef_d9dd,
            0x16_4ad1_1064_fee5,
        ];
        assert_eq!(numbers(7, 0), seven);
        let last = [0x7_84a4_38b1_bbcb, 0x16_f435_abb5_c260, 0xd_285d_5d3f_a5fd, 0x16_eaa5_d0f1_a384];
        assert_eq!(numbers(u64::MAX, 0), last);
        // With `counter=2**61`.
        let normal = [0xa_2f4b_604c_a0cf, 0x19_3051_262c_038e, 0x16_8618_3ef2_2ce7, 0xd_90c0_897f_e1d8];
        assert_eq!(numbers(7, NORMAL_FROM), normal);
        // Any position alone.
        assert_eq!(seven.map(|number| [number]), [0, 1, 2, 3, 4, 5].map(|at| numbers(7, at)));
    }
}
