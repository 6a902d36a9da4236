// What hidden units there are, as values: all that the core asks of a cell but its equations. Those stand twice: for
// vectors in a file that rnn_kernels.cpp includes, for one unit in evaluate_naive.cpp.
#pragma once

#include <cstdint>

namespace fedlearn {

enum class CellKind { kTanh, kGru, kLstm };

struct Cell {
    CellKind kind;
    const char* name;
    std::int64_t gates;          // rows of a matrix for each hidden unit
    std::int64_t state_vectors;  // of H numbers each, that a layer carries to the next token; layers read the first one
    bool has_hidden_bias;        // the last gate multiplies what comes of the state, which so has a bias [H] of its own
    bool has_int8;               // members can be evaluated in bytes
    bool has_activation_noise;   // noise can be on activations
};

inline constexpr Cell kTanh{CellKind::kTanh, "tanh", 1, 1, false, true, true};
inline constexpr Cell kGru{CellKind::kGru, "gru", 3, 1, true, false, false};
inline constexpr Cell kLstm{CellKind::kLstm, "lstm", 4, 2, false, false, false};
inline constexpr Cell kCells[] = {kTanh, kGru, kLstm};

}  // namespace fedlearn
