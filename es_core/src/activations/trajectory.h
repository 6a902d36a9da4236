// What the unperturbed network does on the scored tokens, and the gradients that follow from it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory.h"
#include "rnn/evaluate.h"
#include "rnn/packing.h"

namespace fedlearn {

// States and residuals of every text, token by token; a text is one sequence of a group.
struct Trajectory {
    std::int64_t state_stride;     // floats of one token's states, [layers][padded H]
    std::int64_t residual_stride;  // padded V
    FloatBuffer before;            // [texts][scored][layers][padded H] states before a token is read, zero where it resets them
    FloatBuffer after;             // the same after it is read
    FloatBuffer residuals;         // [texts][scored][padded V] probabilities of `packed`'s head less one for the target

    // The residuals of a text from its first scored token on; a text has `scored` of them.
    float* residuals_of(std::int64_t text, std::int64_t scored) const { return residuals.get() + text * scored * residual_stride; }
};

// The trajectory from `states` [texts][layers][padded H] on; without residuals that buffer is there but not filled.
Trajectory trace(const PackedWeights& packed, const Trials& trials, const float* states, bool has_residuals,
                 int n_threads);

// Columns of a matrix, rounded up to whole vectors.
std::int64_t padded_columns(const RnnKernels& kernels, std::int64_t n);

// The token that is read at a row of consecutive texts' scored tokens, `text` the first; its target stands behind it.
const std::uint16_t* scored_tokens(const Trials& trials, std::int64_t text, std::int64_t row);

// How many losses the noise at a scored token can change, of `most` from its own on: none beyond the text's end, nor from
// a reset on, before which nothing is remembered.
std::int64_t losses_reached(const Rnn& rnn, const Trials& trials, std::int64_t text, std::int64_t row, std::int64_t most);

// Sums of gradients of all tensors, rows padded to whole vectors.
class GradientSums {
public:
    explicit GradientSums(const Rnn& rnn);

    void clear();
    float* at(std::size_t tensor) const { return sums_.get() + offsets_[tensor]; }
    std::int64_t stride(std::size_t tensor) const { return strides_[tensor]; }

    // totals [n_parameters] += round(factor * relative scale * sum); a sum that is no number counts zero.
    void add_rounded(std::span<std::int64_t> totals, double factor) const;

private:
    const Rnn& rnn_;
    std::vector<std::int64_t> offsets_, strides_;
    std::int64_t size_ = 0;
    FloatBuffer sums_;
};

// Rows of consecutive texts' tokens: `text` is the first, `n_texts` * scored the number of rows.
struct TextRange {
    std::int64_t text;
    std::int64_t n_texts;
};

// sums += gradients of a head's tensors, the weight and behind it the bias, from those at its logits, [rows][residual stride]
// of the range.
void add_head_gradient(GradientSums& sums, std::size_t weight, const Rnn& rnn, const Trials& trials,
                       const Trajectory& trajectory, const TextRange& range, const float* logit_deltas);

// sums += gradients of one layer's tensors, from the gradients at its inputs, deltas [rows][padded H].
void add_layer_gradient(GradientSums& sums, const Rnn& rnn, const Trials& trials, const Trajectory& trajectory,
                        const TextRange& range, std::int64_t layer, const float* deltas);

}  // namespace fedlearn
