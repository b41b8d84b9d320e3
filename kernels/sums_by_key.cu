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
    // Rows of a warp that are added together: their elements are loaded before the first one is added, because each
    // load takes as long as a hundred additions.
    const int GROUP = 16;
    // The keys of the next ROWS rows, and which of these rows are of the class of each warp.
    __shared__ int row_keys[ROWS];
    __shared__ unsigned short lists[8][ROWS + GROUP];
    const int lane = threadIdx.x % 32, warp = blockIdx.x * 8 + threadIdx.x / 32;
    const int column = warp % STRIPS * 32 + lane;
    // Threads behind the last column take part with the first one, whose sums they leave alone.
    const bool has_column = column < WIDTH;
    T* const column_sums = sums + (has_column ? column : 0);
    // Warps behind the last class have no rows.
    const int own_class = warp / STRIPS;
    unsigned short* const list = lists[threadIdx.x / 32];
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
        // The last group is filled up with a row that is loaded but not added.
        if (lane < GROUP) list[found + lane] = 0;
        __syncwarp();
        const T* const column_elements = elements + first * WIDTH + (has_column ? column : 0);
        // The key whose sum is in `sum` and not yet in memory, or -1.
        int open_key = -1;
        T sum = 0;
        for (int start = 0; start < found; start += GROUP) {
            T values[GROUP];
#pragma unroll
            for (int k = 0; k < GROUP; ++k) values[k] = column_elements[(long long)list[start + k] * WIDTH];
            const int key = row_keys[list[start + lane % GROUP]];
            const int first_key = __shfl_sync(0xffffffffu, key, 0);
            const bool is_one_key = start + GROUP <= found && __all_sync(0xffffffffu, key == first_key);
            if (open_key >= 0 && !(is_one_key && open_key == first_key)) {
                if (has_column) column_sums[(long long)open_key * WIDTH] = canonical_sum(sum);
                open_key = -1;
            }
            if (is_one_key) {
                // The sum stays in a register until another key comes. This takes a quarter of the time of the
                // comparisons below.
                if (open_key < 0) sum = column_sums[(long long)first_key * WIDTH];
                open_key = first_key;
#pragma unroll
                for (int k = 0; k < GROUP; ++k) sum = sum + values[k];
                continue;
            }
            int group_keys[GROUP];
            T group_sums[GROUP];
#pragma unroll
            for (int k = 0; k < GROUP; ++k) {
                group_keys[k] = __shfl_sync(0xffffffffu, key, k);
                if (start + k < found) group_sums[k] = column_sums[(long long)group_keys[k] * WIDTH];
            }
#pragma unroll
            for (int k = 0; k < GROUP; ++k) {
                if (start + k >= found) continue;
                // An earlier row of the group may have the same key: the last such row has its sum.
#pragma unroll
                for (int earlier = 0; earlier < k; ++earlier)
                    if (group_keys[earlier] == group_keys[k]) group_sums[k] = group_sums[earlier];
                group_sums[k] = group_sums[k] + values[k];
                if (has_column) column_sums[(long long)group_keys[k] * WIDTH] = canonical_sum(group_sums[k]);
            }
        }
        if (open_key >= 0 && has_column) column_sums[(long long)open_key * WIDTH] = canonical_sum(sum);
    }
}

}  // namespace overshot
