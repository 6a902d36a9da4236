// The LSTM's hidden units, as torch.nn.LSTM has them; of its two biases there is the sum:
//     input  = sigmoid(W_ii x + W_hi h + b_i)            forget = sigmoid(W_if x + W_hf h + b_f)
//     new    = tanh(W_ig x + W_hg h + b_g)               output = sigmoid(W_io x + W_ho h + b_o)
//     c'     = forget * c + input * new                  h'     = output * tanh(c')
#pragma once

#include "rnn/gates.h"

namespace {

struct LstmCell {
    static constexpr fedlearn::Cell kCell = fedlearn::kLstm;

    // Sums: input, forget, new, output. State: h, c.
    [[gnu::always_inline]] static void advance(const Floats (&sums)[4], Floats (&state)[2]) {
        state[1] = sigmoid_of(sums[1]) * state[1] + sigmoid_of(sums[0]) * tanh_of(sums[2]);
        state[0] = sigmoid_of(sums[3]) * tanh_of(state[1]);
    }
};

}  // namespace
