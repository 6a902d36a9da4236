// The gradient estimate from utilities, over threads: everybody computes it, with the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "replicated/kernels.h"
#include "replicated/noise.h"

namespace fedlearn {

// A span of members: first member and how many.
using Span = std::pair<std::uint64_t, std::int64_t>;

struct Population {
    Key key;
    std::int64_t group_size;
    std::span<const Span> spans;              // multiples of group_size
    std::span<const std::int8_t> utilities;   // one a member, span after span
    const std::uint8_t* row_masks;            // [groups][mask_stride], groups in the order of the spans; or nullptr
    std::int64_t mask_stride;                 // readable kBlockMultiple bytes beyond the last row
    bool is_antithetic = false;               // members 2k and 2k + 1 have opposite noise
};

// estimate [n_parameters] <- sum over members of utility * perturbation, exact in integers.
void estimate_gradient(std::span<std::int32_t> estimate, std::span<const Tensor> tensors, const Population& population,
                       const ReplicatedKernels& kernels, int n_threads);

// The same, one sign at a time: what the fast path must equal.
void estimate_gradient_naive(std::span<std::int32_t> estimate, std::span<const Tensor> tensors,
                             const Population& population);

}  // namespace fedlearn
