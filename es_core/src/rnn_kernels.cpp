// Reported kernels: losses of a tanh RNN for many rows side by side. Compiled once per instruction set; the compiler may
// contract and reorder here, since losses are sent and never recomputed.
//
// All rows share one product with packed weights; a row's low-rank perturbation enters as an accumulator start:
//     (W + c * sum_k a_k b_k^T) x = W x + sum_k (b_k . x) (c a_k)
// so a perturbed row costs its plain product, rank dot products, and rank multiply-adds an output.
#include <cmath>

#include "kernels.h"
#include "vectors.h"

namespace {

using fedlearn::kMaxRank;
using fedlearn::MatrixNoise;
using fedlearn::PackedMatrix;
using fedlearn::PackedRnn;
using fedlearn::RnnNoise;
using fedlearn::RnnRows;

// 2^f on [-1/2, 1/2]: the polynomial of degree 5 with the least relative error, 8e-8.
[[gnu::always_inline]] inline Floats power_of_fraction(Floats f) {
    Floats power = f * 1.3276323e-3f + 9.6754972e-3f;
    power = power * f + 5.5507135e-2f;
    power = power * f + 2.4022120e-1f;
    power = power * f + 6.9314694e-1f;
    return power * f + 1.0f;
}

// 2^x to 2e-7 relative for x <= 126, zero far below; a NaN stays no number.
[[gnu::always_inline]] inline Floats power_of_two(Floats x) {
#if defined(__AVX512F__)
    const Floats whole = reinterpret_cast<Floats>(
        _mm512_maskz_roundscale_ps(0xFFFF, reinterpret_cast<__m512>(x), _MM_FROUND_TO_NEAREST_INT));
    const Floats power = power_of_fraction(x - whole);
    return reinterpret_cast<Floats>(
        _mm512_maskz_scalef_ps(0xFFFF, reinterpret_cast<__m512>(power), reinterpret_cast<__m512>(whole)));
#else
    constexpr float kRoundingMagic = 12582912.0f;  // 1.5 * 2^23: adding it leaves round(x) in the low bits
    constexpr float kLeast = -126.0f;
    x = x < kLeast ? Floats{} + kLeast : x;
    const Floats shifted = x + kRoundingMagic;
    const Floats power = power_of_fraction(x - (shifted - kRoundingMagic));
    return reinterpret_cast<Floats>(reinterpret_cast<Ints>(power) + (reinterpret_cast<Ints>(shifted) << 23));
#endif
}

constexpr float kLog2E = 1.44269504f;

[[gnu::always_inline]] inline Floats reciprocal(Floats x) {
#if defined(__AVX512F__)
    const Floats guess = reinterpret_cast<Floats>(_mm512_maskz_rcp14_ps(0xFFFF, reinterpret_cast<__m512>(x)));
    return guess * (2.0f - x * guess);
#else
    return 1.0f / x;
#endif
}

// x where it is below the limit, or no number.
[[gnu::always_inline]] inline Floats at_most(Floats x, float limit) {
#if defined(__AVX512F__)
    return reinterpret_cast<Floats>(
        _mm512_maskz_min_ps(0xFFFF, _mm512_set1_ps(limit), reinterpret_cast<__m512>(x)));
#elif defined(__AVX2__)
    return reinterpret_cast<Floats>(_mm256_min_ps(_mm256_set1_ps(limit), reinterpret_cast<__m256>(x)));
#else
    return x > limit ? Floats{} + limit : x;
#endif
}

// 1 - 2 / (e^(2x) + 1), to 2e-7; from x = 22 on it is 1 anyway.
[[gnu::always_inline]] inline Floats tanh_of(Floats x) {
    return 1.0f - 2.0f * reciprocal(power_of_two(at_most(x * (2.0f * kLog2E), 64.0f)) + 1.0f);
}

std::int64_t tail_of(std::int64_t vocab) {
    const std::int64_t tail = vocab % kLanes;
    return vocab > kLanes && tail <= kLanes / 5 ? tail : 0;
}

void pack(float* panels, const float* matrix, std::int64_t outputs, std::int64_t inputs) {
    const std::int64_t n_vectors = round_up<std::int64_t>(outputs, kLanes) / kLanes;
    for (std::int64_t done = 0; done < n_vectors; done += panel_vectors(n_vectors - done)) {
        const std::int64_t first = done * kLanes, width = panel_vectors(n_vectors - done) * kLanes;
        for (std::int64_t k = 0; k < inputs; ++k)
            for (std::int64_t j = 0; j < width; ++j)
                *panels++ = first + j < outputs ? matrix[(first + j) * inputs + k] : 0.0f;
    }
}

void expand_signs(float* values, const std::uint32_t* words, std::int64_t n_blocks, std::int64_t first_block,
                  std::int64_t n, float amplitude) {
    const Words magnitude = reinterpret_cast<Words>(Floats{} + amplitude);
    for (std::int64_t offset = 0; offset < n; offset += kLanes) {
        const std::uint32_t word = words[(offset / 32) % 4 * n_blocks + first_block + offset / 128];
        const Words bits = (Words{} + word) >> (lane_numbers() + static_cast<std::uint32_t>(offset % 32));
        store(values + offset, (bits << 31) ^ magnitude);
    }
    for (std::int64_t i = n; i < round_up<std::int64_t>(n, kLanes); ++i) values[i] = 0.0f;
}

// What is multiplied with a weight matrix: rows of inputs and the packed panel.
struct Source {
    const float* rows;  // [n_rows][stride]
    std::int64_t stride;
    const PackedMatrix* matrix;
};

// coefficients[row] * vector of the row's factors, added to an output.
struct Term {
    const float* coefficients;  // [n_rows]
    std::int64_t offset;        // of the vector within the factor row
};

constexpr int kMaxTerms = 2 * kMaxRank;
constexpr std::int64_t kNoOffset = -1;

// One layer's product: outputs = start + terms + sum of sources.
struct Product {
    Source sources[2];
    int n_sources;
    const float* const* start;    // [n_rows] unperturbed start of each row, [outputs]
    Term terms[kMaxTerms];
    int n_terms;
    const float* factors;         // [n_rows][factor_stride]; nullptr: unperturbed
    std::int64_t factor_stride;
    std::int64_t plain_offset;    // noise added as it is (the bias's)
    float* outputs;               // [n_rows][output_stride]
    std::int64_t output_stride;
};

template <int Rows, int Vectors, bool IsTanh>
[[gnu::always_inline]] inline void product_tile(const Product& p, std::int64_t row, std::int64_t column) {
    Floats acc[Rows][Vectors];
    for (int i = 0; i < Rows; ++i)
        for (int j = 0; j < Vectors; ++j) acc[i][j] = load<Floats>(p.start[row + i] + column + j * kLanes);
    if (p.factors != nullptr) {
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
    for (int s = 0; s < p.n_sources; ++s) {
        const Source& source = p.sources[s];
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
    for (int i = 0; i < Rows; ++i)
        for (int j = 0; j < Vectors; ++j)
            store(p.outputs + (row + i) * p.output_stride + column + j * kLanes,
                  IsTanh ? tanh_of(acc[i][j]) : acc[i][j]);
}

template <int Vectors, bool IsTanh>
void product_panel(const Product& p, std::int64_t n_rows, std::int64_t column) {
    constexpr int kRows = tile_rows(Vectors);
    std::int64_t row = 0;
    for (; row + kRows <= n_rows; row += kRows) product_tile<kRows, Vectors, IsTanh>(p, row, column);
    for (; row + 4 <= n_rows; row += 4) product_tile<4, Vectors, IsTanh>(p, row, column);
    for (; row < n_rows; ++row) product_tile<1, Vectors, IsTanh>(p, row, column);
}

template <bool IsTanh>
void product(const Product& p, std::int64_t n_rows) {
    const std::int64_t n_vectors = p.sources[0].matrix->outputs / kLanes;
    for (std::int64_t done = 0; done < n_vectors; done += panel_vectors(n_vectors - done)) {
        const std::int64_t column = done * kLanes;
        switch (panel_vectors(n_vectors - done)) {
            case 1: product_panel<1, IsTanh>(p, n_rows, column); break;
            case 2: product_panel<2, IsTanh>(p, n_rows, column); break;
            case 3: product_panel<3, IsTanh>(p, n_rows, column); break;
            case 4: product_panel<smaller(4, kTileVectors + 1), IsTanh>(p, n_rows, column); break;
            default: product_panel<kTileVectors + 1, IsTanh>(p, n_rows, column); break;
        }
    }
}

// What rows are multiplied with one by one: results[row] = rows[row] . factors[row]; stride 0 is one factor for all.
struct Dot {
    float* results;
    const float* factors;
    std::int64_t stride;
};

constexpr int kMaxDots = 2 * kMaxRank + kLanes;

void row_dots(const Dot* dots, int n_dots, const float* rows, std::int64_t stride, std::int64_t n_rows,
              std::int64_t padded_length) {
    for (std::int64_t first = 0; first < n_rows; first += kLanes) {
        const auto n = static_cast<int>(smaller<std::int64_t>(n_rows - first, kLanes));
        for (int d = 0; d < n_dots; ++d) {
            Floats sums[kLanes] = {};
            for (int i = 0; i < n; ++i) {
                const float* x = rows + (first + i) * stride;
                const float* factor = dots[d].factors + (first + i) * dots[d].stride;
                for (std::int64_t j = 0; j < padded_length; j += kLanes)
                    sums[i] += load<Floats>(x + j) * load<Floats>(factor + j);
            }
            store(dots[d].results + first, sum_each(sums));
        }
    }
}

struct Scratch {
    float* next;                   // [layers][n_rows][padded H] states after the token that is read
    float* logits;                 // [n_rows][padded columns]
    float* dots;                   // [layers][3][kMaxRank][n_rows]: recurrent, input of this layer, head (last layer)
    float* tail;                   // [tail][n_rows] dots, then logits of the tail columns
    float* token_coefficients;     // [kMaxRank][n_rows]
    float* products;               // [n_rows] product of softmax sums whose logarithm is still owed
    const float** starts;          // [n_rows]
    std::int64_t bytes;
};

Scratch carve(std::byte* memory, const PackedRnn& rnn, std::int64_t n_rows) {
    const std::int64_t rows = round_up<std::int64_t>(n_rows, kLanes);
    auto* starts = reinterpret_cast<const float**>(memory);
    auto* at = reinterpret_cast<float*>(starts + rows);
    Scratch s{};
    s.starts = starts;
    const auto take = [&](std::int64_t n) {
        float* taken = at;
        at += n;
        return taken;
    };
    s.next = take(rnn.layers * n_rows * rnn.padded_hidden);
    s.logits = take(rows * rnn.padded_columns);
    s.dots = take(rnn.layers * 3 * kMaxRank * rows);
    s.tail = take(rnn.tail * rows);
    s.token_coefficients = take(kMaxRank * rows);
    s.products = take(rows);
    s.bytes = reinterpret_cast<std::byte*>(at) - memory;
    return s;
}

std::int64_t rnn_scratch_bytes(const PackedRnn& rnn, std::int64_t n_rows) {
    alignas(8) std::byte origin[8];
    return carve(origin, rnn, n_rows).bytes;
}

// One run of rows through the network: where everything stands, and the steps it is made of.
struct Run {
    const PackedRnn& rnn;
    const RnnRows& rows;
    Scratch scratch;
    std::int64_t padded_rows;
    std::int64_t rank;
    std::int64_t sums_before_log;  // softmax sums that can be multiplied without overflow
    float* states;                 // [layers][n_rows][padded H] before the token that is read; changes places with
    float* next_states;            // the states after it

    Run(const PackedRnn& network, const RnnRows& run_rows, std::byte* memory)
        : rnn(network),
          rows(run_rows),
          scratch(carve(memory, network, run_rows.n_rows)),
          padded_rows(round_up<std::int64_t>(run_rows.n_rows, kLanes)),
          rank(run_rows.noise != nullptr ? run_rows.noise->rank : 0),
          sums_before_log(1),
          states(run_rows.state),
          next_states(scratch.next) {
        // A sum lies between 1 and V; stay below 1e30.
        for (float bound = static_cast<float>(rnn.vocab); bound * static_cast<float>(rnn.vocab) < 1e30f && sums_before_log < 64;
             bound *= static_cast<float>(rnn.vocab))
            ++sums_before_log;
    }

    float* dots(std::int64_t layer, int kind, std::int64_t k) const {
        return scratch.dots + ((layer * 3 + kind) * kMaxRank + k) * padded_rows;
    }

    float* layer_of(float* all, std::int64_t layer) const { return all + layer * rows.n_rows * rnn.padded_hidden; }

    std::uint16_t token(std::int64_t row, std::int64_t t) const { return rows.tokens[row * rows.token_stride + t]; }

    Product begin_product(float* outputs, std::int64_t output_stride, std::int64_t plain_offset) const {
        Product p{};
        p.start = scratch.starts;
        p.factors = rows.noise != nullptr ? rows.factors : nullptr;
        p.factor_stride = rows.noise != nullptr ? rows.noise->row_stride : 0;
        p.plain_offset = plain_offset;
        p.outputs = outputs;
        p.output_stride = output_stride;
        return p;
    }

    void add_source(Product& p, const float* inputs, const PackedMatrix& matrix) const {
        p.sources[p.n_sources++] = {inputs, rnn.padded_hidden, &matrix};
    }

    void add_terms(Product& p, std::int64_t layer, int kind, const MatrixNoise* noise) const {
        for (std::int64_t k = 0; k < rank; ++k) p.terms[p.n_terms++] = {dots(layer, kind, k), noise->out[k]};
    }

    enum Kind { kRecurrent = 0, kInput = 1, kHead = 2 };

    float* tail_dots(std::int64_t column) const { return scratch.tail + column * padded_rows; }

    // Dots of a layer's state with what reads it: noise factors of its own recurrent matrix and of the one above, and
    // the tail columns of the head.
    void update_dots(std::int64_t layer, const float* state, bool is_read_above) const {
        Dot list[kMaxDots];
        int n = 0;
        const bool is_top = layer + 1 == rnn.layers;
        for (std::int64_t k = 0; k < rank; ++k) {
            const RnnNoise& noise = *rows.noise;
            list[n++] = {dots(layer, kRecurrent, k), rows.factors + noise.recurrent[layer].into[k], noise.row_stride};
            if (!is_read_above) continue;
            const MatrixNoise& above = is_top ? noise.head : noise.input[layer + 1];
            list[n++] = {is_top ? dots(layer, kHead, k) : dots(layer + 1, kInput, k), rows.factors + above.into[k],
                         noise.row_stride};
        }
        for (std::int64_t c = 0; is_top && is_read_above && c < rnn.tail; ++c)
            list[n++] = {tail_dots(c), rnn.head_tail + c * rnn.padded_hidden, 0};
        row_dots(list, n, state, rnn.padded_hidden, rows.n_rows, rnn.padded_hidden);
    }

    void read_token(std::int64_t t) const {
        for (std::int64_t row = 0; row < rows.n_rows; ++row) {
            const std::uint16_t read = token(row, t);
            scratch.starts[row] = rnn.embedding + read * rnn.padded_hidden;
            for (std::int64_t k = 0; k < rank; ++k)
                scratch.token_coefficients[k * padded_rows + row] =
                    rows.factors[row * rows.noise->row_stride + rows.noise->embedding.into[k] + read];
        }
    }

    // Advances one layer by one token; the new state replaces the old one.
    void advance_layer(std::int64_t layer, std::int64_t t) const {
        float* next = layer_of(next_states, layer);
        const RnnNoise* noise = rows.noise;
        Product p = begin_product(next, rnn.padded_hidden, noise != nullptr ? noise->bias[layer] : kNoOffset);
        if (layer == 0) {
            read_token(t);
            for (std::int64_t k = 0; k < rank; ++k)
                p.terms[p.n_terms++] = {scratch.token_coefficients + k * padded_rows, noise->embedding.out[k]};
        } else {
            for (std::int64_t row = 0; row < rows.n_rows; ++row) scratch.starts[row] = rnn.bias[layer];
            add_source(p, layer_of(next_states, layer - 1), rnn.input[layer]);
            add_terms(p, layer, kInput, noise != nullptr ? &noise->input[layer] : nullptr);
        }
        add_source(p, layer_of(states, layer), rnn.recurrent[layer]);
        add_terms(p, layer, kRecurrent, noise != nullptr ? &noise->recurrent[layer] : nullptr);
        product<true>(p, rows.n_rows);
        update_dots(layer, next, true);
    }

    void compute_logits() const {
        const RnnNoise* noise = rows.noise;
        Product p = begin_product(scratch.logits, rnn.padded_columns, noise != nullptr ? noise->head_bias : kNoOffset);
        for (std::int64_t row = 0; row < rows.n_rows; ++row) scratch.starts[row] = rnn.head_bias;
        add_source(p, layer_of(next_states, rnn.layers - 1), rnn.head);
        add_terms(p, rnn.layers - 1, kHead, noise != nullptr ? &noise->head : nullptr);
        product<false>(p, rows.n_rows);
    }

    // Logits of tail column `column` for kLanes rows from `first` on; the rows that pad a tile come out as they may.
    Floats tail_logits(std::int64_t first, std::int64_t column) const {
        Floats logits = load<Floats>(tail_dots(column) + first) + rnn.head_bias[rnn.padded_columns + column];
        if (rows.noise == nullptr) return logits;
        const auto n = static_cast<int>(smaller<std::int64_t>(rows.n_rows - first, kLanes));
        const std::int64_t token = rnn.vocab - rnn.tail + column;
        for (int i = 0; i < n; ++i) {
            const float* factors = rows.factors + (first + i) * rows.noise->row_stride + token;
            logits[i] += factors[rows.noise->head_bias];
            for (std::int64_t k = 0; k < rank; ++k)
                logits[i] += dots(rnn.layers - 1, kHead, k)[first + i] * factors[rows.noise->head.out[k]];
        }
        return logits;
    }

    // Of kLanes rows from `first` on: the greatest logits, and the sums of exp(logit - greatest).
    void softmax_sums(std::int64_t first, Floats& greatest, Floats& sums) const {
        Floats tail[kLanes];
        for (std::int64_t c = 0; c < rnn.tail; ++c) {
            tail[c] = tail_logits(first, c);
            store(tail_dots(c) + first, tail[c]);
        }
        Floats partial[kLanes];
        for (int i = 0; i < kLanes; ++i) {
            const float* logits = scratch.logits + (first + i) * rnn.padded_columns;
            partial[i] = load<Floats>(logits);
            for (std::int64_t v = kLanes; v < rnn.padded_columns; v += kLanes)
                partial[i] = greater(partial[i], load<Floats>(logits + v));
        }
        greatest = max_each(partial);
        for (std::int64_t c = 0; c < rnn.tail; ++c) greatest = greater(greatest, tail[c]);
        const Floats shift = greatest * -kLog2E;
        for (int i = 0; i < kLanes; ++i) {
            const float* logits = scratch.logits + (first + i) * rnn.padded_columns;
            partial[i] = Floats{};
            for (std::int64_t v = 0; v < rnn.padded_columns; v += kLanes)
                partial[i] += power_of_two(load<Floats>(logits + v) * kLog2E + shift[i]);
        }
        sums = sum_each(partial);
        for (std::int64_t c = 0; c < rnn.tail; ++c) sums += power_of_two(tail[c] * kLog2E + shift);
    }

    // After softmax_sums of its rows.
    float logit(std::int64_t row, std::int64_t token) const {
        const std::int64_t column = token - (rnn.vocab - rnn.tail);
        return column < 0 ? scratch.logits[row * rnn.padded_columns + token] : tail_dots(column)[row];
    }

    void add_losses(std::int64_t t) const {
        const bool is_log_due = (t + 1) % sums_before_log == 0 || t + 1 == rows.n_tokens;
        for (std::int64_t first = 0; first < rows.n_rows; first += kLanes) {
            Floats greatest, sums;
            softmax_sums(first, greatest, sums);
            const auto n = smaller<std::int64_t>(rows.n_rows - first, kLanes);
            for (std::int64_t i = 0; i < n; ++i) {
                const std::int64_t row = first + i;
                rows.losses[row] += greatest[i] - logit(row, token(row, t + 1));
                scratch.products[row] *= sums[i];
                if (is_log_due) {
                    rows.losses[row] += std::log(scratch.products[row]);
                    scratch.products[row] = 1.0f;
                }
            }
        }
    }

    void write_log_probabilities() const {
        for (std::int64_t first = 0; first < rows.n_rows; first += kLanes) {
            Floats greatest, sums;
            softmax_sums(first, greatest, sums);
            for (std::int64_t row = first; row < smaller(rows.n_rows, first + kLanes); ++row) {
                const float offset = greatest[row - first] + std::log(sums[row - first]);
                for (std::int64_t v = 0; v < rnn.vocab; ++v)
                    rows.log_probabilities[row * rnn.vocab + v] = logit(row, v) - offset;
            }
        }
    }

    void run() {
        for (std::int64_t row = 0; row < rows.n_rows; ++row) scratch.products[row] = 1.0f;
        for (std::int64_t layer = 0; layer < rnn.layers; ++layer)
            update_dots(layer, layer_of(states, layer), false);
        for (std::int64_t t = 0; t < rows.n_tokens; ++t) {
            for (std::int64_t layer = 0; layer < rnn.layers; ++layer) advance_layer(layer, t);
            const bool is_last = t + 1 == rows.n_tokens;
            if (rows.losses != nullptr || (is_last && rows.log_probabilities != nullptr)) compute_logits();
            if (rows.losses != nullptr) add_losses(t);
            if (is_last && rows.log_probabilities != nullptr) write_log_probabilities();
            float* before = states;
            states = next_states;
            next_states = before;
        }
        if (states != rows.state)
            std::memcpy(rows.state, states,
                        static_cast<std::size_t>(rnn.layers * rows.n_rows * rnn.padded_hidden) * sizeof(float));
    }
};

void rnn_run(const PackedRnn& rnn, const RnnRows& rows, std::byte* scratch) { Run(rnn, rows, scratch).run(); }

}  // namespace

#define FEDLEARN_JOIN_(a, b) a##b
#define FEDLEARN_JOIN(a, b) FEDLEARN_JOIN_(a, b)

namespace fedlearn {
extern const ReportedKernels FEDLEARN_JOIN(reported_, FEDLEARN_ISA);
const ReportedKernels FEDLEARN_JOIN(reported_, FEDLEARN_ISA) = {kLanes, tail_of, pack, expand_signs, rnn_scratch_bytes, rnn_run};
}  // namespace fedlearn
