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

// x within [-limit, limit]; the minimum and maximum of the processor keep their second operand, a NaN, as it is.
[[gnu::always_inline]] inline Floats clamp(Floats x, float limit) {
#if defined(__AVX512F__)
    const __m512 most = _mm512_set1_ps(limit);
    const __m512 low = _mm512_maskz_min_ps(0xFFFF, most, reinterpret_cast<__m512>(x));
    return reinterpret_cast<Floats>(_mm512_maskz_max_ps(0xFFFF, -most, low));
#elif defined(__AVX2__)
    const __m256 most = _mm256_set1_ps(limit);
    return reinterpret_cast<Floats>(_mm256_max_ps(-most, _mm256_min_ps(most, reinterpret_cast<__m256>(x))));
#else
    x = x > limit ? Floats{} + limit : x;
    return x < -limit ? Floats{} - limit : x;
#endif
}

// 2^f on [-1/2, 1/2]: the polynomial of degree 5 with the least relative error, 8e-8.
[[gnu::always_inline]] inline Floats power_of_two(Floats f) {
    Floats power = f * 1.3276323e-3f + 9.6754972e-3f;
    power = power * f + 5.5507135e-2f;
    power = power * f + 2.4022120e-1f;
    power = power * f + 6.9314694e-1f;
    return power * f + 1.0f;
}

// e^x to 2e-7 relative; |x| is clamped to 87, and a NaN stays no number.
[[gnu::always_inline]] inline Floats exponential(Floats x) {
    constexpr float kLimit = 87.0f;
    x = clamp(x, kLimit);
    const Floats exponent = x * 1.44269504f;
#if defined(__AVX512F__)
    const Floats whole = reinterpret_cast<Floats>(
        _mm512_maskz_roundscale_ps(0xFFFF, reinterpret_cast<__m512>(exponent), _MM_FROUND_TO_NEAREST_INT));
    const Floats power = power_of_two(exponent - whole);
    return reinterpret_cast<Floats>(
        _mm512_maskz_scalef_ps(0xFFFF, reinterpret_cast<__m512>(power), reinterpret_cast<__m512>(whole)));
#else
    constexpr float kRoundingMagic = 12582912.0f;  // 1.5 * 2^23: adding it leaves round(x) in the low bits
    const Floats shifted = exponent + kRoundingMagic;
    const Floats power = power_of_two(exponent - (shifted - kRoundingMagic));
    return reinterpret_cast<Floats>(reinterpret_cast<Ints>(power) + (reinterpret_cast<Ints>(shifted) << 23));
#endif
}

[[gnu::always_inline]] inline Floats reciprocal(Floats x) {
#if defined(__AVX512F__)
    const Floats guess = reinterpret_cast<Floats>(_mm512_maskz_rcp14_ps(0xFFFF, reinterpret_cast<__m512>(x)));
    return guess * (2.0f - x * guess);
#else
    return 1.0f / x;
#endif
}

