// Random numbers that depend on a seed and a position only: Philox4x64-10 of Random123. `src/expr/random.rs` gives the
// same bits on the host, and names the source.

namespace overshot {

typedef unsigned long long u64;
typedef double f64;

#define OP __device__ __forceinline__

// The number at a position, from 0 to below 1, in steps of 2^-53. Each block of the generator has four.
OP f64 random(u64 seed, u64 position) {
    u64 a = position / 4 + 1, b = 0, c = 0, d = 0;
    u64 key = seed, other_key = 0;
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const u64 high = __umul64hi(0xd2e7470ee14c6c93ull, a), low = 0xd2e7470ee14c6c93ull * a;
        a = __umul64hi(0xca5a826395121157ull, c) ^ b ^ key;
        b = 0xca5a826395121157ull * c;
        c = high ^ d ^ other_key;
        d = low;
        key += 0x9e3779b97f4a7c15ull;
        other_key += 0xbb67ae8584caa73bull;
    }
    const u64 words[4] = {a, b, c, d};
    return (f64)(words[position % 4] >> 11) * (1.0 / 9007199254740992.0);
}

#undef OP

}  // namespace overshot
