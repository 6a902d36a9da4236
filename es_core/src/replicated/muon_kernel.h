// Products of matrices of small integers, for Muon. Their sums are exact, and so the same in any order; all else is single
// operations on float32.
//
// A word is what one instruction multiplies and adds up: four bytes, or two 16-bit numbers where there are no dot products
// of bytes. A row is numbers side by side. A panel holds kLanes columns of the right matrix, word by word: lane j of word w
// has the numbers of column j that stand at word w of a row of the left matrix.
#pragma once

#include <cstdint>

#include "replicated/kernels.h"
#include "vectors.h"

namespace {

using fedlearn::MuonStep;
using fedlearn::OrthogonalWork;

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__) || defined(__ARM_FEATURE_DOTPROD)
#define FEDLEARN_DOT_PRODUCTS
typedef std::int8_t Whole;
// Panels are unsigned where the instruction wants that: numbers are more by this, which the rows' sums take away again.
constexpr std::uint32_t kPanelFlip = 0x80808080u ^ kFirstFlip;
constexpr std::int32_t kPanelOffset = 128 - static_cast<std::int32_t>(kFirstOffset);
#else
typedef std::int16_t Whole;
constexpr std::uint32_t kPanelFlip = 0;
constexpr std::int32_t kPanelOffset = 0;
#endif

constexpr int kPerWord = 4 / sizeof(Whole);
constexpr int kMuonRows = smaller(kLanes, kRegisters == 32 ? 8 : 4);  // of a tile; kLanes is a multiple
constexpr int kMuonVectors = 2;                      // of a tile

typedef Whole Wholes __attribute__((vector_size(kLanes * sizeof(Whole))));

[[gnu::always_inline]] inline Ints add_products(Ints acc, Words panel, std::uint32_t word) {
#if defined(FEDLEARN_DOT_PRODUCTS)
    return dot4_bytes(acc, panel, Words{} + word);
#else
    return acc + pair_products(reinterpret_cast<Shorts>(panel), reinterpret_cast<Shorts>(Words{} + word));
#endif
}

// The nearest integer, halves to even, for magnitudes below 2^22.
[[gnu::always_inline]] inline Floats nearest_integer(Floats x) {
    constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: a sum with it has no room for fractions
    return (x + kRounder) - kRounder;
}

// The first n lanes; zeros behind them.
template <class Vector, class Element>
[[gnu::always_inline]] inline Vector load_some(const Element* from, int n) {
    if (n == kLanes) return load<Vector>(from);
    Vector some{};
    std::memcpy(&some, from, static_cast<std::size_t>(n) * sizeof(Element));
    return some;
}

template <class Vector, class Element>
[[gnu::always_inline]] inline void store_some(Element* to, Vector value, int n) {
    if (n == kLanes) return store(to, value);
    std::memcpy(to, &value, static_cast<std::size_t>(n) * sizeof(Element));
}

// Rows become columns.
[[gnu::always_inline]] inline void transpose(Floats (&block)[kLanes]) {
#pragma GCC unroll 4
    for (int n = kLanes; n > 1; n /= 2) {
        Floats next[kLanes];
#pragma GCC unroll 8
        for (int i = 0; i < kLanes / 2; ++i) {
            next[i] = even_lanes(block[2 * i], block[2 * i + 1]);
            next[i + kLanes / 2] = odd_lanes(block[2 * i], block[2 * i + 1]);
        }
        std::memcpy(block, next, sizeof next);
    }
}

// The greatest magnitude so far, as the bits of a float: their order is that of magnitudes, with infinity and NaN on top.
[[gnu::always_inline]] inline Ints greatest_bits(Ints greatest, Floats x) {
    const Ints bits = reinterpret_cast<Ints>(x) & 0x7FFFFFFF;
    return bits > greatest ? bits : greatest;
}

[[gnu::always_inline]] inline std::int32_t greatest_lane(Ints bits) {
    std::int32_t greatest = 0;
    for (int lane = 0; lane < kLanes; ++lane) greatest = bits[lane] > greatest ? bits[lane] : greatest;
    return greatest;
}

[[gnu::always_inline]] inline std::int32_t sum_of_lanes(Ints numbers) {
    std::int32_t sum = 0;
    for (int lane = 0; lane < kLanes; ++lane) sum += numbers[lane];
    return sum;
}

