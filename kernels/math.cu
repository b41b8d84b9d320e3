// The operations of expressions on single values. `src/expr/scalar.rs` and `apply.rs` are the counterparts for the
// host and give the same bits. Functions without an exact result are in functions.cu. Compile with --fmad=false.

namespace overshot {

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;

#define OP __device__ __forceinline__

// Arithmetic is done in an unsigned type, which wraps: signed overflow is undefined in C++, and narrow types are
// promoted to int.
template <class T> struct Integer;
template <> struct Integer<bool> { typedef u32 Wide; static const bool is_signed = false; static const int bits = 8; };
template <> struct Integer<i8> { typedef u32 Wide; static const bool is_signed = true; static const int bits = 8; };
template <> struct Integer<i16> { typedef u32 Wide; static const bool is_signed = true; static const int bits = 16; };
template <> struct Integer<i32> { typedef u32 Wide; static const bool is_signed = true; static const int bits = 32; };
template <> struct Integer<i64> { typedef u64 Wide; static const bool is_signed = true; static const int bits = 64; };
template <> struct Integer<u8> { typedef u32 Wide; static const bool is_signed = false; static const int bits = 8; };
template <> struct Integer<u16> { typedef u32 Wide; static const bool is_signed = false; static const int bits = 16; };
template <> struct Integer<u32> { typedef u32 Wide; static const bool is_signed = false; static const int bits = 32; };
template <> struct Integer<u64> { typedef u64 Wide; static const bool is_signed = false; static const int bits = 64; };

template <class T> OP bool is_negative(T a) {
    if constexpr (Integer<T>::is_signed) return a < 0;
    else return false;
}

OP f32 f32_bits(u32 bits) { return __uint_as_float(bits); }
OP f64 f64_bits(u64 bits) { return __longlong_as_double((i64)bits); }

// The bits of NaN results differ between processors, so every NaN is replaced by the canonical NaN.
template <class T> OP T stored(T a) { return a; }
OP f32 stored(f32 a) { return a == a ? a : f32_bits(0x7fc00000u); }
OP f64 stored(f64 a) { return a == a ? a : f64_bits(0x7ff8000000000000ull); }

// ---- casts

template <class To, class From> struct Cast {
    static __device__ __forceinline__ To of(From a) { return (To)a; }
};
template <class From> struct Cast<bool, From> {
    static __device__ __forceinline__ bool of(From a) { return a != (From)0; }
};
// Floats outside the range of an integer type become the nearest integer of that type, and NaN becomes 0.
template <class To, class From> OP To saturate(From a) {
    const From limit = (From)((u64)1 << (Integer<To>::bits - 1)) * (Integer<To>::is_signed ? (From)1 : (From)2);
    const u64 ones = ~(u64)0 >> (64 - Integer<To>::bits);
    if (a != a) return 0;
    if (a >= limit) return (To)(Integer<To>::is_signed ? ones >> 1 : ones);
    if constexpr (Integer<To>::is_signed) {
        if (a <= -limit) return (To)((u64)1 << (Integer<To>::bits - 1));
    } else {
        if (a <= (From)0) return 0;
    }
    return (To)a;
}
#define SATURATES(To, From)                                                                      \
    template <> struct Cast<To, From> {                                                          \
        static __device__ __forceinline__ To of(From a) { return saturate<To, From>(a); }        \
    };
#define SATURATES_FROM(From)                                                                     \
    SATURATES(i8, From) SATURATES(i16, From) SATURATES(i32, From) SATURATES(i64, From)           \
    SATURATES(u8, From) SATURATES(u16, From) SATURATES(u32, From) SATURATES(u64, From)
SATURATES_FROM(f32)
SATURATES_FROM(f64)
#undef SATURATES_FROM
#undef SATURATES
template <class To, class From> OP To cast(From a) { return Cast<To, From>::of(a); }

// ---- operators

#define WIDE(T, a) ((typename Integer<T>::Wide)(a))
template <class T> OP T add(T a, T b) { return (T)(WIDE(T, a) + WIDE(T, b)); }
template <class T> OP T sub(T a, T b) { return (T)(WIDE(T, a) - WIDE(T, b)); }
template <class T> OP T mul(T a, T b) { return (T)(WIDE(T, a) * WIDE(T, b)); }
template <class T> OP T neg(T a) { return (T)(0 - WIDE(T, a)); }
template <class T> OP T abs(T a) { return is_negative(a) ? neg(a) : a; }
template <class T> OP T not_(T a) { return (T)~a; }
template <class T> OP T and_(T a, T b) { return (T)(a & b); }
template <class T> OP T or_(T a, T b) { return (T)(a | b); }
template <class T> OP T xor_(T a, T b) { return (T)(a ^ b); }
OP bool not_(bool a) { return !a; }

template <class T> OP T floor_div(T a, T b) {
    if (b == 0) return 0;
    if constexpr (Integer<T>::is_signed) {
        if (b == -1) return neg(a);
        const T quotient = (T)(a / b);
        return (a < 0) != (b < 0) && (T)(quotient * b) != a ? (T)(quotient - 1) : quotient;
    } else {
        return (T)(a / b);
    }
}
template <class T> OP T rem(T a, T b) {
    if (b == 0) return 0;
    if constexpr (Integer<T>::is_signed) {
        if (b == -1) return 0;
        const T rest = (T)(a % b);
        return rest != 0 && (rest < 0) != (b < 0) ? (T)(rest + b) : rest;
    } else {
        return (T)(a % b);
    }
}
template <class T> OP T fmod(T a, T b) {
    if (b == 0) return 0;
    if constexpr (Integer<T>::is_signed) {
        if (b == -1) return 0;
    }
    return (T)(a % b);
}
template <class T> OP T sign(T a) { return (T)((a > 0) - is_negative(a)); }
template <class T> OP T power(T a, T b) {
    if (is_negative(b)) {
        const bool is_odd = (b & 1) != 0;
        return a == (T)1 || (a == (T)-1 && !is_odd) ? (T)1 : a == (T)-1 ? a : (T)0;
    }
    T result = 1;
    while (b != 0) {
        if (b & 1) result = mul(result, a);
        a = mul(a, a);
        b = (T)(b >> 1);
    }
    return result;
}
template <class T> OP T shl(T a, T b) {
    return !is_negative(b) && b < (T)Integer<T>::bits ? (T)(WIDE(T, a) << b) : (T)0;
}
template <class T> OP T shr(T a, T b) {
    if (!is_negative(b) && b < (T)Integer<T>::bits) return (T)(a >> b);
    return is_negative(a) ? (T)-1 : (T)0;
}
#undef WIDE

#define FLOAT_OPERATORS(T, FMOD, FLOOR, COPYSIGN)                                                \
    OP T add(T a, T b) { return a + b; }                                                         \
    OP T sub(T a, T b) { return a - b; }                                                         \
    OP T mul(T a, T b) { return a * b; }                                                         \
    OP T div(T a, T b) { return a / b; }                                                         \
    OP T neg(T a) { return -a; }                                                                 \
    OP T floor_div(T a, T b) {                                                                   \
        if (b == 0) return a / b;                                                                \
        const T rest = FMOD(a, b);                                                               \
        T quotient = (a - rest) / b;                                                             \
        if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;                                   \
        if (quotient == 0) return COPYSIGN((T)0, a / b);                                         \
        const T floor = FLOOR(quotient);                                                         \
        return quotient - floor > (T)0.5 ? floor + 1 : floor;                                    \
    }                                                                                            \
    OP T rem(T a, T b) {                                                                         \
        const T rest = FMOD(a, b);                                                               \
        if (b == 0) return rest;                                                                 \
        if (rest == 0) return COPYSIGN((T)0, b);                                                 \
        return (b < 0) != (rest < 0) ? rest + b : rest;                                          \
    }
FLOAT_OPERATORS(f32, ::fmodf, ::floorf, ::copysignf)
FLOAT_OPERATORS(f64, ::fmod, ::floor, ::copysign)
#undef FLOAT_OPERATORS

template <class T> OP bool eq(T a, T b) { return a == b; }
template <class T> OP bool ne(T a, T b) { return a != b; }
template <class T> OP bool lt(T a, T b) { return a < b; }
template <class T> OP bool le(T a, T b) { return a <= b; }
template <class T> OP bool gt(T a, T b) { return a > b; }
template <class T> OP bool ge(T a, T b) { return a >= b; }

// NaN if either is NaN; the first if they compare equal.
template <class T> OP T min(T a, T b) { return a <= b || a != a ? a : b; }
template <class T> OP T max(T a, T b) { return a >= b || a != a ? a : b; }

// ---- functions of floats with an exact result

OP f32 abs(f32 a) { return ::fabsf(a); }
OP f64 abs(f64 a) { return ::fabs(a); }
OP f32 sqrt(f32 a) { return ::sqrtf(a); }
OP f64 sqrt(f64 a) { return ::sqrt(a); }
OP f32 floor(f32 a) { return ::floorf(a); }
OP f64 floor(f64 a) { return ::floor(a); }
OP f32 ceil(f32 a) { return ::ceilf(a); }
OP f64 ceil(f64 a) { return ::ceil(a); }
OP f32 trunc(f32 a) { return ::truncf(a); }
OP f64 trunc(f64 a) { return ::trunc(a); }
OP f32 round(f32 a) { return ::rintf(a); }
OP f64 round(f64 a) { return ::rint(a); }
template <class T> OP bool isnan(T a) { return a != a; }
template <class T> OP bool isinf(T a) { return a == a && a - a != a - a; }
template <class T> OP bool isfinite(T a) { return a - a == a - a; }

// The sign of NaN differs between processors, so that of `stored` is used. The smallest positive float has the bits 1,
// and floats of the same sign are next to each other if their bits are.
#define SIGNS(T, FMOD, COPYSIGN, TO_BITS, OF_BITS)                                               \
    OP T fmod(T a, T b) { return FMOD(a, b); }                                                   \
    OP T sign(T a) { return a > 0 ? (T)1 : a < 0 ? (T)-1 : a + (T)0; }                           \
    OP bool signbit(T a) { return COPYSIGN((T)1, stored(a)) < 0; }                               \
    OP T copysign(T a, T b) { return COPYSIGN(a, stored(b)); }                                   \
    OP T nextafter(T a, T b) {                                                                   \
        if (a != a || b != b) return a + b;                                                      \
        if (a == b) return b;                                                                    \
        if (a == 0) return COPYSIGN(OF_BITS(1), b);                                              \
        return OF_BITS((a < b) == (a > 0) ? TO_BITS(a) + 1 : TO_BITS(a) - 1);                    \
    }
SIGNS(f32, ::fmodf, ::copysignf, __float_as_uint, f32_bits)
SIGNS(f64, ::fmod, ::copysign, __double_as_longlong, f64_bits)
#undef SIGNS

// An integer with the order of the floats: that of NaN is the greatest. Negative floats are in the opposite order of
// their bits.
OP u32 key(f32 a) {
    const u32 bits = __float_as_uint(a), top = 1u << 31;
    return a != a ? ~0u : bits < top ? bits | top : ~bits;
}
OP u64 key(f64 a) {
    const u64 bits = (u64)__double_as_longlong(a), top = 1ull << 63;
    return a != a ? ~0ull : bits < top ? bits | top : ~bits;
}

#undef OP

}  // namespace overshot
