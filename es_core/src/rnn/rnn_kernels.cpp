// The RNN's kernels of one instruction set: losses of many rows side by side. The compiler may contract and reorder
// here, since losses are sent and never recomputed.
#include "carver.h"
#include "rnn/gru.h"
#include "rnn/lstm.h"
#include "rnn/products.h"
#include "rnn/signs.h"

namespace {

using fedlearn::MatrixNoise;
using fedlearn::PackedRnn;
using fedlearn::RnnNoise;
using fedlearn::RnnRows;
using fedlearn::SignRows;

constexpr int kZeroByte = 128;  // a state of zero in int8

std::int64_t tail_of(std::int64_t vocab) {
    const std::int64_t tail = vocab % kLanes;
    return vocab > kLanes && tail <= kLanes / 5 ? tail : 0;
}

template <class Number>
struct Scratch {
    Number* states[2];             // [state vectors][n_rows][stride] before and after the token that is read
    float* logits;                 // [n_rows][padded columns]
    float* dots;                   // [layers][3][kMaxRank][n_rows]: recurrent, input of this layer, head (last layer)
    float* tail;                   // [tail][n_rows] dots, then logits of the tail columns
    float* token_coefficients;     // [kMaxRank][n_rows]
    float* noise;                  // [n_rows][widest layer] noise of one layer at one token
    const float** starts;          // [n_rows]
    std::int64_t bytes;
};

// Numbers between two rows of a state.
template <class Number>
std::int64_t state_stride(const PackedRnn& rnn) {
    return std::is_same_v<Number, float> ? rnn.padded_hidden
                                         : round_up<std::int64_t>(rnn.hidden, fedlearn::kByteMultiple);
}

// Floats between two rows of a layer's noise; a head's covers its tail columns too.
std::int64_t noise_stride(const PackedRnn& rnn) {
    const std::int64_t columns = round_up<std::int64_t>(rnn.vocab, kLanes);
    return rnn.padded_hidden > columns ? rnn.padded_hidden : columns;
}

template <class Number>
Scratch<Number> carve(std::byte* memory, const PackedRnn& rnn, std::int64_t n_rows) {
    const std::int64_t rows = round_up<std::int64_t>(n_rows, kLanes);
    Carver carver(memory);
    Scratch<Number> s{};
    s.starts = carver.take<const float*>(rows);
    for (Number*& states : s.states) states = carver.take<Number>(rnn.state_vectors * rows * state_stride<Number>(rnn));
    s.logits = carver.take<float>(rows * rnn.padded_columns);
    s.dots = carver.take<float>(rnn.layers * 3 * kMaxRank * rows);
    s.tail = carver.take<float>(rnn.tail * rows);
    s.token_coefficients = carver.take<float>(kMaxRank * rows);
    s.noise = carver.take<float>(rows * noise_stride(rnn));
    s.bytes = carver.bytes();
    return s;
}

std::int64_t scratch_bytes(const PackedRnn& rnn, std::int64_t n_rows) {
    return rnn.is_int8 ? carve<std::uint8_t>(nullptr, rnn, n_rows).bytes : carve<float>(nullptr, rnn, n_rows).bytes;
}

// One run of rows through the network: where everything stands, and the steps it is made of.
template <class Cell>
struct Run {
    using Number = typename Cell::Number;
    static constexpr bool kIsFloat = std::is_same_v<Number, float>;

    const PackedRnn& rnn;
    const RnnRows& rows;
    Scratch<Number> scratch;
    std::int64_t stride;           // of a state's rows
    std::int64_t padded_rows;
    std::int64_t rank;
    Number* states;                // [state vectors][n_rows][stride] before the token that is read; changes places with
    Number* next_states;           // the states after it

    Run(const PackedRnn& network, const RnnRows& run_rows, std::byte* memory)
        : rnn(network),
          rows(run_rows),
          scratch(carve<Number>(memory, network, run_rows.n_rows)),
          stride(state_stride<Number>(network)),
          padded_rows(round_up<std::int64_t>(run_rows.n_rows, kLanes)),
          rank(run_rows.noise != nullptr ? run_rows.noise->rank : 0),
          states(scratch.states[0]),
          next_states(scratch.states[1]) {}

    float* dots(std::int64_t layer, int kind, std::int64_t k) const {
        return scratch.dots + ((layer * 3 + kind) * kMaxRank + k) * padded_rows;
    }

    // A layer's first state vectors; the others stand behind those of all layers.
    Number* layer_of(Number* all, std::int64_t layer) const { return all + layer * rows.n_rows * stride; }

