// Rows around those of a chunk. `src/expr/view.rs` and `gather.rs` do the same on the host.

namespace overshot {

// The row so many rows before this one; the first or the last row if there is none.
__device__ __forceinline__ long long edge(long long row, long long by, long long total_rows) {
    const long long moved = row - by;
    return moved < 0 ? 0 : moved >= total_rows ? total_rows - 1 : moved;
}

// The row so many rows before this one, around the ends.
__device__ __forceinline__ long long wrap(long long row, long long by, long long total_rows) {
    const long long moved = row - by;
    if (moved >= 0 && moved < total_rows) return moved;
    const long long rest = moved % total_rows;
    return rest < 0 ? rest + total_rows : rest;
}

// Where an input has a row: in the chunk and its halo, whose first row is `first`, or among `2 * half` rows at both
// ends of the job.
template <class T>
__device__ __forceinline__ const T* row_of(const T* column, const T* ends, long long row, long long first_row,
                                           long long first, long long last, long long half, long long total_rows,
                                           long long width) {
    if (row >= first && row <= last) return column + (row - first_row) * width;
    return ends + (row < half ? row : row + 2 * half - total_rows) * width;
}

}  // namespace overshot
