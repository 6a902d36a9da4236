// Products of many rows with one packed matrix, in float32 or in int8, with each row's low-rank perturbation as start:
//     (W + c * sum_k a_k b_k^T) x = W x + sum_k (b_k . x) (c a_k)
// so a perturbed row costs its plain product, rank dot products, and rank multiply-adds an output.
//
// In int8 a state x in [-1, 1] is the byte round(127 x) + 128, and a matrix is its bytes w times one scale. The bytes'
// offset of 128, where products do not lose it by themselves, is taken back where a product starts: the caller adds
// -128 * scale * (sum of each output's w).
#pragma once

#include <type_traits>

#include "rnn/cells.h"
#include "rnn/functions.h"
#include "rnn/kernels.h"
#include "vectors.h"

namespace {

using fedlearn::kMaxRank;
using fedlearn::PackedMatrix;

constexpr float kStateSteps = 127.0f;   // bytes between 0 and 1
constexpr float kStateOffset = 128.0f;  // the byte of 0
constexpr std::uint32_t kSignFlip = 0x80808080u;  // byte with offset 128 <-> signed byte

[[gnu::always_inline]] inline NarrowBytes quantise(Floats x) {
    return __builtin_convertvector(__builtin_convertvector(x * kStateSteps + (kStateOffset + 0.5f), Ints), NarrowBytes);
}

// What is multiplied with a weight matrix: rows of inputs, float or byte, and the packed matrix.
template <class Number>
struct Source {
    const Number* rows;  // [n_rows][stride]
    std::int64_t stride;
    const PackedMatrix* matrix;
};

// coefficients[row] * vector of the row's factors, added to an output.
struct Term {
    const float* coefficients;  // [n_rows]
    std::int64_t offset;        // of the vector within the factor row
};

constexpr int kMaxTerms = 2 * kMaxRank;

// One layer's product: outputs = start + terms + sum of sources. In int8 all sources have the scale of the first.
template <class Number>
struct Product {
    Source<Number> sources[2];
    int n_sources;
    const float* const* start;    // [n_rows] unperturbed start of each row, [outputs]
    Term terms[kMaxTerms];
    int n_terms;
    const float* factors;         // [n_rows][factor_stride]; nullptr: unperturbed
    std::int64_t factor_stride;
    std::int64_t plain_offset;    // noise added as it is (the bias's)
    void* outputs;                // [n_rows][output_stride], of Number after tanh, else float
    std::int64_t output_stride;
    // For cells with gates, whose starts and noise are [gates][gate_stride]:
    std::int64_t gate_stride;
    const float* hidden_start;    // [outputs] start of what the last gate keeps apart, if it does
    std::int64_t hidden_offset;   // noise added to that
    std::int64_t vector_stride;   // between a row's state vectors, before the token and after it
};

template <class Number, int Rows, int Vectors>
[[gnu::always_inline]] inline void add_start(Floats (&acc)[Rows][Vectors], const Product<Number>& p, std::int64_t row,
                                             std::int64_t column) {
    for (int i = 0; i < Rows; ++i)
        for (int j = 0; j < Vectors; ++j) acc[i][j] += load<Floats>(p.start[row + i] + column + j * kLanes);
    if (p.factors == nullptr) return;
    const float* factors = p.factors + row * p.factor_stride + column;
    for (int i = 0; i < Rows; ++i)
        for (int j = 0; j < Vectors; ++j)
            acc[i][j] += load<Floats>(factors + i * p.factor_stride + p.plain_offset + j * kLanes);
    for (int term = 0; term < p.n_terms; ++term) {
        const float* vectors = factors + p.terms[term].offset;
        const float* coefficients = p.terms[term].coefficients + row;
        for (int i = 0; i < Rows; ++i)
            for (int j = 0; j < Vectors; ++j)
                acc[i][j] += coefficients[i] * load<Floats>(vectors + i * p.factor_stride + j * kLanes);
    }
}

template <int Rows, int Vectors>
[[gnu::always_inline]] inline void accumulate(Floats (&acc)[Rows][Vectors], const Source<float>& source,
                                              std::int64_t row, std::int64_t column) {
    const std::int64_t inputs = source.matrix->inputs;
    const float* panel = source.matrix->panels + column * inputs;
    const float* rows = source.rows + row * source.stride;
    for (std::int64_t k = 0; k < inputs; ++k) {
        Floats weights[Vectors];
        for (int j = 0; j < Vectors; ++j) weights[j] = load<Floats>(panel + (k * Vectors + j) * kLanes);
        for (int i = 0; i < Rows; ++i) {
            const float input = rows[i * source.stride + k];
            for (int j = 0; j < Vectors; ++j) acc[i][j] += input * weights[j];
        }
    }
}

template <int Rows, int Vectors>
[[gnu::always_inline]] inline void accumulate(Ints (&acc)[Rows][Vectors], const Source<std::uint8_t>& source,
                                              std::int64_t row, std::int64_t column) {
    const std::int64_t n_quads = (source.matrix->inputs + 3) / 4;
    const std::int8_t* panel = source.matrix->bytes + 4 * column * n_quads;
    const std::uint8_t* rows = source.rows + row * source.stride;
    for (std::int64_t quad = 0; quad < n_quads; ++quad) {
        Words weights[Vectors];
        for (int j = 0; j < Vectors; ++j) weights[j] = load<Words>(panel + (quad * Vectors + j) * kVectorBytes);
        for (int i = 0; i < Rows; ++i) {
            std::uint32_t input;
            std::memcpy(&input, rows + i * source.stride + 4 * quad, sizeof input);
            input ^= kFirstFlip;
            for (int j = 0; j < Vectors; ++j) acc[i][j] = dot4_bytes(acc[i][j], Words{} + input, weights[j]);
        }
    }
}

template <class Number, int Rows, int Vectors, bool IsTanh>
[[gnu::always_inline]] inline void product_tile(const Product<Number>& p, std::int64_t row, std::int64_t column) {
    Floats acc[Rows][Vectors] = {};
    if constexpr (std::is_same_v<Number, float>) {
        add_start<Number, Rows, Vectors>(acc, p, row, column);
        for (int s = 0; s < p.n_sources; ++s) accumulate<Rows, Vectors>(acc, p.sources[s], row, column);
    } else {
        Ints sums[Rows][Vectors] = {};
        for (int s = 0; s < p.n_sources; ++s) accumulate<Rows, Vectors>(sums, p.sources[s], row, column);
        for (int i = 0; i < Rows; ++i)
            for (int j = 0; j < Vectors; ++j)
                acc[i][j] = __builtin_convertvector(sums[i][j], Floats) * p.sources[0].matrix->scale;
        add_start<Number, Rows, Vectors>(acc, p, row, column);
    }
    for (int i = 0; i < Rows; ++i)
        for (int j = 0; j < Vectors; ++j) {
            const std::int64_t at = (row + i) * p.output_stride + column + j * kLanes;
            if constexpr (!IsTanh) {
                store(static_cast<float*>(p.outputs) + at, acc[i][j]);
            } else if constexpr (std::is_same_v<Number, float>) {
                store(static_cast<float*>(p.outputs) + at, tanh_of(acc[i][j]));
            } else {
                store(static_cast<std::uint8_t*>(p.outputs) + at, quantise(tanh_of(acc[i][j])));
            }
        }
}

// Into each cell's loop: as functions that cells share, products with the head cost a small network one or two per cent.
template <class Number, int Vectors, bool IsTanh>
[[gnu::always_inline]] inline void product_panel(const Product<Number>& p, std::int64_t n_rows, std::int64_t column) {
    constexpr int kRows = tile_rows(Vectors);
    std::int64_t row = 0;
    for (; row + kRows <= n_rows; row += kRows) product_tile<Number, kRows, Vectors, IsTanh>(p, row, column);
    for (; row + 4 <= n_rows; row += 4) product_tile<Number, 4, Vectors, IsTanh>(p, row, column);
    for (; row < n_rows; ++row) product_tile<Number, 1, Vectors, IsTanh>(p, row, column);
}

template <bool IsTanh, class Number>
[[gnu::always_inline]] inline void product(const Product<Number>& p, std::int64_t n_rows) {
    const std::int64_t n_vectors = p.sources[0].matrix->outputs / kLanes;
    for (std::int64_t done = 0; done < n_vectors; done += panel_vectors(n_vectors - done)) {
        const std::int64_t column = done * kLanes;
        switch (panel_vectors(n_vectors - done)) {
            case 1: product_panel<Number, 1, IsTanh>(p, n_rows, column); break;
            case 2: product_panel<Number, 2, IsTanh>(p, n_rows, column); break;
            case 3: product_panel<Number, 3, IsTanh>(p, n_rows, column); break;
            case 4: product_panel<Number, smaller(4, kTileVectors + 1), IsTanh>(p, n_rows, column); break;
            default: product_panel<Number, kTileVectors + 1, IsTanh>(p, n_rows, column); break;
        }
    }
}

// The hidden unit of the plain RNN.
template <class Value>
struct TanhCell {
    using Number = Value;
    static constexpr fedlearn::Cell kCell = fedlearn::kTanh;

