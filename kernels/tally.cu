// Counts of elements in bins, and exact sums of their weights, in words of a chunk to which all blocks add. Integers
// are added, so their order does not matter. `src/expr/tally.rs`, `bins.rs` and `exact.rs` add the same on the host.
// Compile with --fmad=false.

namespace overshot {

// Words of a chunk, of which a block adds to those that it meets first in shared memory. So elements that are all equal
// do not wait for each other in device memory. IS_SMALL says that a block has at most 32 768 elements: sums of 16 bits
// of each fit in shared memory. Otherwise weights are added in device memory.
template <int WORDS, bool SUMS, bool IS_SMALL> class Tally {
    static const bool IS_DIRECT = WORDS <= 2048;
    unsigned long long* words;
    // The low and the high 16 bits of what is added, and the words that they are added to.
    int *low, *high, *owners;

    // The number of the word that a slot is for; -1 if it is for none.
    __device__ int owner(int slot) const { return IS_DIRECT ? slot : owners[slot]; }

public:
    static const int SLOTS = IS_DIRECT ? WORDS : 2048;
    // The size of the shared memory, in numbers.
    static const int SHARED = SLOTS * (1 + SUMS + !IS_DIRECT);

    __device__ Tally(unsigned long long* words, int* shared)
        : words(words), low(shared), high(shared + SLOTS), owners(shared + SLOTS * (1 + SUMS))
    {
        for (int slot = threadIdx.x; slot < SLOTS; slot += 256) {
            low[slot] = 0;
            if (SUMS) high[slot] = 0;
            if (!IS_DIRECT) owners[slot] = -1;
        }
        __syncthreads();
    }

    __device__ void add_directly(int word, unsigned digit, bool is_negative) {
        const unsigned long long value = digit;
        atomicAdd(&words[word], is_negative ? 0 - value : value);
    }

    // Adds a digit, or subtracts it, in the word with this number.
    __device__ void add(int word, unsigned digit, bool is_negative) {
        if (SUMS && !IS_SMALL) {
            add_directly(word, digit, is_negative);
            return;
        }
        int slot = word;
        if (!IS_DIRECT) {
            slot = word % SLOTS;
            const int owner = atomicCAS(&owners[slot], -1, word);
            if (owner != -1 && owner != word) {
                add_directly(word, digit, is_negative);
                return;
            }
        }
        const int part = (int)(digit & 0xffffu), rest = (int)(digit >> 16);
        if (part != 0) atomicAdd(&low[slot], is_negative ? -part : part);
        if (SUMS && rest != 0) atomicAdd(&high[slot], is_negative ? -rest : rest);
    }

    __device__ void count(int word) { add(word, 1, false); }

    // Adds a float to a sum, whose DIGITS digits are multiples of 2^-SCALE, and which are followed by the numbers of
    // NaNs, infinities and negative infinities. The lowest DROPPED bits of a significand are 0.
    template <int DIGITS, int SCALE, int DROPPED> __device__ void add_float(int word, double value) {
        const unsigned long long bits = (unsigned long long)__double_as_longlong(value);
        const int exponent = (int)(bits >> 52 & 0x7ff);
        const unsigned long long fraction = bits & 0xfffffffffffffull;
        const bool is_negative = bits >> 63 != 0;
        if (exponent == 0x7ff) {
            count(word + DIGITS + (fraction != 0 ? 0 : 1 + is_negative));
            return;
        }
        const unsigned long long significand = (exponent == 0 ? fraction : fraction | 1ull << 52) >> DROPPED;
        const int from_zero = (exponent == 0 ? 1 : exponent) - 1075 + DROPPED + SCALE;
        // Only 0 has a place below the first one.
        const int place = from_zero < 0 ? 0 : from_zero;
        const int shift = place % 32;
        const unsigned long long low_bits = significand << shift;
        const unsigned top = shift == 0 ? 0 : (unsigned)(significand >> (64 - shift));
        const int first = word + place / 32;
        if ((unsigned)low_bits != 0) add(first, (unsigned)low_bits, is_negative);
        if (low_bits >> 32 != 0) add(first + 1, (unsigned)(low_bits >> 32), is_negative);
        if (top != 0) add(first + 2, top, is_negative);
    }

    // Adds an integer, which has a sign or not.
    __device__ void add_integer(int word, unsigned long long magnitude, bool is_negative) {
        if ((unsigned)magnitude != 0) add(word, (unsigned)magnitude, is_negative);
        if (magnitude >> 32 != 0) add(word + 1, (unsigned)(magnitude >> 32), is_negative);
    }
    __device__ void add_value(int word, unsigned long long value) { add_integer(word, value, false); }
    __device__ void add_value(int word, long long value) {
        const unsigned long long bits = (unsigned long long)value;
        add_integer(word, value < 0 ? 0 - bits : bits, value < 0);
    }

    // Lists a value behind the word with the number of values, of which MOST have a word.
    template <int MOST> __device__ void list(int word, unsigned long long value) {
        const unsigned long long place = atomicAdd(&words[word], 1ull);
        if (place < MOST) words[word + 1 + place] = value;
    }

    // Adds what the block has counted to the words. All threads of the block call it.
    __device__ void finish() {
        __syncthreads();
        for (int slot = threadIdx.x; slot < SLOTS; slot += 256) {
            const long long sum = low[slot] + (SUMS ? high[slot] * 65536ll : 0);
            if (sum != 0) atomicAdd(&words[owner(slot)], (unsigned long long)sum);
        }
    }
};

// Bins of the same width, with the edges of numpy.linspace as values of T.
// Each has its lower edge, and the last one both.
template <int BINS, class T> struct Edges {
    double low, high, step;

    __device__ double edge(int number) const {
        const double edge = number == BINS ? high : (double)number * step + low;
        return overshot::cast<double>(overshot::cast<T>(edge));
    }

    // The bin of a value; -1 outside the edges, and for NaN.
    __device__ int bin(double value) const {
        if (!(value >= edge(0) && value <= edge(BINS))) return -1;
        const double near_bin = (value - low) / (high - low) * (double)BINS;
        int bin = near_bin > 0 ? (int)near_bin : 0;
        if (bin >= BINS) bin = BINS - 1;
        // The edges decide. They are rounded otherwise than the quotient, by less than a bin.
        if (value < edge(bin)) return bin - 1;
        if (bin + 1 < BINS && value >= edge(bin + 1)) return bin + 1;
        return bin;
    }
};

// The number of elements whose key is outside is in the first word.
template <int KEYS> __device__ int bin_of_key(long long key) { return key >= 0 && key < KEYS ? (int)key : -1; }

}  // namespace overshot
