// Reported kernels: losses of a tanh RNN for many rows side by side. Compiled once per instruction set; the compiler may
// contract and reorder here, since losses are sent and never recomputed.

#include "products.h"

namespace {

using fedlearn::MatrixNoise;
using fedlearn::PackedRnn;
using fedlearn::RnnNoise;
using fedlearn::RnnRows;

std::int64_t tail_of(std::int64_t vocab) {
    const std::int64_t tail = vocab % kLanes;
    return vocab > kLanes && tail <= kLanes / 5 ? tail : 0;
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

template <class Number>
struct Scratch {
    Number* states[2];             // [layers][n_rows][stride] before and after the token that is read
    float* logits;                 // [n_rows][padded columns]
    float* dots;                   // [layers][3][kMaxRank][n_rows]: recurrent, input of this layer, head (last layer)
    float* tail;                   // [tail][n_rows] dots, then logits of the tail columns
    float* token_coefficients;     // [kMaxRank][n_rows]
    float* products;               // [n_rows] product of softmax sums whose logarithm is still owed
    const float** starts;          // [n_rows]
    std::int64_t bytes;
};

// Numbers between two rows of a state.
template <class Number>
std::int64_t state_stride(const PackedRnn& rnn) {
    return std::is_same_v<Number, float> ? rnn.padded_hidden
                                         : round_up<std::int64_t>(rnn.hidden, fedlearn::kByteMultiple);
}

template <class Number>
Scratch<Number> carve(std::byte* memory, const PackedRnn& rnn, std::int64_t n_rows) {
    const std::int64_t rows = round_up<std::int64_t>(n_rows, kLanes);
    auto* starts = reinterpret_cast<const float**>(memory);
    auto* at = reinterpret_cast<float*>(starts + rows);
    Scratch<Number> s{};
    s.starts = starts;
    const auto take = [&](std::int64_t n) {
        float* taken = at;
        at += n;
        return taken;
    };
    const std::int64_t state_bytes = rnn.layers * rows * state_stride<Number>(rnn) * std::int64_t{sizeof(Number)};
    for (Number*& states : s.states) states = reinterpret_cast<Number*>(take(state_bytes / 4));
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
    return rnn.is_int8 ? carve<std::uint8_t>(origin, rnn, n_rows).bytes : carve<float>(origin, rnn, n_rows).bytes;
}

// One run of rows through the network: where everything stands, and the steps it is made of.
template <class Number>
struct Run {
    static constexpr bool kIsFloat = std::is_same_v<Number, float>;

    const PackedRnn& rnn;
    const RnnRows& rows;
    Scratch<Number> scratch;
    std::int64_t stride;           // of a state's rows
    std::int64_t padded_rows;
    std::int64_t rank;
    std::int64_t sums_before_log;  // softmax sums that can be multiplied without overflow
    Number* states;                // [layers][n_rows][stride] before the token that is read; changes places with
    Number* next_states;           // the states after it

    Run(const PackedRnn& network, const RnnRows& run_rows, std::byte* memory)
        : rnn(network),
          rows(run_rows),
          scratch(carve<Number>(memory, network, run_rows.n_rows)),
          stride(state_stride<Number>(network)),
          padded_rows(round_up<std::int64_t>(run_rows.n_rows, kLanes)),
          rank(run_rows.noise != nullptr ? run_rows.noise->rank : 0),
          sums_before_log(1),
          states(scratch.states[0]),
          next_states(scratch.states[1]) {
        // A sum lies between 1 and V; stay below 1e30.
        for (float bound = static_cast<float>(rnn.vocab); bound * static_cast<float>(rnn.vocab) < 1e30f && sums_before_log < 64;
             bound *= static_cast<float>(rnn.vocab))
            ++sums_before_log;
    }

    float* dots(std::int64_t layer, int kind, std::int64_t k) const {
        return scratch.dots + ((layer * 3 + kind) * kMaxRank + k) * padded_rows;
    }

    Number* layer_of(Number* all, std::int64_t layer) const { return all + layer * rows.n_rows * stride; }

    std::uint16_t token(std::int64_t row, std::int64_t t) const { return rows.tokens[row * rows.token_stride + t]; }

    Product<Number> begin_product(void* outputs, std::int64_t output_stride, std::int64_t plain_offset) const {
        Product<Number> p{};
        p.start = scratch.starts;
        p.factors = rows.noise != nullptr ? rows.factors : nullptr;
        p.factor_stride = rows.noise != nullptr ? rows.noise->row_stride : 0;
        p.plain_offset = plain_offset;
        p.outputs = outputs;
        p.output_stride = output_stride;
        return p;
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
            scratch.starts[row] = rnn.embedding + read * rnn.padded_hidden;
            for (std::int64_t k = 0; k < rank; ++k)
                scratch.token_coefficients[k * padded_rows + row] =
                    rows.factors[row * rows.noise->row_stride + rows.noise->embedding.into[k] + read];
        }
    }

    // Advances one layer by one token; the new state replaces the old one.
    void advance_layer(std::int64_t layer, std::int64_t t) const {
        Number* next = layer_of(next_states, layer);
        const RnnNoise* noise = rows.noise;
        Product<Number> p = begin_product(next, stride, noise != nullptr ? noise->bias[layer] : kNoOffset);
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
        Product<Number> p = begin_product(scratch.logits, rnn.padded_columns, noise != nullptr ? noise->head_bias : kNoOffset);
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
                    rows.losses[row] += __builtin_logf(scratch.products[row]);
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
                const float offset = greatest[row - first] + __builtin_logf(sums[row - first]);
                for (std::int64_t v = 0; v < rnn.vocab; ++v)
                    rows.log_probabilities[row * rnn.vocab + v] = logit(row, v) - offset;
            }
        }
    }

    void load_states() {
        const std::int64_t n = rnn.layers * rows.n_rows;
        if constexpr (kIsFloat) {
            std::memcpy(states, rows.state, static_cast<std::size_t>(n * stride) * sizeof(float));
        } else {
            // Padding is the byte of zero in both buffers: products write only whole vectors of outputs.
            std::memset(states, 128, static_cast<std::size_t>(n * stride));
            std::memset(next_states, 128, static_cast<std::size_t>(n * stride));
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
        for (std::int64_t row = 0; row < rows.n_rows; ++row) scratch.products[row] = 1.0f;
        for (std::int64_t layer = 0; layer < rnn.layers; ++layer)
            update_dots(layer, layer_of(states, layer), false);
        for (std::int64_t t = 0; t < rows.n_tokens; ++t) {
            for (std::int64_t layer = 0; layer < rnn.layers; ++layer) advance_layer(layer, t);
            const bool is_last = t + 1 == rows.n_tokens;
            if (rows.losses != nullptr || (is_last && rows.log_probabilities != nullptr)) compute_logits();
            if (rows.losses != nullptr) add_losses(t);
            if (is_last && rows.log_probabilities != nullptr) write_log_probabilities();
            Number* before = states;
            states = next_states;
            next_states = before;
        }
        if constexpr (kIsFloat)
            std::memcpy(rows.state, states,
                        static_cast<std::size_t>(rnn.layers * rows.n_rows * stride) * sizeof(float));
    }
};

void rnn_run(const PackedRnn& rnn, const RnnRows& rows, std::byte* scratch) {
    if (rnn.is_int8) {
        Run<std::uint8_t>(rnn, rows, scratch).run();
    } else {
        Run<float>(rnn, rows, scratch).run();
    }
}

}  // namespace

#define FEDLEARN_JOIN_(a, b) a##b
#define FEDLEARN_JOIN(a, b) FEDLEARN_JOIN_(a, b)

namespace fedlearn {
extern const ReportedKernels FEDLEARN_JOIN(reported_, FEDLEARN_ISA);
const ReportedKernels FEDLEARN_JOIN(reported_, FEDLEARN_ISA) = {
    kLanes, tail_of, pack, pack_bytes, expand_signs, expand_bits, rnn_scratch_bytes, rnn_run};
}  // namespace fedlearn
