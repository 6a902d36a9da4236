// The GRU's hidden units, as torch.nn.GRU has them:
//     reset  = sigmoid(W_ir x + W_hr h + b_r)            update = sigmoid(W_iz x + W_hz h + b_z)
//     new    = tanh(W_in x + b_n + reset * (W_hn h + b_hn))
//     h'     = (1 - update) * new + update * h
// Gates lie one behind the other, reset, update, new: as [3][padded H], or, in a matrix's panels, a vector of units each,
// so that all sums of a vector of units stay in registers.
#pragma once

#include "rnn/functions.h"
#include "rnn/products.h"

namespace {

constexpr int kGates = 3;
constexpr int kGruSums = 4;  // reset, update, new from x, new from h

[[gnu::always_inline]] inline Floats sigmoid_of(Floats x) {
    return reciprocal(power_of_two(at_most(x * -kLog2E, 64.0f)) + 1.0f);
}

// panels [padded outputs][inputs][3]: vector of units, input, gate, unit of the vector.
void pack_gates(float* panels, const float* matrix, std::int64_t outputs, std::int64_t inputs) {
    for (std::int64_t first = 0; first < outputs; first += kLanes)
        for (std::int64_t k = 0; k < inputs; ++k)
            for (std::int64_t gate = 0; gate < kGates; ++gate)
                for (std::int64_t unit = first; unit < first + kLanes; ++unit)
                    *panels++ = unit < outputs ? matrix[(gate * outputs + unit) * inputs + k] : 0.0f;
}

// Adds a source's product to the sums of reset and update, and to number `New` of the two of the new state.
template <int Rows, int New>
[[gnu::always_inline]] inline void accumulate_gates(Floats (&sums)[Rows][kGruSums], const Source<float>& source,
                                                    std::int64_t row, std::int64_t column) {
    const std::int64_t inputs = source.matrix->inputs;
    const float* panel = source.matrix->panels + column * inputs * kGates;
    const float* rows = source.rows + row * source.stride;
    for (std::int64_t k = 0; k < inputs; ++k) {
        Floats weights[kGates];
        for (int gate = 0; gate < kGates; ++gate) weights[gate] = load<Floats>(panel + (k * kGates + gate) * kLanes);
        for (int i = 0; i < Rows; ++i) {
            const float input = rows[i * source.stride + k];
            sums[i][0] += input * weights[0];
            sums[i][1] += input * weights[1];
            sums[i][New] += input * weights[2];
        }
    }
}

// Adds `coefficient` times a vector of the row's factors, [3][padded H] from `vectors` on.
template <int New>
[[gnu::always_inline]] inline void add_gates(Floats (&sums)[kGruSums], float coefficient, const float* vectors,
                                             std::int64_t stride) {
    sums[0] += coefficient * load<Floats>(vectors);
    sums[1] += coefficient * load<Floats>(vectors + stride);
    sums[New] += coefficient * load<Floats>(vectors + 2 * stride);
}

template <int Rows>
[[gnu::always_inline]] inline void gru_tile(const Product<float>& p, std::int64_t row, std::int64_t column) {
    Floats sums[Rows][kGruSums] = {};
    for (int i = 0; i < Rows; ++i) {
        add_gates<2>(sums[i], 1.0f, p.start[row + i] + column, p.gate_stride);
        sums[i][3] = load<Floats>(p.hidden_start + column);
        if (p.factors == nullptr) continue;
        const float* factors = p.factors + (row + i) * p.factor_stride + column;
        add_gates<2>(sums[i], 1.0f, factors + p.plain_offset, p.gate_stride);
        sums[i][3] += load<Floats>(factors + p.hidden_offset);
        // The first half of the terms belongs to what is read, the second to the state.
        for (int term = 0; term < p.n_terms / 2; ++term) {
            const Term &input = p.terms[term], &recurrent = p.terms[p.n_terms / 2 + term];
            add_gates<2>(sums[i], input.coefficients[row + i], factors + input.offset, p.gate_stride);
            add_gates<3>(sums[i], recurrent.coefficients[row + i], factors + recurrent.offset, p.gate_stride);
        }
    }
    const Source<float>& states = p.sources[p.n_sources - 1];
    if (p.n_sources > 1) accumulate_gates<Rows, 2>(sums, p.sources[0], row, column);
    accumulate_gates<Rows, 3>(sums, states, row, column);
    for (int i = 0; i < Rows; ++i) {
        const Floats fresh = tanh_of(sums[i][2] + sigmoid_of(sums[i][0]) * sums[i][3]);
        const Floats before = load<Floats>(states.rows + (row + i) * states.stride + column);
        store(static_cast<float*>(p.outputs) + (row + i) * p.output_stride + column,
              fresh + sigmoid_of(sums[i][1]) * (before - fresh));
    }
}

struct GruCell {
    using Number = float;
    static constexpr int kGates = ::kGates;

    static void step(const Product<float>& p, std::int64_t n_rows) {
        constexpr int kRows = kRegisters == 32 ? 6 : 3;
        for (std::int64_t column = 0; column < p.gate_stride; column += kLanes) {
            std::int64_t row = 0;
            for (; row + kRows <= n_rows; row += kRows) gru_tile<kRows>(p, row, column);
            for (; row < n_rows; ++row) gru_tile<1>(p, row, column);
        }
    }
};

}  // namespace