// Calls at(row, column, n_rows, n_columns) for each block of the given matrix in which `rows` rows from `first` on lie.
template <class Do>
[[gnu::always_inline]] inline void for_blocks(const OrthogonalWork& work, std::int64_t first, const Do& at) {
    const std::int64_t last = smaller(first + kLanes, work.given_rows);
    for (std::int64_t column = 0; column < work.given_columns; column += kLanes)
        at(first, column, static_cast<int>(last - first),
           static_cast<int>(smaller<std::int64_t>(kLanes, work.given_columns - column)));
}

[[gnu::always_inline]] inline float* block_of(const OrthogonalWork& work, std::int64_t row, std::int64_t column) {
    return work.is_tall ? work.matrix + column * work.columns + row : work.matrix + row * work.columns + column;
}

// kLanes rows of the given matrix from `first` on: momentum <- kept * momentum + added * gradient, and the matrix that
// shall become orthogonal <- the same with the new momentum. Gives its greatest magnitude's bits.
std::int32_t muon_momentum(const OrthogonalWork& work, float* momentum, const std::int32_t* estimate,
                           const MuonStep& step, std::int64_t first) {
    const auto gradient_scale = static_cast<float>(step.gradient_scale);
    const auto kept = static_cast<float>(step.momentum), added = static_cast<float>(1.0 - step.momentum);
    Ints greatest{};
    for_blocks(work, first, [&](std::int64_t row, std::int64_t column, int n_rows, int n_columns) {
        Floats ahead[kLanes] = {};
        for (int i = 0; i < n_rows; ++i) {
            const std::int64_t at = (row + i) * work.given_columns + column;
            const Ints counted = load_some<Ints>(estimate + at, n_columns);
            const Floats share = added * (__builtin_convertvector(counted, Floats) * gradient_scale);
            const Floats m = kept * load_some<Floats>(momentum + at, n_columns) + share;
            store_some(momentum + at, m, n_columns);
            ahead[i] = kept * m + share;
            greatest = greatest_bits(greatest, ahead[i]);
        }
        if (work.is_tall) transpose(ahead);
        float* to = block_of(work, row, column);
        for (int i = 0; i < kLanes; ++i) store(to + i * work.columns, ahead[i]);
    });
    return greatest_lane(greatest);
}

// kLanes rows of the given matrix from `first` on: weights <- (1 - decay) * weights - rate * direction.
void muon_move(const OrthogonalWork& work, float* weights, const MuonStep& step, std::int64_t first) {
    const auto rate = static_cast<float>(step.rate), kept = static_cast<float>(1.0 - step.decay);
    for_blocks(work, first, [&](std::int64_t row, std::int64_t column, int n_rows, int n_columns) {
        Floats direction[kLanes];
        const float* from = block_of(work, row, column);
        for (int i = 0; i < kLanes; ++i) direction[i] = load<Floats>(from + i * work.columns);
        if (work.is_tall) transpose(direction);
        for (int i = 0; i < n_rows; ++i) {
            float* at = weights + (row + i) * work.given_columns + column;
            store_some(at, kept * load_some<Floats>(at, n_columns) - rate * direction[i], n_columns);
        }
    });
}

// Row `row` of rows [.][length] <- the nearest integers to factor times that of the matrix, which becomes the same where
// it is kept; gives the sum of squares.
template <bool IsKept>
[[gnu::always_inline]] inline std::int32_t round_row(Whole* rows, std::int32_t* sums, float* matrix,
                                                     std::int64_t length, std::int64_t row, float factor) {
    float* numbers = matrix + row * length;
    Whole* wholes = rows + row * length;
    Ints sum{}, squares{};
    for (std::int64_t i = 0; i < length; i += kLanes) {
        const Floats whole = nearest_integer(load<Floats>(numbers + i) * factor);
        const Ints integers = __builtin_convertvector(whole, Ints);
        if constexpr (IsKept) store(numbers + i, whole);
        store(wholes + i, __builtin_convertvector(integers, Wholes));
        sum += integers;
        squares += integers * integers;
    }
    sums[row] = sum_of_lanes(sum);
    return sum_of_lanes(squares);
}

