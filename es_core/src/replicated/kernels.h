// What is compiled once per instruction set of the replicated half: the same bits on every machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "replicated/muon_kernels.h"
#include "replicated/noise.h"

namespace fedlearn {

// Numbers stay double here: the kernels round them to float, so that rounding too happens under the update's guard.
struct AdamStep {
    double gradient_scale;  // integer estimate -> gradient
    double learning_rate;   // already multiplied by the tensor's relative scale
    double beta1, beta2;
    double epsilon;
    double correction1, correction2;  // 1 / (1 - beta^t)
    double decay = 0.0;               // share of the weights that is taken away before the step
};

struct SgdStep {
    double gradient_scale;
    double learning_rate;
    double momentum;
    double decay = 0.0;
};

// Members whose noise is regenerated together, so that one pass over a tile of the estimate serves them all.
struct MemberChunk {
    const std::uint64_t* members;            // [size]
    const std::int8_t* utilities;            // [size]
    const std::uint8_t* const* row_masks;    // [size] row mask of each member's group; nullptr without masks
    std::int64_t size;                       // a multiple of 4; padding has utility 0
};

constexpr std::int64_t kChunkMembers = 256;

// One factor of one tensor's noise, as numbers: signs times `scale`.
struct SignFactor {
    std::uint32_t stream;   // tensor * 65536 + factor
    std::int64_t first_block;
    std::int64_t skipped;   // signs of that block before its own
    std::int64_t length;    // signs with those that are skipped, which count into no member's
    std::int64_t n_blocks;  // of noise; of the first and the last a part may do
    float scale;
};

// The noise of consecutive members: the signs of all factors of one, one factor behind the other, then the next one's.
struct MemberSigns {
    const SignFactor* factors;   // [n_factors]
    std::int64_t n_factors;
    std::int64_t n_signs;        // of one member
    std::int64_t n_blocks;       // of one member
    std::uint64_t first_member;
    std::int64_t n_members;
    bool is_antithetic;
    std::uint64_t first_source;  // the member whose noise the first one takes
};

struct ReplicatedKernels {
    // words [plan.n_words()] <- the random words of one member.
    void (*sign_words)(std::uint32_t* words, const Key& key, const NoisePlanView& plan, std::uint64_t member);
    // signs [n_members][n_signs] <- what follows from some consecutive blocks of noise: all of the first source's, then
    // all of the next one's, counted on.
    void (*member_signs)(float* signs, const Key& key, const MemberSigns& wanted, std::int64_t first_block,
                         std::int64_t n_blocks);
    // mask [count] <- what is kept and what is dropped.
    void (*dropout_mask)(float* mask, const Key& key, std::int64_t count, const DropoutMask& wanted);
    // Bytes of scratch memory that accumulate_gradient needs.
    std::int64_t (*gradient_scratch_bytes)(const NoisePlanView& plan, const Tensor* tensors, std::int64_t n_tensors);
    // estimate [n_parameters] += sum over the chunk of utility * perturbation.
    void (*accumulate_gradient)(std::int32_t* estimate, const Key& key, const NoisePlanView& plan, const Tensor* tensors,
                                std::int64_t n_tensors, const MemberChunk& chunk, std::byte* scratch);
    void (*adam)(float* weights, float* first_moment, float* second_moment, const std::int32_t* estimate,
                 std::int64_t n, const AdamStep& step);
    void (*sgd)(float* weights, float* momentum_buffer, const std::int32_t* estimate, std::int64_t n,
                const SgdStep& step);
    MuonKernels muon;
    // weights [n] <- (1 - share) * weights + share * start.
    void (*pull_towards)(float* weights, const float* start, std::int64_t n, double share);
    // The greatest of [count] numbers without its sign.
    std::uint64_t (*greatest_magnitude)(const std::int64_t* numbers, std::int64_t count);
    // bytes [count] <- numbers / 2^shift to the nearest, halves to even, beyond -127 to 127 cut.
    void (*round_row)(std::uint8_t* bytes, const std::int64_t* numbers, std::int64_t count, int shift);
    // bytes [count] <- numbers / 2^shift, rounded up or down by a random word each, beyond -127 to 127 cut.
    void (*round_row_randomly)(std::uint8_t* bytes, const std::int64_t* numbers, const std::uint32_t* words,
                               std::int64_t count, int shift);
    // bytes [(count + 1) / 2] <- numbers / step in four bits each, rounded up or down by a random byte each.
    void (*pack_row)(std::uint8_t* bytes, const std::int64_t* numbers, const std::uint8_t* random, std::int64_t count,
                     std::int64_t step);
};

}  // namespace fedlearn
