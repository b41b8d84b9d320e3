// Reduces one tile of rows in a block of 256 threads. Every thread accumulates its rows (lane, lane + 256, …) in
// order, then the threads are combined in halves. With rows of several elements, a turn of the block covers whole rows,
// or 256 columns of one. `src/expr/reduce.rs` and `within.rs` give the same bits on the host. Compile with
// --fmad=false.

namespace overshot {

struct Words {
    typedef long long i64;
    typedef unsigned long long u64;

    static __device__ u64 of(u64 value) { return value; }
    static __device__ u64 of(i64 value) { return (u64)value; }
    // Every NaN is replaced by the canonical NaN.
    static __device__ u64 of(double value) {
        return value == value ? (u64)__double_as_longlong(value) : 0x7ff8000000000000ull;
    }
};

// The identities: the bounds of all values, and the neutral element of addition.
template <class T> struct Limits;
template <> struct Limits<long long> {
    static __device__ long long least() { return (long long)0x8000000000000000ull; }
    static __device__ long long greatest() { return 0x7fffffffffffffffll; }
    static __device__ long long nothing() { return 0; }
    static __device__ long long sum(long long a, long long b) {
        return (long long)((unsigned long long)a + (unsigned long long)b);
    }
    static __device__ long long product(long long a, long long b) {
        return (long long)((unsigned long long)a * (unsigned long long)b);
    }
};
template <> struct Limits<unsigned long long> {
    static __device__ unsigned long long least() { return 0; }
    static __device__ unsigned long long greatest() { return ~0ull; }
    static __device__ unsigned long long nothing() { return 0; }
    static __device__ unsigned long long sum(unsigned long long a, unsigned long long b) { return a + b; }
    static __device__ unsigned long long product(unsigned long long a, unsigned long long b) { return a * b; }
};
template <> struct Limits<double> {
    static __device__ double least() { return -__longlong_as_double(0x7ff0000000000000ll); }
    static __device__ double greatest() { return __longlong_as_double(0x7ff0000000000000ll); }
    static __device__ double nothing() { return -0.0; }
    static __device__ double sum(double a, double b) { return a + b; }
    static __device__ double product(double a, double b) { return a * b; }
};

template <class T> struct Sum {
    static const int WORDS = 1;
    T value;
    __device__ void clear() { value = Limits<T>::nothing(); }
    __device__ void push(T row_value, long long) { value = Limits<T>::sum(value, row_value); }
    __device__ void merge(const Sum& right) { value = Limits<T>::sum(value, right.value); }
    __device__ void write(unsigned long long* words) const { words[0] = Words::of(value); }
};

template <class T> struct Product {
    static const int WORDS = 1;
    T value;
    __device__ void clear() { value = 1; }
    __device__ void push(T row_value, long long) { value = Limits<T>::product(value, row_value); }
    __device__ void merge(const Product& right) { value = Limits<T>::product(value, right.value); }
    __device__ void write(unsigned long long* words) const { words[0] = Words::of(value); }
};

template <class T> struct Min {
    static const int WORDS = 1;
    T value;
    __device__ void clear() { value = Limits<T>::greatest(); }
    __device__ void push(T row_value, long long) { value = value <= row_value || value != value ? value : row_value; }
    __device__ void merge(const Min& right) { push(right.value, 0); }
    __device__ void write(unsigned long long* words) const { words[0] = Words::of(value); }
};

template <class T> struct Max {
    static const int WORDS = 1;
    T value;
    __device__ void clear() { value = Limits<T>::least(); }
    __device__ void push(T row_value, long long) { value = value >= row_value || value != value ? value : row_value; }
    __device__ void merge(const Max& right) { push(right.value, 0); }
    __device__ void write(unsigned long long* words) const { words[0] = Words::of(value); }
};

// A value and its row. NaN precedes all other values; of equal values, the one in the earlier row is kept.
template <class T, bool IS_MIN> struct Arg {
    static const int WORDS = 2;
    T value;
    unsigned long long row;
    __device__ void clear() {
        value = IS_MIN ? Limits<T>::greatest() : Limits<T>::least();
        row = ~0ull;
    }
    __device__ void push(T new_value, unsigned long long new_row) {
        const bool is_nan = value != value, new_is_nan = new_value != new_value;
        const bool precedes = IS_MIN ? new_value < value : new_value > value;
        const bool is_better = precedes || (new_is_nan && !is_nan);
        const bool is_equal = value == new_value || (new_is_nan && is_nan);
        if (is_better || (is_equal && new_row < row)) {
            value = new_value;
            row = new_row;
        }
    }
    __device__ void merge(const Arg& right) { push(right.value, right.row); }
    __device__ void write(unsigned long long* words) const {
        words[0] = Words::of(value);
        words[1] = row;
    }
};
template <class T> struct ArgMin : Arg<T, true> {};
template <class T> struct ArgMax : Arg<T, false> {};

// Count, mean and squared differences from the mean, combined with Chan's method.
template <class T> struct Moments {
    static const int WORDS = 3;
    T count, mean, squares;
    __device__ void clear() { count = mean = squares = 0; }
    __device__ void join(T new_count, T new_mean, T new_squares) {
        const T total = count + new_count;
        if (count == 0) {
            mean = new_mean;
            squares = new_squares;
        } else if (new_count != 0) {
            const T delta = new_mean - mean;
            const T share = new_count / total;
            mean = mean + delta * share;
            squares = squares + new_squares + delta * delta * (count * share);
        }
        count = total;
    }
    __device__ void push(T row_value, long long) { join(1, row_value, 0); }
    __device__ void merge(const Moments& right) { join(right.count, right.mean, right.squares); }
    __device__ void write(unsigned long long* words) const {
        words[0] = Words::of(count);
        words[1] = Words::of(mean);
        words[2] = Words::of(squares);
    }
};

// Combines the states of all threads and writes the state of the tile. The reductions of a kernel use `shared` one
// after the other; it has room for 256 states of the largest reduction.
template <class State>
__device__ void reduce(const State& own, unsigned long long* shared, unsigned long long* words) {
    State* states = (State*)shared;
    const int lane = threadIdx.x;
    states[lane] = own;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (lane < half) states[lane].merge(states[lane + half]);
        __syncthreads();
    }
    if (lane == 0) states[0].write(words);
    __syncthreads();
}

