// overshot copy v1: out = in, on 64-bit words
//
// Measures the bandwidth of device memory, and launches. Each thread issues all its loads before its stores, so that
// only memory limits it.
typedef unsigned long long word;

extern "C" __global__ void __launch_bounds__(256) overshot_copy(long long, long long rows, const word *in, word *out)
{
    const long long start = blockIdx.x * 4096ll + threadIdx.x;
    word words[16];
#pragma unroll
    for (int turn = 0; turn < 16; ++turn)
        if (start + turn * 256 < rows) words[turn] = in[start + turn * 256];
#pragma unroll
    for (int turn = 0; turn < 16; ++turn)
        if (start + turn * 256 < rows) out[start + turn * 256] = words[turn];
}