// The panel in which kLanes rows from `first` on are the columns.
void panel_of_rows(std::uint32_t* panels, const Whole* rows, std::int64_t length, std::int64_t first) {
    const std::int64_t n_words = length / kPerWord;
    std::uint32_t* panel = panels + first * n_words;
    for (std::int64_t word = 0; word < n_words; word += kLanes) {
        Floats block[kLanes];
        for (int i = 0; i < kLanes; ++i) block[i] = load<Floats>(rows + (first + i) * length + word * kPerWord);
        transpose(block);
        for (std::int64_t i = 0; i < smaller<std::int64_t>(kLanes, n_words - word); ++i)
            store(panel + (word + i) * kLanes, reinterpret_cast<Words>(block[i]) ^ kPanelFlip);
    }
}

// Words of all panels that kLanes rows from `first` on stand in: a word has the numbers of neighbouring rows.
void words_of_panels(std::uint32_t* panels, const float* matrix, std::int64_t n_rows, std::int64_t length,
                     std::int64_t first) {
    constexpr std::uint32_t kMask = kPerWord == 4 ? 0xFF : 0xFFFF;
    const std::int64_t n_words = n_rows / kPerWord;
    for (std::int64_t row = first; row < first + kLanes; row += kPerWord)
        for (std::int64_t column = 0; column < length; column += kLanes) {
            Words word{};
            for (int i = 0; i < kPerWord; ++i) {
                const Floats whole = load<Floats>(matrix + (row + i) * length + column);
                word |= (reinterpret_cast<Words>(__builtin_convertvector(whole, Ints)) & kMask) << (32 / kPerWord * i);
            }
            store(panels + column * n_words + row / kPerWord * kLanes, word ^ kPanelFlip);
        }
}

// Below the diagonal of kLanes rows from `first` on: what stands above it.
void mirror(float* square, std::int64_t n, std::int64_t first) {
    for (std::int64_t column = 0; column < first; column += kLanes) {
        Floats block[kLanes];
        for (int i = 0; i < kLanes; ++i) block[i] = load<Floats>(square + (column + i) * n + first);
        transpose(block);
        for (int i = 0; i < kLanes; ++i) store(square + (first + i) * n + column, block[i]);
    }
}

// kLanes rows of the matrix from `first` on, rounded; gives the greatest sum of a row's squares.
std::int32_t muon_round(const OrthogonalWork& work, float factor, std::int64_t first) {
    auto* rows = static_cast<Whole*>(work.matrix_rows);
    std::int32_t greatest = 0;
    for (std::int64_t row = first; row < first + kLanes; ++row) {
        const std::int32_t squares =
            round_row<true>(rows, work.matrix_sums, work.matrix, work.columns, row, factor);
        work.squares[row] = squares;
        greatest = squares > greatest ? squares : greatest;
    }
    panel_of_rows(work.row_panels, rows, work.columns, first);
    words_of_panels(work.column_panels, work.matrix, work.rows, work.columns, first);
    return greatest;
}

// kLanes rows of the square from `first` on, which hold integers above the diagonal.
void muon_pack_square(const OrthogonalWork& work, std::int64_t first) {
    auto* rows = static_cast<Whole*>(work.square_rows);
    mirror(work.square, work.rows, first);
    for (std::int64_t row = first; row < first + kLanes; ++row)
        round_row<false>(rows, work.square_sums, work.square, work.rows, row, 1.0f);
    panel_of_rows(work.square_panels, rows, work.rows, first);
}

// The left matrix of a product by its rows, the right one by its panels.
struct WholeProduct {
    const Whole* rows;  // [.][4 * n_words / sizeof(Whole)]
    const std::int32_t* sums;
    const std::uint32_t* panels;
    std::int64_t n_words;
};

