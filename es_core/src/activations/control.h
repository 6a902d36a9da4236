// Control variates of activity perturbation: what the noise does to the next few losses, predicted and taken off.
//
// To first order, noise xi on the inputs of a layer's units at token t changes the loss of token t + k by sigma xi . s,
// where s is the gradient of that loss. A chain of learned matrices predicts s in the way in which backprop would find it:
//     s(t, 0) = (1 - h_t^2) * (f_t B)              in the last layer; f_t a feature of the loss of token t
//     s(t, k) = (1 - h_t^2) * (s(t+1, k-1) R)      from the next token on
// and below the last layer from the layer above, too, by a matrix U of its own. The prediction is taken off the losses
// before they are credited, and s, discounted, is added to the estimate of the gradient: its expectation is the same
// whatever the matrices are, its variance is not. They learn from what is left: no weight of the model is read backwards.
#pragma once

#include <cstdint>
#include <vector>

#include "activations/trajectory.h"

namespace fedlearn {

// Where the control matrices stand in the tensor table: behind the model's. B is [features][H]; then for every layer, with
// two taps and more, R [H][H], and below the last layer U [H][H]; for logits that are perturbed [features][V]. Features
// are the residuals where the head is in closed form (V of them), else the target and the input (2 V).
struct ControlIndex {
    std::int64_t taps, layers;
    std::size_t head;

    ControlIndex(const Rnn& rnn, std::int64_t n_taps)
        : taps(n_taps), layers(rnn.layers), head(TensorIndex(rnn).initial_state + 1) {}

    std::size_t recurrent(std::int64_t layer) const {
        return head + 1 + static_cast<std::size_t>(layer * (taps > 1 ? 2 : 1));
    }
    std::size_t above(std::int64_t layer) const { return recurrent(layer) + (taps > 1 ? 1 : 0); }
    std::size_t logits() const { return above(layers - 1); }
};

// The control matrices with rows padded to whole vectors.
class ControlMatrices {
public:
    ControlMatrices(const Rnn& rnn, std::int64_t taps, bool has_residuals);

    std::int64_t taps() const { return index_.taps; }
    const ControlIndex& index() const { return index_; }
    bool has_residuals() const { return has_residuals_; }
    const float* at(std::size_t tensor) const { return rows_[tensor - index_.head].get(); }

private:
    ControlIndex index_;
    bool has_residuals_;
    std::vector<FloatBuffer> rows_;
};

// Predictions and gradients of one item: some consecutive texts of a block.
class ControlVariates {
public:
    ControlVariates(const Rnn& rnn, const Trials& trials, const ControlMatrices& matrices, std::int64_t max_texts);

    // Follows the chain from the losses of every token in the range.
    void start(const Trajectory& trajectory, const TextRange& range);

    // s of a layer's noise at row `row` of the range, for the loss `tap` tokens later; [padded H], zero where the row's
    // noise does not reach that loss.
    const float* hidden(std::int64_t layer, std::int64_t tap, std::int64_t row) const {
        return chain(layer, tap) + row * hidden_stride_;
    }
    // s of the noise on the logits of a row, [padded V].
    const float* logits(std::int64_t row) const { return logits_.get() + row * logit_stride_; }

    // Lets a text of the range count zero.
    void drop(std::int64_t text);

    // Adds what the residual estimates say of the control matrices, then s itself to the estimates: deltas
    // [rows][padded H] at a layer's inputs, and where the head is perturbed, of logits [rows][padded V].
    void finish_layer(GradientSums& sums, float* deltas, std::int64_t layer, float discount);
    void finish_logits(GradientSums& sums, float* deltas);

private:
    float* chain(std::int64_t layer, std::int64_t tap) const {
        return chain_.get() + (layer * matrices_.taps() + tap) * (max_rows_ + 1) * hidden_stride_;
    }
    void follow(std::int64_t layer, std::int64_t tap);
    void multiply(float* products, const float* rows, std::size_t tensor) const;
    void multiply_features(float* products, std::size_t tensor, std::int64_t stride) const;
    void add_features(GradientSums& sums, std::size_t tensor, const float* rows, std::int64_t stride) const;
    void add_gradient(GradientSums& sums, std::size_t tensor, const float* from) const;
    void add_taps(float* rows, std::int64_t layer, std::int64_t n_taps, float discount) const;
    bool goes_on(std::int64_t row) const { return losses_reached(rnn_, trials_, range_.text, row, 2) > 1; }

    const Rnn& rnn_;
    const Trials& trials_;
    const ControlMatrices& matrices_;
    std::int64_t hidden_stride_, logit_stride_, max_rows_;
    const Trajectory* trajectory_ = nullptr;
    TextRange range_{};
    std::int64_t n_rows_ = 0;
    FloatBuffer chain_;   // [layers][taps][rows and one of zeros][padded H]
    FloatBuffer slopes_;  // [layers][rows][padded H]
    FloatBuffer logits_;  // [rows][padded V]
    FloatBuffer errors_;  // [rows][padded H or V], the residual estimates times the slopes, negative
    FloatBuffer from_;    // [rows and one][padded H]
};

}  // namespace fedlearn