    static void step(const Product<Number>& p, std::int64_t n_rows) { product<true>(p, n_rows); }
};

void pack(float* panels, const float* matrix, std::int64_t outputs, std::int64_t inputs) {
    const std::int64_t n_vectors = round_up<std::int64_t>(outputs, kLanes) / kLanes;
    for (std::int64_t done = 0; done < n_vectors; done += panel_vectors(n_vectors - done)) {
        const std::int64_t first = done * kLanes, width = panel_vectors(n_vectors - done) * kLanes;
        for (std::int64_t k = 0; k < inputs; ++k)
            for (std::int64_t j = 0; j < width; ++j)
                *panels++ = first + j < outputs ? matrix[(first + j) * inputs + k] : 0.0f;
    }
}

void pack_bytes(std::int8_t* panels, float* start, const float* matrix, std::int64_t outputs, std::int64_t inputs,
                float scale) {
    const std::int64_t n_vectors = round_up<std::int64_t>(outputs, kLanes) / kLanes;
    const float inverse = scale > 0.0f ? 1.0f / (scale * kStateSteps) : 0.0f;
    for (std::int64_t done = 0; done < n_vectors; done += panel_vectors(n_vectors - done)) {
        const std::int64_t first = done * kLanes, width = panel_vectors(n_vectors - done) * kLanes;
        for (std::int64_t quad = 0; quad < inputs; quad += 4)
            for (std::int64_t j = 0; j < width; ++j)
                for (std::int64_t k = quad; k < quad + 4; ++k) {
                    const bool is_padding = first + j >= outputs || k >= inputs;
                    const float weight = is_padding ? 0.0f : matrix[(first + j) * inputs + k] * inverse;
                    const auto byte = static_cast<std::int8_t>(weight + (weight < 0.0f ? -0.5f : 0.5f));
                    if (!is_padding) start[first + j] -= (kStateOffset - kFirstOffset) * scale * static_cast<float>(byte);
                    *panels++ = byte;
                }
    }
}

// What rows are multiplied with one by one: results[row] = rows[row] . factors[row]; stride 0 is one factor for all.
// Beside a byte state the factors are bytes: 0 for +1 and 1 for -1.
template <class Number>
struct Dot {
    float* results;
    const Number* factors;
    std::int64_t stride;
};

constexpr int kMaxDots = 2 * kMaxRank + kLanes;

void row_dots(const Dot<float>* dots, int n_dots, const float* rows, std::int64_t stride, std::int64_t n_rows) {
    for (std::int64_t first = 0; first < n_rows; first += kLanes) {
        const auto n = static_cast<int>(smaller<std::int64_t>(n_rows - first, kLanes));
        for (int d = 0; d < n_dots; ++d) {
            Floats sums[kLanes] = {};
            for (int i = 0; i < n; ++i) {
                const float* x = rows + (first + i) * stride;
                const float* factor = dots[d].factors + (first + i) * dots[d].stride;
                for (std::int64_t j = 0; j < stride; j += kLanes)
                    sums[i] += load<Floats>(x + j) * load<Floats>(factor + j);
            }
            store(dots[d].results + first, sum_each(sums));
        }
    }
}

void row_dots(const Dot<std::uint8_t>* dots, int n_dots, const std::uint8_t* rows, std::int64_t stride,
              std::int64_t n_rows) {
    for (std::int64_t first = 0; first < n_rows; first += kLanes) {
        const auto n = static_cast<int>(smaller<std::int64_t>(n_rows - first, kLanes));
        Ints plain[kLanes] = {};
        for (int i = 0; i < n; ++i)
            for (std::int64_t j = 0; j < stride; j += kVectorBytes)
                plain[i] = dot4_bits(plain[i], Words{} + 0x01010101u,
                                     load<Words>(rows + (first + i) * stride + j) ^ kSignFlip);
        const Ints totals = sum_each(plain);
        for (int d = 0; d < n_dots; ++d) {
            Ints minus[kLanes] = {};
            for (int i = 0; i < n; ++i) {
                const std::uint8_t* x = rows + (first + i) * stride;
                const std::uint8_t* factor = dots[d].factors + (first + i) * dots[d].stride;
                for (std::int64_t j = 0; j < stride; j += kVectorBytes)
                    minus[i] = dot4_bits(minus[i], load<Words>(factor + j), load<Words>(x + j) ^ kSignFlip);
            }
            const Ints sums = totals - 2 * sum_each(minus);
            store(dots[d].results + first, __builtin_convertvector(sums, Floats) * (1.0f / kStateSteps));
        }
    }
}

}  // namespace
