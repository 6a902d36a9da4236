// Noise words as numbers that the reported kernels multiply with.
#pragma once

#include "kernels.h"
#include "vectors.h"

namespace {

using fedlearn::SignRows;

// Signs `offset` to `offset + kLanes` of a factor as sign bits; the offset is a multiple of kLanes.
[[gnu::always_inline]] inline Words sign_bits(const std::uint32_t* words, std::int64_t n_blocks,
                                              std::int64_t first_block, std::int64_t offset) {
    const std::uint32_t word = words[(offset / 32) % 4 * n_blocks + first_block + offset / 128];
    return ((Words{} + word) >> (lane_numbers() + static_cast<std::uint32_t>(offset % 32))) << 31;
}

void expand_signs(float* values, const std::uint32_t* words, std::int64_t n_blocks, std::int64_t first_block,
                  std::int64_t first_sign, std::int64_t n, float amplitude) {
    const Words magnitude = reinterpret_cast<Words>(Floats{} + amplitude);
    for (std::int64_t offset = 0; offset < n; offset += kLanes)
        store(values + offset, sign_bits(words, n_blocks, first_block, first_sign + offset) ^ magnitude);
    for (std::int64_t i = n; i < round_up<std::int64_t>(n, kLanes); ++i) values[i] = 0.0f;
}

// sums [n rounded up to lanes] <- sum over rows of coefficient * sign, by vectors of signs so that the sums stay in registers.
void sum_signs(float* sums, const float* coefficients, const SignRows& signs, std::int64_t n_rows,
               std::int64_t first_block, std::int64_t first_sign, std::int64_t n) {
    for (std::int64_t offset = 0; offset < n; offset += kLanes) {
        Floats sum{};
        for (std::int64_t row = 0; row < n_rows; ++row) {
            const Words bits = sign_bits(signs.words + row * 4 * signs.n_blocks, signs.n_blocks, first_block, first_sign + offset);
            sum += reinterpret_cast<Floats>(bits ^ reinterpret_cast<Words>(Floats{} + coefficients[row]));
        }
        store(sums + offset, sum);
    }
    for (std::int64_t i = n; i < round_up<std::int64_t>(n, kLanes); ++i) sums[i] = 0.0f;
}

// results [n_rows] += sum over j of values[j] * sign j of the row.
void add_sign_dots(float* results, const float* values, const SignRows& signs, std::int64_t n_rows,
                   std::int64_t first_block, std::int64_t first_sign, std::int64_t n) {
    for (std::int64_t first = 0; first < n_rows; first += kLanes) {
        const auto n_lanes = static_cast<int>(smaller<std::int64_t>(n_rows - first, kLanes));
        Floats sums[kLanes] = {};
        for (int i = 0; i < n_lanes; ++i)
            for (std::int64_t offset = 0; offset < n; offset += kLanes) {
                const Words bits = sign_bits(signs.words + (first + i) * 4 * signs.n_blocks, signs.n_blocks, first_block,
                                             first_sign + offset);
                sums[i] += reinterpret_cast<Floats>(bits ^ load<Words>(values + offset));
            }
        const Floats dots = sum_each(sums);
        for (int i = 0; i < n_lanes; ++i) results[first + i] += dots[i];
    }
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
