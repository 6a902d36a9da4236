// Noise words as numbers that the kernels multiply with.
#pragma once

#include "rnn/kernels.h"
#include "rnn/sign_bits.h"
#include "vectors.h"

namespace {

void expand_signs(float* values, const std::uint32_t* words, std::int64_t n_blocks, std::int64_t first_block,
                  std::int64_t first_sign, std::int64_t n, float amplitude) {
    const Words magnitude = reinterpret_cast<Words>(Floats{} + amplitude);
    for (std::int64_t offset = 0; offset < n; offset += kLanes)
        store(values + offset, sign_bits(words, n_blocks, first_block, first_sign + offset) ^ magnitude);
    for (std::int64_t i = n; i < round_up<std::int64_t>(n, kLanes); ++i) values[i] = 0.0f;
}

// bytes [n rounded up to kByteMultiple] <- 0 for +1, 1 for -1, and 0 beyond n.
void expand_bits(std::uint8_t* bytes, const std::uint32_t* words, std::int64_t n_blocks, std::int64_t first_block,
                 std::int64_t n) {
    for (std::int64_t offset = 0; offset < round_up<std::int64_t>(n, fedlearn::kByteMultiple); offset += kLanes) {
        const std::uint32_t word = offset < n ? words[(offset / 32) % 4 * n_blocks + first_block + offset / 128] : 0;
        const Words lanes = lane_numbers() + static_cast<std::uint32_t>(offset % 32);
        store(bytes + offset, __builtin_convertvector(((Words{} + word) >> lanes) & 1u, NarrowBytes));
    }
    for (std::int64_t i = n; i < round_up<std::int64_t>(n, kLanes); ++i) bytes[i] = 0;
}

}  // namespace