[[gnu::always_inline]] inline Floats tanh_of(Floats x) {
    return 1.0f - 2.0f * reciprocal(exponential(x + x) + 1.0f);
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

// results[k][row] = dot of the row with its k-th factor, for up to two matrices that read the same rows.
void factor_dots(float* const* results, const float* rows, std::int64_t stride, const float* factors,
                 std::int64_t factor_stride, const std::int64_t* offsets, std::int64_t n_factors, std::int64_t n_rows,
                 std::int64_t padded_length) {
    for (std::int64_t first = 0; first < n_rows; first += kLanes) {
        const auto n = static_cast<int>(smaller<std::int64_t>(n_rows - first, kLanes));
        for (std::int64_t k = 0; k < n_factors; ++k) {
            Floats sums[kLanes] = {};
            for (int i = 0; i < n; ++i) {
                const float* x = rows + (first + i) * stride;
                const float* factor = factors + (first + i) * factor_stride + offsets[k];
                for (std::int64_t j = 0; j < padded_length; j += kLanes)
                    sums[i] += load<Floats>(x + j) * load<Floats>(factor + j);
            }
            store(results[k] + first, sum_each(sums));
        }
    }
}

struct Scratch {
    float* state[2];               // [n_rows][padded H] new state of the layer below and of this one
    float* logits;                 // [n_rows][padded V]
    float* dots;                   // [layers][3][kMaxRank][n_rows]: recurrent, input of this layer, head (last layer)
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
    s.state[0] = take(rows * rnn.padded_hidden);
    s.state[1] = take(rows * rnn.padded_hidden);
    s.logits = take(rows * rnn.padded_vocab);
    s.dots = take(rnn.layers * 3 * kMaxRank * rows);
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

    Run(const PackedRnn& network, const RnnRows& run_rows, std::byte* memory)
        : rnn(network),
          rows(run_rows),
          scratch(carve(memory, network, run_rows.n_rows)),
          padded_rows(round_up<std::int64_t>(run_rows.n_rows, kLanes)),
          rank(run_rows.noise != nullptr ? run_rows.noise->rank : 0),
          sums_before_log(1) {
        // A sum lies between 1 and V; stay below 1e30.
        for (float bound = static_cast<float>(rnn.vocab); bound * static_cast<float>(rnn.vocab) < 1e30f && sums_before_log < 64;
             bound *= static_cast<float>(rnn.vocab))
            ++sums_before_log;
    }

    float* dots(std::int64_t layer, int kind, std::int64_t k) const {
        return scratch.dots + ((layer * 3 + kind) * kMaxRank + k) * padded_rows;
    }

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

    // Dots of a layer's state with the factors of the matrices that read it.
    void update_dots(std::int64_t layer, const float* state, bool reads_forward) const {
        if (rank == 0) return;
        const RnnNoise& noise = *rows.noise;
        float* results[2 * kMaxRank];
        std::int64_t offsets[2 * kMaxRank];
        std::int64_t n = 0;
        const bool is_top = layer + 1 == rnn.layers;
        for (std::int64_t k = 0; k < rank; ++k) {
            results[n] = dots(layer, kRecurrent, k);
            offsets[n++] = noise.recurrent[layer].into[k];
        }
        for (std::int64_t k = 0; reads_forward && k < rank; ++k) {
            results[n] = is_top ? dots(layer, kHead, k) : dots(layer + 1, kInput, k);
            offsets[n++] = is_top ? noise.head.into[k] : noise.input[layer + 1].into[k];
        }
        factor_dots(results, state, rnn.padded_hidden, rows.factors, noise.row_stride, offsets, n, rows.n_rows,
                    rnn.padded_hidden);
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
        float* state = rows.state + layer * rows.n_rows * rnn.padded_hidden;
        float* next = scratch.state[layer % 2];
        const RnnNoise* noise = rows.noise;
        Product p = begin_product(next, rnn.padded_hidden, noise != nullptr ? noise->bias[layer] : kNoOffset);
        if (layer == 0) {
            read_token(t);
            for (std::int64_t k = 0; k < rank; ++k)
                p.terms[p.n_terms++] = {scratch.token_coefficients + k * padded_rows, noise->embedding.out[k]};
        } else {
            for (std::int64_t row = 0; row < rows.n_rows; ++row) scratch.starts[row] = rnn.bias[layer];
            add_source(p, rows.state + (layer - 1) * rows.n_rows * rnn.padded_hidden, rnn.input[layer]);
            add_terms(p, layer, kInput, noise != nullptr ? &noise->input[layer] : nullptr);
        }
        add_source(p, state, rnn.recurrent[layer]);
        add_terms(p, layer, kRecurrent, noise != nullptr ? &noise->recurrent[layer] : nullptr);
        product<true>(p, rows.n_rows);
        std::memcpy(state, next, static_cast<std::size_t>(rows.n_rows * rnn.padded_hidden) * sizeof(float));
        update_dots(layer, state, true);
    }

    void compute_logits() const {
        const RnnNoise* noise = rows.noise;
        Product p = begin_product(scratch.logits, rnn.padded_vocab, noise != nullptr ? noise->head_bias : kNoOffset);
        for (std::int64_t row = 0; row < rows.n_rows; ++row) scratch.starts[row] = rnn.head_bias;
        add_source(p, rows.state + (rnn.layers - 1) * rows.n_rows * rnn.padded_hidden, rnn.head);
        add_terms(p, rnn.layers - 1, kHead, noise != nullptr ? &noise->head : nullptr);
        product<false>(p, rows.n_rows);
    }

    // Of kLanes rows from `first` on: the greatest logits, and the sums of exp(logit - greatest). Padding columns count as
    // minus infinity, padding rows as they happen to be.
    void softmax_sums(std::int64_t first, Floats& greatest, Floats& sums) const {
        Floats partial[kLanes];
        for (int i = 0; i < kLanes; ++i) {
            float* logits = scratch.logits + (first + i) * rnn.padded_vocab;
            for (std::int64_t v = rnn.vocab; v < rnn.padded_vocab; ++v) logits[v] = -3e38f;
            partial[i] = load<Floats>(logits);
            for (std::int64_t v = kLanes; v < rnn.padded_vocab; v += kLanes)
                partial[i] = greater(partial[i], load<Floats>(logits + v));
        }
        greatest = max_each(partial);
        for (int i = 0; i < kLanes; ++i) {
            const float* logits = scratch.logits + (first + i) * rnn.padded_vocab;
            partial[i] = Floats{};
            for (std::int64_t v = 0; v < rnn.padded_vocab; v += kLanes)
                partial[i] += exponential(load<Floats>(logits + v) - greatest[i]);
        }
        sums = sum_each(partial);
    }

    void add_losses(std::int64_t t) const {
        const bool is_log_due = (t + 1) % sums_before_log == 0 || t + 1 == rows.n_tokens;
        for (std::int64_t first = 0; first < rows.n_rows; first += kLanes) {
            Floats greatest, sums;
            softmax_sums(first, greatest, sums);
            const auto n = smaller<std::int64_t>(rows.n_rows - first, kLanes);
            for (std::int64_t i = 0; i < n; ++i) {
                const std::int64_t row = first + i;
                const std::uint16_t target = token(row, t + 1);
                rows.losses[row] += greatest[i] - scratch.logits[row * rnn.padded_vocab + target];
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
                    rows.log_probabilities[row * rnn.vocab + v] =
                        scratch.logits[row * rnn.padded_vocab + v] - offset;
            }
        }
    }

    void run() const {
        for (std::int64_t row = 0; row < rows.n_rows; ++row) scratch.products[row] = 1.0f;
        for (std::int64_t layer = 0; layer < rnn.layers; ++layer)
            update_dots(layer, rows.state + layer * rows.n_rows * rnn.padded_hidden, false);
        for (std::int64_t t = 0; t < rows.n_tokens; ++t) {
            for (std::int64_t layer = 0; layer < rnn.layers; ++layer) advance_layer(layer, t);
            const bool is_last = t + 1 == rows.n_tokens;
            if (rows.losses != nullptr || (is_last && rows.log_probabilities != nullptr)) compute_logits();
            if (rows.losses != nullptr) add_losses(t);
            if (is_last && rows.log_probabilities != nullptr) write_log_probabilities();
        }
    }
};

void rnn_run(const PackedRnn& rnn, const RnnRows& rows, std::byte* scratch) { Run(rnn, rows, scratch).run(); }

}  // namespace

#define FEDLEARN_JOIN_(a, b) a##b
#define FEDLEARN_JOIN(a, b) FEDLEARN_JOIN_(a, b)

namespace fedlearn {
extern const ReportedKernels FEDLEARN_JOIN(reported_, FEDLEARN_ISA);
const ReportedKernels FEDLEARN_JOIN(reported_, FEDLEARN_ISA) = {kLanes, pack, expand_signs, rnn_scratch_bytes, rnn_run};
}  // namespace fedlearn
