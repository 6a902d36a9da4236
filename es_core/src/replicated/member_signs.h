// The noise of many members as numbers, for whoever evaluates them outside of the core.
#pragma once

#include <cstdint>
#include <span>

#include "replicated/kernels.h"

namespace fedlearn {

// `length` signs of a factor from number `first` on, each to be multiplied by `scale`.
SignFactor sign_factor(std::uint32_t tensor, std::uint32_t factor, std::int64_t first, std::int64_t length, float scale);

// Consecutive members of one step.
struct MemberRange {
    Key key;
    std::uint64_t first;
    std::int64_t n;
    bool is_antithetic;  // odd members take the noise of the even one, negated: factors of even number change sign
};

// signs [members.n][sum of lengths] <- every factor's signs times its scale, one factor behind the other.
void fill_member_signs(std::span<float> signs, std::span<const SignFactor> factors, const MemberRange& members,
                       const ReplicatedKernels& kernels, int n_threads);

}  // namespace fedlearn
