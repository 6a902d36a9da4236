// Bits of noise words where a float's sign stands.
#pragma once

#include <cstdint>

#include "vectors.h"

namespace {

// Signs `offset` to `offset + kLanes` of a factor as sign bits; the offset is a multiple of kLanes.
[[gnu::always_inline]] inline Words sign_bits(const std::uint32_t* words, std::int64_t n_blocks,
                                              std::int64_t first_block, std::int64_t offset) {
    const std::uint32_t word = words[(offset / 32) % 4 * n_blocks + first_block + offset / 128];
    return ((Words{} + word) >> (lane_numbers() + static_cast<std::uint32_t>(offset % 32))) << 31;
}

}  // namespace
