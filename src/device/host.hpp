// A subset of CUDA that runs generated kernels on the host: one block at a time, whose threads are contexts on one
// thread of the host and take turns. The test appends a kernel to this file, and then `columns` and `launch`.
#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __shared__ static
#define __restrict__

struct Index {
    unsigned x;
};
static Index threadIdx, blockIdx;

static const unsigned THREADS = 256;
static ucontext_t contexts[THREADS], host;
static bool has_ended[THREADS];
// At a barrier a thread gives way to the next one of its group, which is the block or its warp. So it goes on when all
// others of the group have come to the barrier.
static void barrier(unsigned group) {
    const unsigned own = threadIdx.x;
    threadIdx.x = own / group * group + (own + 1) % group;
    if (has_ended[threadIdx.x]) {
        std::fprintf(stderr, "thread %u waits for thread %u, which has ended\n", own, threadIdx.x);
        std::abort();
    }
    swapcontext(&contexts[own], &contexts[threadIdx.x]);
}
#define __syncthreads() barrier(THREADS)
#define __syncwarp() barrier(32)

static inline int atomicCAS(int* at, int expected, int value) {
    __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}
static inline int atomicAdd(int* at, int value) { return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST); }
static inline unsigned long long atomicAdd(unsigned long long* at, unsigned long long value) {
    return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}

// What the threads of a warp say to each other.
static unsigned long long words[THREADS];
template <class T> static inline void say(T value) {
    std::memcpy(&words[threadIdx.x], &value, sizeof value);
    __syncwarp();
}
// Returns the word of a thread of the block.
template <class T> static inline T said(unsigned thread) {
    T value;
    std::memcpy(&value, &words[thread], sizeof value);
    return value;
}
static inline unsigned __ballot_sync(unsigned, bool vote) {
    say(vote);
    unsigned ballot = 0;
    for (unsigned lane = 0; lane < 32; ++lane) ballot |= (unsigned)said<bool>(threadIdx.x / 32 * 32 + lane) << lane;
    __syncwarp();
    return ballot;
}
static inline bool __all_sync(unsigned mask, bool vote) { return __ballot_sync(mask, vote) == 0xffffffffu; }
template <class T> static inline T __shfl_sync(unsigned, T value, int lane) {
    say(value);
    const T other = said<T>(threadIdx.x / 32 * 32 + lane);
    __syncwarp();
    return other;
}
template <class T> static inline T __shfl_up_sync(unsigned, T value, int distance) {
    say(value);
    const bool has_other = threadIdx.x % 32 >= (unsigned)distance;
    const T other = said<T>(threadIdx.x - (has_other ? distance : 0));
    __syncwarp();
    return other;
}
static inline int __popc(unsigned value) { return __builtin_popcount(value); }

template <class To, class From> static To bits(From from) {
    To to;
    static_assert(sizeof to == sizeof from);
    std::memcpy(&to, &from, sizeof to);
    return to;
}
static inline float __uint_as_float(unsigned value) { return bits<float>(value); }
static inline unsigned __float_as_uint(float value) { return bits<unsigned>(value); }
static inline double __longlong_as_double(long long value) { return bits<double>(value); }
static inline long long __double_as_longlong(double value) { return bits<long long>(value); }
static inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

// A column, convertible to any pointer that the kernel takes.
struct Column {
    std::vector<unsigned long long> memory;
    // Bytes before the first row.
    size_t front;
    template <class T> operator T*() { return (T*)((char*)memory.data() + front); }
};

// Bytes of the inputs, and of those before their first row; bytes per row of the outputs, of the partials of the chunk
// and of each tile, and of the rows that are the same for all rows; the rows of a tile, and its blocks.
struct Columns {
    std::vector<size_t> inputs, fronts, outputs;
    size_t of_chunk, partials;
    std::vector<size_t> resident;
    long long tile_rows, blocks;
};
static Columns columns();
static void launch(long long first_row, long long rows, std::vector<Column>& at);

static long long range[2];
static std::vector<Column> at;
static void run_thread() {
    launch(range[0], range[1], at);
    const unsigned own = threadIdx.x++;
    has_ended[own] = true;
    setcontext(own + 1 < THREADS ? &contexts[own + 1] : &host);
}
static void run_block() {
    const size_t STACK = 128 << 10;
    static char* const stacks = (char*)std::malloc(THREADS * STACK);
    for (unsigned lane = 0; lane < THREADS; ++lane) {
        getcontext(&contexts[lane]);
        contexts[lane].uc_stack.ss_sp = stacks + lane * STACK;
        contexts[lane].uc_stack.ss_size = STACK;
        makecontext(&contexts[lane], run_thread, 0);
        has_ended[lane] = false;
    }
    threadIdx.x = 0;
    swapcontext(&host, &contexts[0]);
}

int main() {
    if (std::fread(range, 8, 2, stdin) != 2) return 1;
    std::vector<size_t> sizes;
    const Columns layout = columns();
    const long long rows = range[1], tiles = (rows + layout.tile_rows - 1) / layout.tile_rows;
    for (size_t size : layout.inputs) sizes.push_back(size);
    for (size_t size : layout.outputs) sizes.push_back(size * rows);
    sizes.push_back(layout.of_chunk + layout.partials * tiles);
    for (size_t size : layout.resident) sizes.push_back(size);
    for (size_t size : sizes) at.push_back({std::vector<unsigned long long>(size / 8 + 1), 0});
    for (size_t k = 0; k < layout.fronts.size(); ++k) at[k].front = layout.fronts[k];
    const size_t written = layout.inputs.size(), resident = written + layout.outputs.size() + 1;
    for (size_t k = 0; k < at.size(); ++k) {
        if (k >= written && k < resident) continue;
        if (std::fread(at[k].memory.data(), 1, sizes[k], stdin) != sizes[k]) return 1;
    }
    for (long long block = 0; block < tiles * layout.blocks; ++block) {
        blockIdx.x = (unsigned)block;
        run_block();
    }
    for (size_t k = written; k < resident; ++k) std::fwrite(at[k].memory.data(), 1, sizes[k], stdout);
    return 0;
}
