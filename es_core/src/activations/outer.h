// Sums of outer products: what perturbed activations and their inputs amount to as gradients of weights, and their
// rounding to integers.
#pragma once

#include "activations/kernels.h"
#include "vectors.h"

namespace {

using fedlearn::LeftRows;

// A tile of `Left` x `Vectors` of the sum of outer products; rows of the right factor stand side by side.
template <int Left, int Vectors>
void outer_tile(float* sums, std::int64_t sums_stride, const LeftRows& left, const float* right, std::int64_t n_rows) {
    Floats acc[Left][Vectors] = {};
    for (std::int64_t row = 0; row < n_rows; ++row) {
        Floats vectors[Vectors];
        for (int j = 0; j < Vectors; ++j) vectors[j] = load<Floats>(right + (row * Vectors + j) * kLanes);
        for (int i = 0; i < Left; ++i)
            for (int j = 0; j < Vectors; ++j) acc[i][j] += left.at(row, i) * vectors[j];
    }
    for (int i = 0; i < Left; ++i)
        for (int j = 0; j < Vectors; ++j) {
            float* out = sums + i * sums_stride + j * kLanes;
            store(out, load<Floats>(out) + acc[i][j]);
        }
}

// A panel of `Vectors` columns of all sums. Rows of the right factor are as far apart as the network is wide, where few of
// them fit into the first-level cache together, so a panel's are copied side by side for all of its tiles.
template <int Vectors>
void outer_panel(float* sums, std::int64_t sums_stride, const LeftRows& left, std::int64_t n_left, const float* right,
                 std::int64_t right_stride, std::int64_t n_rows) {
    constexpr std::int64_t kColumns = Vectors * kLanes, kMostRows = 4096 / kTileColumns;  // 16 KiB
    constexpr int kRows = tile_rows(Vectors);
    float panel[kMostRows * kColumns];
    for (std::int64_t first = 0; first < n_rows; first += kMostRows) {
        const std::int64_t n = smaller(kMostRows, n_rows - first);
        for (std::int64_t row = 0; row < n; ++row)
            std::memcpy(panel + row * kColumns, right + (first + row) * right_stride, kColumns * sizeof(float));
        const auto add_tile = [&]<int Rows>(std::int64_t i) {
            const float* values = left.values + first * left.row_stride + i * left.column_stride;
            outer_tile<Rows, Vectors>(sums + i * sums_stride, sums_stride, {values, left.row_stride, left.column_stride},
                                      panel, n);
        };
        std::int64_t i = 0;
        for (; i + kRows <= n_left; i += kRows) add_tile.template operator()<kRows>(i);
        for (; i + 4 <= n_left; i += 4) add_tile.template operator()<4>(i);
        for (; i < n_left; ++i) add_tile.template operator()<1>(i);
    }
}

void add_outer(float* sums, std::int64_t sums_stride, const LeftRows& left, std::int64_t n_left, const float* right,
               std::int64_t right_stride, std::int64_t n_rows, std::int64_t n_columns) {
    std::int64_t column = 0;
    for (; column + kTileColumns <= n_columns; column += kTileColumns)
        outer_panel<kTileVectors>(sums + column, sums_stride, left, n_left, right + column, right_stride, n_rows);
    for (; column < n_columns; column += kLanes)
        outer_panel<1>(sums + column, sums_stride, left, n_left, right + column, right_stride, n_rows);
}

void add_rows(float* sum, const float* rows, std::int64_t n_rows, std::int64_t n) {
    for (std::int64_t i = 0; i < n; i += kLanes) {
        Floats column = load<Floats>(sum + i);
        for (std::int64_t row = 0; row < n_rows; ++row) column += load<Floats>(rows + row * n + i);
        store(sum + i, column);
    }
}

void add_rounded(std::int64_t* totals, const float* sums, float factor, std::int64_t n) {
    constexpr float kGreatest = 0x7FFFFF80p0f;  // the last before 2^31
    const Words sign = Words{} + 0x80000000u, half = reinterpret_cast<Words>(Floats{} + 0.5f);
    for (std::int64_t first = 0; first < n; first += kLanes) {
        const Floats value = factor * load<Floats>(sums + first);
        const Floats cut = value > kGreatest ? Floats{} + kGreatest : value < -kGreatest ? Floats{} - kGreatest : value;
        const Words bits = reinterpret_cast<Words>(cut);
        const Floats nearest = cut + reinterpret_cast<Floats>((bits & sign) | half);
        const Ints integers = __builtin_convertvector(value == value ? nearest : Floats{}, Ints);
        std::int32_t lanes[kLanes];
        store(lanes, integers);
        const auto n_lanes = static_cast<int>(smaller<std::int64_t>(n - first, kLanes));
        if (n_lanes == kLanes)
            for (int lane = 0; lane < kLanes; ++lane) totals[first + lane] += lanes[lane];
        else
            for (int lane = 0; lane < n_lanes; ++lane) totals[first + lane] += lanes[lane];
    }
}

}  // namespace