    std::uint16_t token(std::int64_t row, std::int64_t t) const { return rows.tokens[row * rows.token_stride + t]; }

    // A product whose outputs begin with `start` and noise: a vector of each row's factors, or the signs at a token.
    Product<Number> begin_product(void* outputs, std::int64_t output_stride) const {
        Product<Number> p{};
        p.start = scratch.starts;
        p.outputs = outputs;
        p.output_stride = output_stride;
        return p;
    }

    void add_factors(Product<Number>& p, std::int64_t plain_offset) const {
        p.factors = rows.factors;
        p.factor_stride = rows.noise->row_stride;
        p.plain_offset = plain_offset;
    }

    // Noise of n outputs at token t, from the factor that begins at `first_block` of each row's words.
    void add_signs(Product<Number>& p, std::int64_t t, std::int64_t first_block, std::int64_t pitch, std::int64_t n,
                   float amplitude) const {
        const SignRows& signs = *rows.signs;
        p.factors = scratch.noise;
        p.factor_stride = noise_stride(rnn);
        for (std::int64_t row = 0; row < rows.n_rows; ++row)
            expand_signs(scratch.noise + row * p.factor_stride, signs.words + row * 4 * signs.n_blocks, signs.n_blocks,
                         first_block, (signs.first_token + t) * pitch, n, amplitude);
    }

    void add_source(Product<Number>& p, const Number* inputs, const PackedMatrix& matrix) const {
        p.sources[p.n_sources++] = {inputs, stride, &matrix};
    }

    void add_terms(Product<Number>& p, std::int64_t layer, int kind, const MatrixNoise* noise) const {
        for (std::int64_t k = 0; k < rank; ++k) p.terms[p.n_terms++] = {dots(layer, kind, k), noise->out[k]};
    }

    enum Kind { kRecurrent = 0, kInput = 1, kHead = 2 };

    float* tail_dots(std::int64_t column) const { return scratch.tail + column * padded_rows; }

    // Dots of a layer's state with what reads it: noise factors of its own recurrent matrix and of the one above, and
    // the tail columns of the head.
    void update_dots(std::int64_t layer, const Number* state, bool is_read_above) const {
        Dot<Number> list[kMaxDots];
        int n = 0;
        const bool is_top = layer + 1 == rnn.layers;
        for (std::int64_t k = 0; k < rank; ++k) {
            const RnnNoise& noise = *rows.noise;
            list[n++] = dot_with(dots(layer, kRecurrent, k), noise.recurrent[layer].into[k]);
            if (!is_read_above) continue;
            const MatrixNoise& above = is_top ? noise.head : noise.input[layer + 1];
            list[n++] = dot_with(is_top ? dots(layer, kHead, k) : dots(layer + 1, kInput, k), above.into[k]);
        }
        if constexpr (kIsFloat)
            for (std::int64_t c = 0; is_top && is_read_above && c < rnn.tail; ++c)
                list[n++] = {tail_dots(c), rnn.head_tail + c * rnn.padded_hidden, 0};
        row_dots(list, n, state, stride, rows.n_rows);
    }

    // The factor at `offset` floats into each row: signs as floats, or as bytes beside a byte state.
    Dot<Number> dot_with(float* results, std::int64_t offset) const {
        return {results, reinterpret_cast<const Number*>(rows.factors + offset),
                rows.noise->row_stride * std::int64_t{sizeof(float) / sizeof(Number)}};
    }

    void read_token(std::int64_t t) const {
        for (std::int64_t row = 0; row < rows.n_rows; ++row) {
            const std::uint16_t read = token(row, t);
            scratch.starts[row] = rnn.embedding + read * Cell::kCell.gates * rnn.padded_hidden;
            for (std::int64_t k = 0; k < rank; ++k)
                scratch.token_coefficients[k * padded_rows + row] =
                    rows.factors[row * rows.noise->row_stride + rows.noise->embedding.into[k] + read];
        }
    }

    // Before token t: rows that read the reset token do so from states of zero, whose dots are zero, too.
    void reset_rows(std::int64_t t) const {
        for (std::int64_t row = 0; row < rows.n_rows; ++row) {
            if (token(row, t) != rnn.reset_token) continue;
            for (std::int64_t v = 0; v < rnn.state_vectors; ++v)
                std::memset(layer_of(states, v) + row * stride, kIsFloat ? 0 : kZeroByte,
                            static_cast<std::size_t>(stride) * sizeof(Number));
            for (std::int64_t layer = 0; layer < rnn.layers; ++layer)
                for (std::int64_t k = 0; k < rank; ++k) dots(layer, kRecurrent, k)[row] = 0.0f;
        }
    }

