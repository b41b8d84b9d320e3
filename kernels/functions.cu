// The primitives of the functions without an exact result. src/expr/functions appends the definitions of the
// functions, which are also valid Rust. Every operation is exact or rounded once. Compile with --fmad=false.

namespace overshot {

#define OP __device__ __forceinline__

namespace functions {

typedef unsigned long long u64;
typedef double f64;

struct Pair {
    f64 hi, lo;
};
struct Turn {
    f64 hi, lo;
    u64 count;
};

OP Pair pair(f64 hi, f64 lo) { return Pair{hi, lo}; }
OP Turn turn(f64 hi, f64 lo, u64 count) { return Turn{hi, lo, count}; }
OP f64 fma(f64 a, f64 b, f64 c) { return __fma_rn(a, b, c); }
OP f64 root(f64 a) { return ::sqrt(a); }
// Assembly on the device, which the compiler does not analyse: NVRTC 13.0 otherwise evaluates exp as 0, when it sees
// how the bits of a float are used after the float was bounded.
#ifdef __CUDA_ARCH__
OP u64 bits(f64 a) {
    u64 to;
    asm("mov.b64 %0, %1;" : "=l"(to) : "d"(a));
    return to;
}
OP f64 float_of(u64 a) {
    f64 to;
    asm("mov.b64 %0, %1;" : "=d"(to) : "l"(a));
    return to;
}
#else
OP u64 bits(f64 a) { return (u64)__double_as_longlong(a); }
OP f64 float_of(u64 a) { return __longlong_as_double((long long)a); }
#endif
OP f64 size(f64 a) { return float_of(bits(a) & 0x7fffffffffffffffull); }
OP f64 signed_as(f64 a, f64 b) {
    return float_of((bits(a) & 0x7fffffffffffffffull) | (bits(b) & 0x8000000000000000ull));
}
OP f64 select(bool condition, f64 then, f64 otherwise) { return condition ? then : otherwise; }
OP f64 infinity() { return float_of(0x7ff0000000000000ull); }
OP f64 nan() { return float_of(0x7ff8000000000000ull); }
OP bool is_nan(f64 a) { return a != a; }

// Integers, modulo 2^64.
OP u64 plus(u64 a, u64 b) { return a + b; }
OP u64 minus(u64 a, u64 b) { return a - b; }
OP u64 low(u64 a, u64 b) { return a * b; }
OP u64 high(u64 a, u64 b) { return __umul64hi(a, b); }
OP u64 one_if(bool condition) { return condition ? 1 : 0; }

static __device__ const u64 TWO_OVER_PI_BITS[] = {0}; // TWO_OVER_PI_BITS
OP u64 word(u64 index) { return TWO_OVER_PI_BITS[index]; }

}  // namespace functions
}  // namespace overshot