// Combines the lanes of each row of WIDTH elements, and returns the state of the row to all of them. A row has as many
// lanes as elements, but at most 256, and the threads of a block are the lanes of one row, or of several in turn. The
// threads behind the last whole row get a state of no use.
template <int WIDTH, class State>
__device__ State reduce_row(const State& own, unsigned long long* shared) {
    State* states = (State*)shared;
    const int lanes = WIDTH < 256 ? WIDTH : 256;
    const int thread = threadIdx.x, lane = thread % lanes;
    states[thread] = own;
    __syncthreads();
    int half = 1;
    while (2 * half < lanes) half *= 2;
    for (; half > 0; half /= 2) {
        if (lane < half && lane + half < lanes && thread + half < 256) states[thread].merge(states[thread + half]);
        __syncthreads();
    }
    const State row = states[thread - lane];
    __syncthreads();
    return row;
}

// Combines the states of the threads with the same column, in rows of WIDTH columns of which a block covers ROWS at
// once, and writes the states of the columns from `first` on. Each word has all columns.
template <int WIDTH, int ROWS, class State>
__device__ void reduce_columns(
    const State& own, unsigned long long* shared, unsigned long long* words, long long first)
{
    State* states = (State*)shared;
    const int lane = threadIdx.x;
    states[lane] = own;
    __syncthreads();
    for (int half = ROWS / 2; half > 0; half /= 2) {
        if (lane < half * WIDTH) states[lane].merge(states[lane + half * WIDTH]);
        __syncthreads();
    }
    const long long column = first + lane;
    if (column < WIDTH) {
        unsigned long long state[State::WORDS];
        states[lane].write(state);
        for (int word = 0; word < State::WORDS; ++word) words[(long long)word * WIDTH + column] = state[word];
    }
    __syncthreads();
}

}  // namespace overshot