    // Lanes of a state; of bytes as what they stand for.
    static Floats state_lanes(const Number* state) {
        if constexpr (kIsFloat) return load<Floats>(state);
        else return (__builtin_convertvector(__builtin_convertvector(load<NarrowBytes>(state), Ints), Floats) - kStateOffset) *
                    (1.0f / kStateSteps);
    }

    void multiply_states(std::int64_t t) const {
        const fedlearn::StateProducts& products = *rows.products;
        for (std::int64_t first = 0; first < rows.n_rows; first += kLanes) {
            const auto n = static_cast<int>(smaller<std::int64_t>(rows.n_rows - first, kLanes));
            Floats sums[kLanes] = {};
            for (std::int64_t layer = 0; layer < rnn.layers; ++layer)
                for (int i = 0; i < n; ++i) {
                    const Number* state = layer_of(states, layer) + (first + i) * stride;
                    const float* vector = products.vectors[first + i] + t * products.token_stride +
                                          layer * products.layer_stride;
                    for (std::int64_t j = 0; j < rnn.padded_hidden; j += kLanes)
                        sums[i] += state_lanes(state + j) * load<Floats>(vector + j);
                }
            const Floats totals = sum_each(sums);
            for (int i = 0; i < n; ++i) products.sums[t * rows.n_rows + first + i] = totals[i];
        }
    }

    // Advances one layer by one token; the new state replaces the old one.
    void advance_layer(std::int64_t layer, std::int64_t t) const {
        Number* next = layer_of(next_states, layer);
        const RnnNoise* noise = rows.noise;
        Product<Number> p = begin_product(next, stride);
        if (noise != nullptr) add_factors(p, noise->bias[layer]);
        if constexpr (Cell::kCell.gates > 1) {
            p.gate_stride = rnn.padded_hidden;
            p.vector_stride = rnn.layers * rows.n_rows * stride;
        }
        if constexpr (Cell::kCell.has_hidden_bias) {
            p.hidden_start = rnn.hidden_bias[layer];
            p.hidden_offset = noise != nullptr ? noise->hidden_bias[layer] : 0;
        }
        if (rows.signs != nullptr)
            add_signs(p, t, rows.signs->hidden_block[layer], rows.signs->hidden_pitch, rnn.hidden, rows.signs->hidden_amplitude);
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
        Cell::step(p, rows.n_rows);
        update_dots(layer, next, true);
    }

    bool has_logit_signs() const { return rows.signs != nullptr && rows.signs->logit_amplitude > 0.0f; }

    void compute_logits(std::int64_t t) const {
        const RnnNoise* noise = rows.noise;
        Product<Number> p = begin_product(scratch.logits, rnn.padded_columns);
        if (noise != nullptr) add_factors(p, noise->head_bias);
        if (has_logit_signs())
            add_signs(p, t, rows.signs->logit_block, rows.signs->logit_pitch, rnn.vocab, rows.signs->logit_amplitude);
        for (std::int64_t row = 0; row < rows.n_rows; ++row) scratch.starts[row] = rnn.head_bias;
        add_source(p, layer_of(next_states, rnn.layers - 1), rnn.head);
        add_terms(p, rnn.layers - 1, kHead, noise != nullptr ? &noise->head : nullptr);
        product<false>(p, rows.n_rows);
    }

    // Logits of tail column `column` for kLanes rows from `first` on; the rows that pad a tile come out as they may.
    Floats tail_logits(std::int64_t first, std::int64_t column) const {
        Floats logits = load<Floats>(tail_dots(column) + first) + rnn.head_bias[rnn.padded_columns + column];
        const auto n = static_cast<int>(smaller<std::int64_t>(rows.n_rows - first, kLanes));
        const std::int64_t token = rnn.vocab - rnn.tail + column;
        if (has_logit_signs())
            for (int i = 0; i < n; ++i) logits[i] += scratch.noise[(first + i) * noise_stride(rnn) + token];
        if (rows.noise == nullptr) return logits;
        for (int i = 0; i < n; ++i) {
            const float* factors = rows.factors + (first + i) * rows.noise->row_stride + token;
            logits[i] += factors[rows.noise->head_bias];
            for (std::int64_t k = 0; k < rank; ++k)
                logits[i] += dots(rnn.layers - 1, kHead, k)[first + i] * factors[rows.noise->head.out[k]];
        }
        return logits;
    }

