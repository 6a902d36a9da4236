// What is compiled once per instruction set for gradients from noise on activations. Reported.
#pragma once

#include <cstdint>

#include "rnn/kernels.h"

namespace fedlearn {

// The left factors of outer products: value i of a row stands at row * row_stride + i * column_stride.
struct LeftRows {
    const float* values;
    std::int64_t row_stride;
    std::int64_t column_stride;

    [[gnu::always_inline]] float at(std::int64_t row, std::int64_t i) const {
        return values[row * row_stride + i * column_stride];
    }
};

struct ActivationKernels {
    // sums [n rounded up to lanes, finite but without a meaning beyond n] <- factor * sum over rows of coefficients[row] *
    // sign, n signs from first_sign on of the factor of a row's words that begins at first_block.
    void (*sum_signs)(float* sums, float factor, const float* coefficients, const SignRows& signs, std::int64_t n_rows,
                      std::int64_t first_block, std::int64_t first_sign, std::int64_t n);
    // results [n_rows] += dot product of factor * values [n rounded up to lanes, zero beyond n] with each row's signs.
    void (*add_sign_dots)(float* results, float factor, const float* values, const SignRows& signs, std::int64_t n_rows,
                          std::int64_t first_block, std::int64_t first_sign, std::int64_t n);
    // sum [n] += rows [n_rows][n], one after the other; n is a multiple of the lanes.
    void (*add_rows)(float* sum, const float* rows, std::int64_t n_rows, std::int64_t n);
    // sums [n_left][n_columns] += sum over rows of the outer product of left [n_left] and right [n_columns], a multiple
    // of the lanes.
    void (*add_outer)(float* sums, std::int64_t sums_stride, const LeftRows& left, std::int64_t n_left,
                      const float* right, std::int64_t right_stride, std::int64_t n_rows, std::int64_t n_columns);
    // totals [n] += factor * sums [n rounded up to lanes], to the nearest integer of 32 bits; what is no number counts 0.
    void (*add_rounded)(std::int64_t* totals, const float* sums, float factor, std::int64_t n);
};

}  // namespace fedlearn
