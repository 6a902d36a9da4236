// Hidden units with gates. Gates lie one behind the other: as [gates][padded H], or, in a matrix's panels, a vector of
// units each, so that all sums of a vector of units stay in registers.
//
// A cell is a struct with `kCell`, its value in rnn/cells.h, and
//     advance(sums, state)    Floats sums[sums_of(kCell)], state [state vectors]: from before the token to after it.
#pragma once

#include "rnn/cells.h"
#include "rnn/functions.h"
#include "rnn/products.h"

namespace {

[[gnu::always_inline]] inline Floats sigmoid_of(Floats x) {
    return reciprocal(power_of_two(at_most(x * -kLog2E, 64.0f)) + 1.0f);
}

// panels [padded outputs][inputs][gates]: vector of units, input, gate, unit of the vector.
void pack_gates(float* panels, const float* matrix, std::int64_t gates, std::int64_t outputs, std::int64_t inputs) {
    for (std::int64_t first = 0; first < outputs; first += kLanes)
        for (std::int64_t k = 0; k < inputs; ++k)
            for (std::int64_t gate = 0; gate < gates; ++gate)
                for (std::int64_t unit = first; unit < first + kLanes; ++unit)
                    *panels++ = unit < outputs ? matrix[(gate * outputs + unit) * inputs + k] : 0.0f;
}

// Sums of a unit: one a gate, and one more where the last gate keeps apart what comes of the state.
constexpr int sums_of(const fedlearn::Cell& cell) { return static_cast<int>(cell.gates) + cell.has_hidden_bias; }

// What a gate's product is added to.
enum class Side { kInput, kState };

template <class Cell, Side Of>
constexpr int sum_of(int gate) {
    return Of == Side::kState && gate + 1 == Cell::kCell.gates ? sums_of(Cell::kCell) - 1 : gate;
}

template <class Cell, Side Of, int Rows>
[[gnu::always_inline]] inline void accumulate_gates(Floats (&sums)[Rows][sums_of(Cell::kCell)],
                                                    const Source<float>& source, std::int64_t row, std::int64_t column) {
    constexpr int kGates = Cell::kCell.gates;
    const std::int64_t inputs = source.matrix->inputs;
    const float* panel = source.matrix->panels + column * inputs * kGates;
    const float* rows = source.rows + row * source.stride;
    Floats own[Rows][kGates];
    for (int i = 0; i < Rows; ++i)
        for (int gate = 0; gate < kGates; ++gate) own[i][gate] = sums[i][sum_of<Cell, Of>(gate)];
    for (std::int64_t k = 0; k < inputs; ++k) {
        Floats weights[kGates];
        for (int gate = 0; gate < kGates; ++gate) weights[gate] = load<Floats>(panel + (k * kGates + gate) * kLanes);
        for (int i = 0; i < Rows; ++i) {
            const float input = rows[i * source.stride + k];
            for (int gate = 0; gate < kGates; ++gate) own[i][gate] += input * weights[gate];
        }
    }
    for (int i = 0; i < Rows; ++i)
        for (int gate = 0; gate < kGates; ++gate) sums[i][sum_of<Cell, Of>(gate)] = own[i][gate];
}

// A function of its own, in which the sums stay in registers: inlined where there are 16, GCC spills them in its loop,
// which took up to 1.45 times as long. With 32 registers the call would cost two per cent.
template <class Cell, Side Of, int Rows>
[[gnu::noinline]] void accumulate_apart(Floats (&sums)[Rows][sums_of(Cell::kCell)], const Source<float>& source,
                                        std::int64_t row, std::int64_t column) {
    accumulate_gates<Cell, Of, Rows>(sums, source, row, column);
}

template <class Cell, Side Of, int Rows>
[[gnu::always_inline]] inline void add_source(Floats (&sums)[Rows][sums_of(Cell::kCell)], const Source<float>& source,
                                              std::int64_t row, std::int64_t column) {
    if constexpr (kRegisters == 32)
        accumulate_gates<Cell, Of, Rows>(sums, source, row, column);
    else
        accumulate_apart<Cell, Of, Rows>(sums, source, row, column);
}

// Adds `coefficient` times a vector of the row's factors, [gates][padded H] from `vectors` on.
template <class Cell, Side Of>
[[gnu::always_inline]] inline void add_gates(Floats (&sums)[sums_of(Cell::kCell)], float coefficient,
                                             const float* vectors, std::int64_t stride) {
    for (int gate = 0; gate < Cell::kCell.gates; ++gate)
        sums[sum_of<Cell, Of>(gate)] += coefficient * load<Floats>(vectors + gate * stride);
}

template <class Cell, int Rows>
[[gnu::always_inline]] inline void gated_tile(const Product<float>& p, std::int64_t row, std::int64_t column) {
    constexpr int kSums = sums_of(Cell::kCell);
    Floats sums[Rows][kSums] = {};
    for (int i = 0; i < Rows; ++i) {
        add_gates<Cell, Side::kInput>(sums[i], 1.0f, p.start[row + i] + column, p.gate_stride);
        if constexpr (Cell::kCell.has_hidden_bias) sums[i][kSums - 1] = load<Floats>(p.hidden_start + column);
        if (p.factors == nullptr) continue;
        const float* factors = p.factors + (row + i) * p.factor_stride + column;
        add_gates<Cell, Side::kInput>(sums[i], 1.0f, factors + p.plain_offset, p.gate_stride);
        if constexpr (Cell::kCell.has_hidden_bias) sums[i][kSums - 1] += load<Floats>(factors + p.hidden_offset);
        // The first half of the terms belongs to what is read, the second to the state.
        for (int term = 0; term < p.n_terms / 2; ++term) {
            const Term &input = p.terms[term], &recurrent = p.terms[p.n_terms / 2 + term];
            add_gates<Cell, Side::kInput>(sums[i], input.coefficients[row + i], factors + input.offset, p.gate_stride);
            add_gates<Cell, Side::kState>(sums[i], recurrent.coefficients[row + i], factors + recurrent.offset,
                                          p.gate_stride);
        }
    }
    const Source<float>& states = p.sources[p.n_sources - 1];
    if (p.n_sources > 1) add_source<Cell, Side::kInput, Rows>(sums, p.sources[0], row, column);
    add_source<Cell, Side::kState, Rows>(sums, states, row, column);
    for (int i = 0; i < Rows; ++i) {
        Floats state[Cell::kCell.state_vectors];
        const float* before = states.rows + (row + i) * states.stride + column;
        float* after = static_cast<float*>(p.outputs) + (row + i) * p.output_stride + column;
        for (int v = 0; v < Cell::kCell.state_vectors; ++v) state[v] = load<Floats>(before + v * p.vector_stride);
        Cell::advance(sums[i], state);
        for (int v = 0; v < Cell::kCell.state_vectors; ++v) store(after + v * p.vector_stride, state[v]);
    }
}

// How Run steps a cell with gates.
template <class Cell>
struct Gated : Cell {
    using Number = float;

    static void step(const Product<float>& p, std::int64_t n_rows) {
        constexpr int kRows = kRegisters == 32 ? 6 : 3;
        for (std::int64_t column = 0; column < p.gate_stride; column += kLanes) {
            std::int64_t row = 0;
            for (; row + kRows <= n_rows; row += kRows) gated_tile<Cell, kRows>(p, row, column);
            for (; row < n_rows; ++row) gated_tile<Cell, 1>(p, row, column);
        }
    }
};

}  // namespace