// Calls use(row, column, sums) with each vector of the tile that begins there.
template <int Vectors, class Use>
[[gnu::always_inline]] inline void whole_tile(const WholeProduct& p, std::int64_t row, std::int64_t column,
                                              const Use& use) {
    Ints acc[kMuonRows][Vectors];
    for (int i = 0; i < kMuonRows; ++i)
        for (int j = 0; j < Vectors; ++j) acc[i][j] = Ints{} - kPanelOffset * p.sums[row + i];
    const Whole* rows = p.rows + row * p.n_words * kPerWord;
    const std::uint32_t* panel = p.panels + column * p.n_words;
    for (std::int64_t word = 0; word < p.n_words; ++word) {
        Words right[Vectors];
        for (int j = 0; j < Vectors; ++j) right[j] = load<Words>(panel + (j * p.n_words + word) * kLanes);
        for (int i = 0; i < kMuonRows; ++i) {
            std::uint32_t left;
            std::memcpy(&left, rows + (i * p.n_words + word) * kPerWord, sizeof left);
            for (int j = 0; j < Vectors; ++j) acc[i][j] = add_products(acc[i][j], right[j], left);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kMuonRows; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < Vectors; ++j) use(row + i, column + j * kLanes, __builtin_convertvector(acc[i][j], Floats));
}

// The product's rows from `first` to `last` and its first n_columns columns; of a symmetric one what is not below the
// diagonal. A panel serves all rows before the next one's turn.
template <bool IsSymmetric, class Use>
[[gnu::always_inline]] inline void whole_product(const WholeProduct& p, std::int64_t first, std::int64_t last,
                                                 std::int64_t n_columns, const Use& use) {
    constexpr std::int64_t kWide = kMuonVectors * kLanes;
    for (std::int64_t column = IsSymmetric ? first / kWide * kWide : 0; column < n_columns; column += kWide)
        for (std::int64_t row = first; row < last; row += kMuonRows) {
            const std::int64_t block = row / kLanes * kLanes;
            const bool has_second = column + kLanes < n_columns;
            if (IsSymmetric && block > column) {
                if (has_second && block <= column + kLanes) whole_tile<1>(p, row, column + kLanes, use);
            } else if (has_second) {
                whole_tile<kMuonVectors>(p, row, column, use);
            } else {
                whole_tile<1>(p, row, column, use);
            }
        }
}

// Rows from `first` to `last` of the square, above the diagonal <- the nearest integers to factor * matrix * matrix^T.
void muon_square(const OrthogonalWork& work, float factor, std::int64_t first, std::int64_t last) {
    const WholeProduct p{static_cast<const Whole*>(work.matrix_rows), work.matrix_sums, work.row_panels,
                         work.columns / kPerWord};
    whole_product<true>(p, first, last, work.rows, [&](std::int64_t row, std::int64_t column, Floats sums) {
        store(work.square + row * work.rows + column, nearest_integer(sums * factor));
    });
}

// Rows from `first` to `last` of the square A, above the diagonal <- cubic * A + quintic * A A; gives the greatest
// magnitude's bits.
std::int32_t muon_polynomial(const OrthogonalWork& work, float cubic, float quintic, std::int64_t first,
                             std::int64_t last) {
    const WholeProduct p{static_cast<const Whole*>(work.square_rows), work.square_sums, work.square_panels,
                         work.rows / kPerWord};
    Ints greatest{};
    whole_product<true>(p, first, last, work.rows, [&](std::int64_t row, std::int64_t column, Floats sums) {
        float* at = work.square + row * work.rows + column;
        const Floats result = cubic * load<Floats>(at) + quintic * sums;
        greatest = greatest_bits(greatest, result);
        store(at, result);
    });
    return greatest_lane(greatest);
}

// Rows from `first` to `last` of the matrix X <- linear * X + scale * B X, with B the nearest integers to factor * square;
// gives the greatest magnitude's bits.
std::int32_t muon_product(const OrthogonalWork& work, float factor, float linear, float scale, std::int64_t first,
                          std::int64_t last) {
    auto* rows = static_cast<Whole*>(work.square_rows);
    for (std::int64_t block = first; block < last; block += kLanes) mirror(work.square, work.rows, block);
    for (std::int64_t row = first; row < last; ++row)
        round_row<false>(rows, work.square_sums, work.square, work.rows, row, factor);
    const WholeProduct p{rows, work.square_sums, work.column_panels, work.rows / kPerWord};
    Ints greatest{};
    whole_product<false>(p, first, last, work.columns, [&](std::int64_t row, std::int64_t column, Floats sums) {
        float* at = work.matrix + row * work.columns + column;
        const Floats result = linear * load<Floats>(at) + scale * sums;
        greatest = greatest_bits(greatest, result);
        store(at, result);
    });
    return greatest_lane(greatest);
}

constexpr fedlearn::MuonKernels kMuonKernels = {
    kLanes, sizeof(Whole), muon_momentum, muon_round, muon_square, muon_pack_square, muon_polynomial, muon_product, muon_move};

}  // namespace
