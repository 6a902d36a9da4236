// Addresses of the random bits behind each sign of noise, which are part of the protocol.
//
// Noise is a random sign: bit 0 is +1, bit 1 is -1. The bits of one factor of one tensor for one member are the output
// words of Threefry under
//     key     = (seed low, seed high, step, domain)
//     counter = (block, tensor * 65536 + factor, member low, member high)
// Offset o is bit o % 32 of word (o / 32) % 4 of block o / 128. A matrix of rank r has the factors 2k (rows) and 2k + 1
// (columns), k < r; a tensor of rank 0 has the one factor 0, an element each.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fedlearn {

enum class Domain : std::uint32_t { kNoise = 0, kWindows = 1, kDropout = 2 };

struct Key {
    std::uint32_t words[4];
};

inline Key make_key(std::uint64_t seed, std::uint32_t step, Domain domain) {
    return {{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32), step,
             static_cast<std::uint32_t>(domain)}};
}

// Whose noise a member takes, and whether negated.
struct NoiseSource {
    std::uint64_t member;
    bool is_negated;
};

// The noise of a member: an antithetic pair, 2k and 2k + 1, has that of 2k, the odd one negated; else each has its own.
inline NoiseSource noise_source(std::uint64_t member, bool is_antithetic) {
    if (!is_antithetic) return {member, false};
    return {member & ~std::uint64_t{1}, (member & 1) != 0};
}

// A tensor of the model as noise sees it, or some rows of one. Vectors are one row of rank 0.
struct Tensor {
    std::int64_t offset;       // in the flat vector
    std::int64_t rows;
    std::int64_t columns;
    std::int64_t rank;         // 0: one sign an element
    std::int64_t mask_column;  // of its first row in a group's row mask; -1: never masked
    std::int64_t number;       // in the whole model
    std::int64_t first_sign = 0;  // of its own: of the factors of rows, or of all elements at rank 0
};

struct Factor {
    std::int64_t length;       // signs
    std::int64_t first_block;  // in the plan
    std::int64_t skipped;      // signs of that block before its own, until `move_to_front`
};

constexpr int kMaxRank = 8;
constexpr std::int64_t kMaxFactors = 2 * kMaxRank;

// The counters of every block of noise that one member needs, in the order in which its words are laid out: word w of
// block b stands at words[w * n_blocks + b]. Plain pointers, for the kernels, and always inline: see vectors.h.
struct NoisePlanView {
    const std::uint32_t* counter0;  // [n_blocks]
    const std::uint32_t* counter1;  // [n_blocks]
    std::int64_t n_blocks;          // a multiple of kBlockMultiple
    const Factor* factors;          // [tensor][kMaxFactors]
    const Factor* cut;              // [n_cut] those that skip signs
    std::int64_t n_cut;

    [[gnu::always_inline]] std::int64_t n_words() const { return 4 * n_blocks; }
    [[gnu::always_inline]] const Factor& factor(std::int64_t tensor, std::int64_t number) const {
        return factors[tensor * kMaxFactors + number];
    }
};

struct NoisePlan {
    std::vector<std::uint32_t> counter0;
    std::vector<std::uint32_t> counter1;
    std::vector<Factor> factors;
    std::vector<Factor> cut;

    NoisePlanView view() const {
        return {counter0.data(), counter1.data(), static_cast<std::int64_t>(counter0.size()), factors.data(),
                cut.data(),      static_cast<std::int64_t>(cut.size())};
    }
};

constexpr std::int64_t kSignsPerBlock = 128;
constexpr std::int64_t kBlockMultiple = 16;  // the widest vector holds 16 counters

NoisePlan make_noise_plan(std::span<const Tensor> tensors);

// Signs (+1 or -1) of one factor from `offset` on, one at a time: the naive twin of the vector code.
void fill_signs(std::span<std::int8_t> signs, const Key& key, std::uint64_t member, std::uint32_t tensor,
                std::uint32_t factor, std::uint64_t offset);

// Random words of a stream from `offset` on: word i is word i % 4 of the block with counter (i / 4, 0, stream low, stream
// high).
void fill_random_words(std::span<std::uint32_t> words, const Key& key, std::uint64_t stream, std::uint64_t offset = 0);

// What a mask holds where a number is kept, which is so for `share` of 65536; elsewhere it holds 0.
struct DropoutMask {
    float kept;
    std::int32_t share;
};

// Numbers of a mask that 16 blocks decide, of half a word each: number i of them is half (i / 16) % 2 of word i / 32 of
// block i % 16, where the low half is the first. The counter is (block, 0, 0, 0).
constexpr std::int64_t kMaskedAtOnce = 8 * kBlockMultiple;

}  // namespace fedlearn
