// Sums of rows by key: each row is added to the sum of its key. Every element of the sums has one thread, which meets
// the rows in order, so that the order of additions is fixed. `src/device/by_key.rs` gives the same bits on the host.
// Compile with --fmad=false.

namespace overshot {

// The key of a row; -1 if there is no such key.
template <int KEYS> __device__ int row_key(int key) { return key >= 0 && key < KEYS ? key : -1; }

// Every NaN is replaced by the canonical NaN, because its bits differ between processors.
__device__ inline float canonical_sum(float sum) { return sum == sum ? sum : __uint_as_float(0x7fc00000u); }
__device__ inline double canonical_sum(double sum) {
    return sum == sum ? sum : __longlong_as_double(0x7ff8000000000000ll);
}

// Adds rows of WIDTH elements to the KEYS sums. Each warp has 32 columns of the sums of a class of keys, which are
// those with the same remainder by CLASSES. Blocks have 256 threads, all of which call it.
template <class T, int KEYS, int WIDTH, int CLASSES>
__device__ void add_by_key(long long rows, const int* keys, const T* elements, T* sums) {
    const int ROWS = 2048, STRIPS = (WIDTH + 31) / 32;
    // Rows of a warp that are loaded before the first one is added, so that they do not wait for each other.
    const int DEPTH = 16;
    // The keys of the next ROWS rows, and which of these rows are of the class of each warp.
    __shared__ int row_keys[ROWS];
    __shared__ unsigned short lists[8][ROWS];
    const int lane = threadIdx.x % 32, warp = blockIdx.x * 8 + threadIdx.x / 32;
    const int column = warp % STRIPS * 32 + lane;
    // Warps behind the last class have no rows.
    const int own_class = warp / STRIPS;
    unsigned short* const list = lists[threadIdx.x / 32];
    // The sum of the last row stays in a register for as long as its key does.
    int current = -1;
    T sum = 0;
    for (long long first = 0; first < rows; first += ROWS) {
        const int count = rows - first < ROWS ? (int)(rows - first) : ROWS;
        __syncthreads();
#pragma unroll
        for (int turn = 0; turn < ROWS; turn += 256) {
            const int row = turn + threadIdx.x;
            row_keys[row] = row < count ? row_key<KEYS>(keys[first + row]) : -1;
        }
        __syncthreads();
        int found = 0;
        for (int start = 0; start < count; start += 32) {
            const int key = row_keys[start + lane];
            const bool is_own = key >= 0 && key % CLASSES == own_class;
            const unsigned ballot = __ballot_sync(0xffffffffu, is_own);
            if (is_own) list[found + __popc(ballot & ((1u << lane) - 1))] = (unsigned short)(start + lane);
            found += __popc(ballot);
        }
        __syncwarp();
        if (column >= WIDTH) continue;
        for (int start = 0; start < found; start += DEPTH) {
            T values[DEPTH];
#pragma unroll
            for (int k = 0; k < DEPTH; ++k)
                if (start + k < found) values[k] = elements[(first + list[start + k]) * WIDTH + column];
#pragma unroll
            for (int k = 0; k < DEPTH; ++k) {
                if (start + k >= found) continue;
                const int key = row_keys[list[start + k]];
                if (key != current) {
                    if (current >= 0) sums[(long long)current * WIDTH + column] = canonical_sum(sum);
                    sum = sums[(long long)key * WIDTH + column];
                    current = key;
                }
                sum += values[k];
            }
        }
    }
    if (current >= 0) sums[(long long)current * WIDTH + column] = canonical_sum(sum);
}

}  // namespace overshot
