// Splits numbers of f32 into two of bf16. `src/device/split.rs` is the counterpart for the host and gives the same
// bits. Include behind math.cu and half.cu.

namespace overshot {

// The nearest bf16, and the one that is nearest to the rest. A finite number stays finite.
__device__ inline void halves(f32 a, u16& high, u16& low) {
    const u32 bits = __float_as_uint(a);
    const bool is_finite = (bits & 0x7fffffffu) < 0x7f800000u;
    high = Half<bf16>::of(a).bits;
    if (is_finite && (high & 0x7fffu) == 0x7f80u) high = (u16)(bits >> 16);
    low = is_finite ? Half<bf16>::of(a - wide(bf16_bits(high))).bits : (u16)0;
}

// Rows of WIDTH numbers become three rows: h, h, l of a FIRST factor, and h, l, h of a second one. A block has TILE
// rows.
template <int WIDTH, int TILE, bool FIRST> __device__ void split(i64 rows, const f32* from, u16* to) {
    const i64 begin = (i64)blockIdx.x * TILE, end = begin + TILE < rows ? begin + TILE : rows;
    for (i64 place = begin * WIDTH + threadIdx.x; place < end * WIDTH; place += 256) {
        u16 high, low;
        halves(from[place], high, low);
        u16* row = to + place / WIDTH * (3 * WIDTH) + place % WIDTH;
        row[0] = high;
        row[WIDTH] = FIRST ? high : low;
        row[2 * WIDTH] = FIRST ? low : high;
    }
}

}  // namespace overshot
