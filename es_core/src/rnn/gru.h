// The GRU's hidden units, as torch.nn.GRU has them:
//     reset  = sigmoid(W_ir x + W_hr h + b_r)            update = sigmoid(W_iz x + W_hz h + b_z)
//     new    = tanh(W_in x + b_n + reset * (W_hn h + b_hn))
//     h'     = (1 - update) * new + update * h
#pragma once

#include "rnn/gates.h"

namespace {

struct GruCell {
    static constexpr fedlearn::Cell kCell = fedlearn::kGru;

    // Sums: reset, update, new from x, new from h.
    [[gnu::always_inline]] static void advance(const Floats (&sums)[4], Floats (&state)[1]) {
        const Floats fresh = tanh_of(sums[2] + sigmoid_of(sums[0]) * sums[3]);
        state[0] = fresh + sigmoid_of(sums[1]) * (state[0] - fresh);
    }
};

}  // namespace
