// Control variates of activity perturbation: what the noise does to the next few losses, predicted and taken off.
//
// To first order, noise xi on the inputs of a layer's units at token t changes the loss of token t + k by sigma xi . s,
// with s = (1 - h^2) * (B_k f): h the units' unperturbed states, f a feature of token t + k, and B_k a matrix that is
// learned along with the weights. The prediction is taken off the losses before they are credited, and s, discounted, is
// added to the estimate of the gradient: its expectation is the same whatever B_k is, its variance is not. B_k learns
// from what is left: no weight of the model is read backwards.
#pragma once

#include <cstdint>
#include <vector>

#include "activations/trajectory.h"

namespace fedlearn {

// Where the control matrices stand in the tensor table: behind the model's, [features][H] for every layer and tap, then,
// for logits that are perturbed, [features][V]. Features are the residuals of token t + k where the head is in closed
// form (V of them), else its target and its input (2 V).
struct ControlIndex {
    std::int64_t taps;
    std::size_t first;
    std::size_t logits;

    ControlIndex(const Rnn& rnn, std::int64_t n_taps)
        : taps(n_taps),
          first(TensorIndex(rnn).initial_state + 1),
          logits(first + static_cast<std::size_t>(rnn.layers * n_taps)) {}

    std::size_t at(std::int64_t layer, std::int64_t tap) const {
        return first + static_cast<std::size_t>(layer * taps + tap);
    }
};

// The control matrices with rows padded to whole vectors.
class ControlMatrices {
public:
    ControlMatrices(const Rnn& rnn, std::int64_t taps, bool has_residuals);

    std::int64_t taps() const { return index_.taps; }
    const ControlIndex& index() const { return index_; }
    bool has_residuals() const { return has_residuals_; }
    const float* at(std::size_t tensor) const { return rows_[tensor - index_.first].get(); }

private:
    ControlIndex index_;
    bool has_residuals_;
    std::vector<FloatBuffer> rows_;
};

// Predictions and gradients of one item: some consecutive texts of a block.
class ControlVariates {
public:
    ControlVariates(const Rnn& rnn, const Trials& trials, const ControlMatrices& matrices, std::int64_t max_texts);

    // Multiplies the features of every token in the range with every control matrix.
    void start(const Trajectory& trajectory, const TextRange& range);

    // s of a layer's noise at row `row` of the range, for the loss `tap` tokens later; [padded H], valid until the next
    // call. The row's noise must reach that loss.
    const float* hidden(std::int64_t layer, std::int64_t tap, std::int64_t row);
    // s of the noise on the logits of a row, [padded V].
    const float* logits(std::int64_t row) const;

    // Lets a text of the range count zero.
    void drop(std::int64_t text);

    // Adds what the residual estimates say of the control matrices, then s itself to the estimates: deltas
    // [rows][padded H] at a layer's inputs, and where the head is perturbed, of logits [rows][padded V].
    void finish_layer(GradientSums& sums, float* deltas, std::int64_t layer, float discount);
    void finish_logits(GradientSums& sums, float* deltas);

private:
    const float* slopes(std::int64_t layer, std::int64_t row);
    void add_features(GradientSums& sums, std::size_t tensor, const float* rows, std::int64_t stride) const;
    float* products(std::int64_t layer, std::int64_t tap) const {
        return products_.get() + (layer * matrices_.taps() + tap) * n_rows_ * hidden_stride_;
    }

    const Rnn& rnn_;
    const Trials& trials_;
    const ControlMatrices& matrices_;
    std::int64_t hidden_stride_, logit_stride_;
    const Trajectory* trajectory_ = nullptr;
    TextRange range_{};
    std::int64_t n_rows_ = 0;
    FloatBuffer products_;         // [layers][taps][rows][padded H] features times control matrix, at the loss's row
    FloatBuffer logit_products_;   // [rows][padded V]
    FloatBuffer s_, slopes_;       // [padded H]
    FloatBuffer shifted_;          // [rows][padded H or V]
};

}  // namespace fedlearn
