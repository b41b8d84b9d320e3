// Running sums of a tile of rows in a block of 256 threads. Every thread has a row at a time, and the block makes 16
// turns over the tile. The order of additions is fixed: in a warp, each row adds the value 1, 2, 4, 8 and 16 rows
// before; to that, the sum of the warps before, of all turns, one after the other; at last, the sum of the rows before
// the tile. `src/expr/scan.rs` gives the same bits on the host. Compile with --fmad=false.

namespace overshot {

template <class T> class RunningSum {
    static const int WARPS = 8;

    static __device__ double plus(double left, double right) { return left + right; }
    static __device__ unsigned long long plus(unsigned long long left, unsigned long long right) {
        return left + right;
    }
    static __device__ long long plus(long long left, long long right) {
        return (long long)((unsigned long long)left + (unsigned long long)right);
    }
    // -0 + x is x for every x; 0 + -0 is not.
    static __device__ double nothing(double) { return -0.0; }
    static __device__ unsigned long long nothing(unsigned long long) { return 0; }
    static __device__ long long nothing(long long) { return 0; }

    // The sum of each warp in a turn, in the memory that the threads share.
    T* totals;
    // The sum of the rows before the tile.
    T before;
    // The sum of the turns so far. It is the same in all threads.
    T turns;

public:
    // `shared` has room for 8 words.
    __device__ RunningSum(unsigned long long* shared, T before)
        : totals((T*)shared), before(before), turns(nothing(before)) {}

    // Returns the sum up to the row of this thread, which has this value. All threads of the block call it. Those
    // behind the last row of the tile may have any value.
    __device__ T next(T value) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        for (int distance = 1; distance < 32; distance *= 2) {
            const T left = __shfl_up_sync(0xffffffffu, value, distance);
            if (lane >= distance) value = plus(left, value);
        }
        if (lane == 31) totals[warp] = value;
        __syncthreads();
        T warps = turns;
        for (int other = 0; other < WARPS; ++other) {
            if (other < warp) warps = plus(warps, totals[other]);
            turns = plus(turns, totals[other]);
        }
        // The totals are read before the next call writes them.
        __syncthreads();
        return plus(before, plus(warps, value));
    }
};

}  // namespace overshot
