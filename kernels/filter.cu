// Places for the rows that a filter keeps of a tile, in a block of 256 threads. Every thread has a row at a time. The
// kept rows of the whole tile get places from 0 on, in the order of rows. `src/expr/kept.rs` does the same on the host.

namespace overshot {

class Places {
    static const int WARPS = 8;
    // The kept rows of each warp, in the memory that the threads share.
    int* counts;
    // The kept rows so far. It is the same in all threads.
    int before;

public:
    // `shared` has room for 8 numbers.
    __device__ Places(int* shared) : counts(shared), before(0) {}

    // Returns the place of the row of this thread if it is kept. All threads of the block call it.
    __device__ int next(bool keeps) {
        const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const unsigned kept = __ballot_sync(0xffffffffu, keeps);
        if (lane == 0) counts[warp] = __popc(kept);
        __syncthreads();
        int place = before + __popc(kept & ((1u << lane) - 1));
        for (unsigned other = 0; other < WARPS; ++other) {
            if (other < warp) place += counts[other];
            before += counts[other];
        }
        // The counts are read before the next call writes them.
        __syncthreads();
        return place;
    }
};

}  // namespace overshot