    // The greatest logits, and the sums of exp(logit - greatest), of kLanes rows from `first` on.
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
        for (std::int64_t first = 0; first < rows.n_rows; first += kLanes) {
            Floats greatest, sums;
            softmax_sums(first, greatest, sums);
            const Floats normalizers = greatest + log_of(sums);
            const auto n = smaller<std::int64_t>(rows.n_rows - first, kLanes);
            for (std::int64_t i = 0; i < n; ++i) {
                const float rounded = normalizers[i] - logit(first + i, token(first + i, t + 1));
                // The sum of exp rounds to less than its greatest term where that is all of it. NaN stays.
                const float loss = rounded < 0.0f ? 0.0f : rounded;
                if (rows.losses != nullptr) rows.losses[first + i] += loss;
                if (rows.token_losses != nullptr) rows.token_losses[t * rows.n_rows + first + i] = loss;
            }
        }
    }

    void write_log_probabilities() const {
        for (std::int64_t first = 0; first < rows.n_rows; first += kLanes) {
            Floats greatest, sums;
            softmax_sums(first, greatest, sums);
            const Floats normalizers = greatest + log_of(sums);
            for (std::int64_t row = first; row < smaller(rows.n_rows, first + kLanes); ++row) {
                const float offset = normalizers[row - first];
                for (std::int64_t v = 0; v < rnn.vocab; ++v)
                    rows.log_probabilities[row * rnn.vocab + v] = logit(row, v) - offset;
            }
        }
    }

    void load_states() {
        const std::int64_t n = rnn.state_vectors * rows.n_rows;
        if constexpr (kIsFloat) {
            std::memcpy(states, rows.state, static_cast<std::size_t>(n * stride) * sizeof(float));
        } else {
            // Padding is the byte of zero in both buffers: products write only whole vectors of outputs.
            std::memset(states, kZeroByte, static_cast<std::size_t>(n * stride));
            std::memset(next_states, kZeroByte, static_cast<std::size_t>(n * stride));
            for (std::int64_t row = 0; row < n; ++row)
                for (std::int64_t j = 0; j < rnn.padded_hidden; j += kLanes) {
                    // An initial state is learned and may lie beyond what a byte can say.
                    const Floats state = load<Floats>(rows.state + row * rnn.padded_hidden + j);
                    store(states + row * stride + j, quantise(-at_most(-at_most(state, 1.0f), 1.0f)));
                }
        }
    }

    void run() {
        load_states();
        for (std::int64_t layer = 0; layer < rnn.layers; ++layer)
            update_dots(layer, layer_of(states, layer), false);
        for (std::int64_t t = 0; t < rows.n_tokens; ++t) {
            if (rnn.reset_token >= 0) reset_rows(t);
            if (rows.products != nullptr) multiply_states(t);
            for (std::int64_t layer = 0; layer < rnn.layers; ++layer) advance_layer(layer, t);
            const bool is_last = t + 1 == rows.n_tokens;
            const bool has_losses = rows.losses != nullptr || rows.token_losses != nullptr;
            if (has_losses || (is_last && rows.log_probabilities != nullptr)) compute_logits(t);
            if (has_losses) add_losses(t);
            if (is_last && rows.log_probabilities != nullptr) write_log_probabilities();
            Number* before = states;
            states = next_states;
            next_states = before;
        }
        if constexpr (kIsFloat)
            std::memcpy(rows.state, states,
                        static_cast<std::size_t>(rnn.state_vectors * rows.n_rows * stride) * sizeof(float));
    }
};

void run(const PackedRnn& rnn, const RnnRows& rows, std::byte* scratch) {
    switch (rnn.cell.kind) {
        case fedlearn::CellKind::kGru: return Run<Gated<GruCell>>(rnn, rows, scratch).run();
        case fedlearn::CellKind::kLstm: return Run<Gated<LstmCell>>(rnn, rows, scratch).run();
        case fedlearn::CellKind::kTanh: break;
    }
    if (rnn.is_int8) return Run<TanhCell<std::uint8_t>>(rnn, rows, scratch).run();
    Run<TanhCell<float>>(rnn, rows, scratch).run();
}

}  // namespace

#define FEDLEARN_JOIN_(a, b) a##b
#define FEDLEARN_JOIN(a, b) FEDLEARN_JOIN_(a, b)

namespace fedlearn {
extern const RnnKernels FEDLEARN_JOIN(rnn_, FEDLEARN_ISA);
const RnnKernels FEDLEARN_JOIN(rnn_, FEDLEARN_ISA) = {
    kLanes, tail_of, pack, pack_gates, pack_bytes, expand_signs, expand_bits, scratch_bytes, run};
}  // namespace fedlearn
