// Sums over the signs of many members' activations.
#pragma once

#include "activations/kernels.h"
#include "rnn/sign_bits.h"
#include "vectors.h"

namespace {

using fedlearn::SignRows;

// sums [n rounded up to lanes] <- factor * sum over rows of coefficient * sign, by vectors of signs so that the sums stay in registers.
void sum_signs(float* sums, float factor, const float* coefficients, const SignRows& signs, std::int64_t n_rows,
               std::int64_t first_block, std::int64_t first_sign, std::int64_t n) {
    for (std::int64_t offset = 0; offset < n; offset += kLanes) {
        Floats sum{};
        for (std::int64_t row = 0; row < n_rows; ++row) {
            const Words bits = sign_bits(signs.words + row * 4 * signs.n_blocks, signs.n_blocks, first_block, first_sign + offset);
            sum += reinterpret_cast<Floats>(bits ^ reinterpret_cast<Words>(Floats{} + coefficients[row]));
        }
        store(sums + offset, factor * sum);
    }
}

// results [n_rows] += sum over j of factor * values[j] * sign j of the row.
void add_sign_dots(float* results, float factor, const float* values, const SignRows& signs, std::int64_t n_rows,
                   std::int64_t first_block, std::int64_t first_sign, std::int64_t n) {
    for (std::int64_t first = 0; first < n_rows; first += kLanes) {
        const auto n_lanes = static_cast<int>(smaller<std::int64_t>(n_rows - first, kLanes));
        Floats sums[kLanes] = {};
        for (int i = 0; i < n_lanes; ++i)
            for (std::int64_t offset = 0; offset < n; offset += kLanes) {
                const Words bits = sign_bits(signs.words + (first + i) * 4 * signs.n_blocks, signs.n_blocks, first_block,
                                             first_sign + offset);
                sums[i] += reinterpret_cast<Floats>(bits ^ reinterpret_cast<Words>(factor * load<Floats>(values + offset)));
            }
        const Floats dots = sum_each(sums);
        for (int i = 0; i < n_lanes; ++i) results[first + i] += dots[i];
    }
}

}  // namespace
