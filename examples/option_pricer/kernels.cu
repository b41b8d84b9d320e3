// Monte Carlo paths of a share price: a geometric Brownian motion in 200 steps.
//
// The generator is Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011).
// Each number is a function of the seed, the path and the step, so the paths do not depend on the chunks.

typedef unsigned int u32;
typedef unsigned long long u64;

__device__ uint4 philox(uint4 counter, u32 key0, u32 key1)
{
    for (int round = 0; round < 10; ++round) {
        u64 a = (u64)0xD2511F53u * counter.x, b = (u64)0xCD9E8D57u * counter.z;
        counter = make_uint4((u32)(b >> 32) ^ counter.y ^ key0, (u32)b, (u32)(a >> 32) ^ counter.w ^ key1, (u32)a);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return counter;
}

// Makes two normal numbers from two uniform ones (Box and Muller, 1958), with the fast functions of the hardware. Their
// errors of a few millionths are far below the statistical error of any number of paths.
__device__ float2 normal(u32 a, u32 b)
{
    float sine, cosine;
    __sincosf((b >> 8) * (6.2831853f * 0x1p-24f) - 3.1415927f, &sine, &cosine);
    // Near 1 the logarithm may come out above 0.
    float square = fmaxf(-2.0f * __logf(((a >> 9) + 0.5f) * 0x1p-23f), 1e-12f), radius = square * rsqrtf(square);
    return make_float2(radius * cosine, radius * sine);
}

// Normal numbers for four steps of a path.
__device__ float4 normals(u64 path, u32 step, u64 seed)
{
    uint4 bits = philox(make_uint4((u32)path, (u32)(path >> 32), step / 4, 0), (u32)seed, (u32)(seed >> 32));
    float2 a = normal(bits.x, bits.y), b = normal(bits.z, bits.w);
    return make_float4(a.x, a.y, b.x, b.y);
}

// A row is a path: the price after each step. `start` is the logarithm of the first one.
extern "C" __global__ void paths(long long first_row, long long rows, double start, double drift, double volatility,
                                 unsigned long long seed,
                                 double (*prices)[200])
{
    long long row = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (row >= rows) return;
    double price = start;
    for (u32 step = 0; step < 200; step += 4) {
        float4 z = normals(first_row + row, step, seed);
        float each[4] = {z.x, z.y, z.z, z.w};
        for (int k = 0; k < 4; ++k) prices[row][step + k] = exp(price += drift + volatility * each[k]);
    }
}

// A row is a batch of 256 of the `count` paths: the sum of their payoffs, and of the squares. Nothing else leaves the
// device.
extern "C" __global__ void payoffs(long long first_row, long long rows, double start, double drift, double volatility,
                                 unsigned long long seed,
                                   double strike, unsigned long long count, double (*sums)[2])
{
    __shared__ double sum[256], squares[256];
    u64 path = (first_row + blockIdx.x) * 256 + threadIdx.x;
    float walk = 0;
    for (u32 step = 0; step < 200; step += 4) {
        float4 z = normals(path, step, seed);
        walk += (z.x + z.y) + (z.z + z.w);
    }
    double payoff = path < count ? fmax(exp(start + 200 * drift + volatility * walk) - strike, 0.0) : 0;
    sum[threadIdx.x] = payoff;
    squares[threadIdx.x] = payoff * payoff;
    for (u32 half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            sum[threadIdx.x] += sum[threadIdx.x + half];
            squares[threadIdx.x] += squares[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        sums[blockIdx.x][0] = sum[0];
        sums[blockIdx.x][1] = squares[0];
    }
}
