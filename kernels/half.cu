// f16 and bf16. `src/data/half.rs` is the counterpart for the host and gives the same bits. Include behind math.cu.

namespace overshot {

#define OP __device__ __forceinline__

struct f16 { u16 bits; };
struct bf16 { u16 bits; };

OP f16 f16_bits(u32 bits) { f16 value; value.bits = (u16)bits; return value; }
OP bf16 bf16_bits(u32 bits) { bf16 value; value.bits = (u16)bits; return value; }
OP f16 stored(f16 a) { return (a.bits & 0x7fffu) > 0x7c00u ? f16_bits(0x7e00u) : a; }
OP bf16 stored(bf16 a) { return (a.bits & 0x7fffu) > 0x7f80u ? bf16_bits(0x7fc0u) : a; }

OP f32 wide(f16 a) {
    const u32 step = 1u << 23, size = (a.bits & 0x7fffu) << 13, lowest = 113u * step;
    const u32 normal = size + (size >= 31u * step ? 224u : 112u) * step;
    const u32 small = __float_as_uint(f32_bits(size + lowest) - f32_bits(lowest));
    return f32_bits((size < step ? small : normal) | (a.bits & 0x8000u) << 16);
}
OP f32 wide(bf16 a) { return f32_bits((u32)a.bits << 16); }

template <class T> struct Half;
template <> struct Half<f16> {
    static __device__ __forceinline__ f16 of(f32 a) {
        const u32 step = 1u << 23, bits = __float_as_uint(a), sign = bits & 0x80000000u, size = bits ^ sign;
        if (size > 0x7f800000u) return f16_bits(0x7e00u);
        if (size >= 143u * step) return f16_bits(0x7c00u | sign >> 16);
        if (size < 113u * step) {
            const f32 unit = f32_bits(126u * step);
            return f16_bits((__float_as_uint(f32_bits(size) + unit) - 126u * step) | sign >> 16);
        }
        return f16_bits((size - 112u * step + 0xfffu + (size >> 13 & 1u)) >> 13 | sign >> 16);
    }
};
template <> struct Half<bf16> {
    static __device__ __forceinline__ bf16 of(f32 a) {
        const u32 bits = __float_as_uint(a);
        if ((bits & 0x7fffffffu) > 0x7f800000u) return bf16_bits(0x7fc0u);
        return bf16_bits((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    }
};

// The last bit of the f32 is 1 if bits are lost, so that rounding it again rounds the f64 once.
OP f32 unrounded(f64 a) {
    const f32 near = (f32)a;
    const f64 wide = (f64)near;
    if (wide == a || a != a) return near;
    return f32_bits((__float_as_uint(near) - (::fabs(wide) > ::fabs(a) ? 1u : 0u)) | 1u);
}

#define HALF(T)                                                                                  \
    template <> struct Cast<f32, T> {                                                            \
        static __device__ __forceinline__ f32 of(T a) { return wide(a); }                        \
    };                                                                                           \
    template <> struct Cast<f64, T> {                                                            \
        static __device__ __forceinline__ f64 of(T a) { return (f64)wide(a); }                   \
    };                                                                                           \
    template <> struct Cast<T, f32> {                                                            \
        static __device__ __forceinline__ T of(f32 a) { return Half<T>::of(a); }                 \
    };                                                                                           \
    template <> struct Cast<T, f64> {                                                            \
        static __device__ __forceinline__ T of(f64 a) { return Half<T>::of(unrounded(a)); }      \
    };                                                                                           \
    OP T nextafter(T from, T to) {                                                               \
        const f32 a = wide(from), b = wide(to);                                                  \
        if (a != a || b != b) return Half<T>::of(a + b);                                         \
        if (a == b) return from;                                                                 \
        const u32 sign = a < b ? 0u : 0x8000u;                                                   \
        from.bits = (u16)(a == 0 ? sign | 1u                                                     \
                          : (from.bits & 0x8000u) == sign ? from.bits + 1u : from.bits - 1u);    \
        return from;                                                                             \
    }                                                                                            \
    OP u16 key(T a) {                                                                            \
        if (wide(a) != wide(a)) return 0xffffu;                                                  \
        return (u16)(a.bits & 0x8000u ? ~a.bits : a.bits | 0x8000u);                             \
    }
HALF(f16)
HALF(bf16)
#undef HALF
#undef OP

}  // namespace overshot
