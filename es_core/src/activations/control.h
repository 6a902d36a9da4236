// Control variates of activity perturbation: what noise does to the losses that follow, predicted and taken off.
//
// To first order, noise xi on the inputs of a layer's units at token t changes the discounted losses from t on by
// sigma xi . z, where z is their gradient, and a state before t that is off by e changes them by e . y. A chain of learned
// matrices predicts both, as backprop would find them:
//     z(t) = (1 - h_t^2) * (f_t B + discount * y(t+1))        in the last layer; f_t the residuals of token t's prediction
//     y(t) = z(t) R
// and below the last layer from z of the layer above, by a matrix U in place of f B. Where the head is perturbed, f_t are the
// residuals of a readout of its own, which learns from them what the next token is. Both predictions are taken off the
// losses that a sign is credited with. What is left is the correction: the matrices learn from it (no weight of the model is
// read backwards), and the estimate of the gradient is z plus the correction times its weight. At weight 1 the expectation
// is the same whatever the matrices are; below it, there is less of the correction's variance and some of their bias.
#pragma once

#include <cstdint>
#include <vector>

#include "activations/activity.h"
#include "activations/trajectory.h"

namespace fedlearn {

// Positions of the control matrices in the tensor table, behind the model's: B [V][H]; for every layer R [H][H] and,
// below the last, U [H][H]; where logits are perturbed, the readout [V][H], its bias [V] and a matrix [V][V] for logits.
struct ControlIndex {
    std::size_t head, n_layers;

    explicit ControlIndex(const Rnn& rnn)
        : head(TensorIndex(rnn).initial_state + 1), n_layers(static_cast<std::size_t>(rnn.layers)) {}

    std::size_t next(std::int64_t layer) const { return head + 1 + 2 * static_cast<std::size_t>(layer); }
    std::size_t above(std::int64_t layer) const { return next(layer) + 1; }
    std::size_t readout() const { return head + 2 * n_layers; }
    std::size_t logits() const { return readout() + 2; }
};

// The control matrices with rows padded to whole vectors.
class ControlMatrices {
public:
    // Those that stand in the tensor table, which may be none.
    explicit ControlMatrices(const Rnn& rnn);

    bool is_empty() const { return rows_.empty(); }
    const ControlIndex& index() const { return index_; }
    const float* at(std::size_t tensor) const { return rows_[tensor - index_.head].get(); }

private:
    ControlIndex index_;
    std::vector<FloatBuffer> rows_;
};

// Predictions and gradients of one item: some consecutive texts of a block. A row is one of their scored tokens.
class ControlVariates {
public:
    ControlVariates(const Rnn& rnn, const Trials& trials, const ControlMatrices& matrices,
                    const ActivationNoise& noise, std::int64_t max_texts);

    // Follows the chain back from the losses of every text in the range.
    void start(const Trajectory& trajectory, const TextRange& range);

    // z of a layer's noise at a row, [padded H].
    const float* noise(std::int64_t layer, std::int64_t row) const { return chain_.get() + at(layer, row); }
    // y of a layer's state before a row's token, [padded H]; zero where the token resets the state.
    const float* state(std::int64_t layer, std::int64_t row) const { return states_.get() + at(layer, row); }
    std::int64_t row_stride() const { return hidden_stride_; }
    std::int64_t layer_stride() const { return at(1, 0); }
    // z of the noise on the logits of a row, [padded V].
    const float* logits(std::int64_t row) const { return logits_.get() + row * logit_stride_; }

    // Lets a text of the range count zero, once its members have run.
    void drop(std::int64_t text);

    // Adds what corrections say of the control matrices, then makes estimates of them: deltas [rows][padded H] at a layer's
    // inputs, and where the head is perturbed, of logits [rows][padded V]. Those count in full: the prediction is made of the
    // readout's residuals, and without corrections the head would never hear of its own.
    void finish_layer(GradientSums& sums, float* deltas, std::int64_t layer);
    void finish_logits(GradientSums& sums, float* deltas);

private:
    std::int64_t at(std::int64_t layer, std::int64_t row) const { return (layer * (max_rows_ + 1) + row) * hidden_stride_; }
    const float* residuals() const;
    void fill_slopes(std::int64_t layer);
    void follow(std::int64_t layer);
    // A layer's states after each row's token, [rows] state_stride apart.
    const float* states_after(std::int64_t layer) const;
    void multiply_residuals(float* products, std::size_t tensor, std::int64_t stride) const;
    void add_gradient(GradientSums& sums, std::size_t tensor, const float* from, std::int64_t n, std::int64_t from_stride,
                      std::int64_t stride) const;

    const Rnn& rnn_;
    const Trials& trials_;
    const ControlMatrices& matrices_;
    float discount_, correction_;
    bool perturbs_logits_;
    std::int64_t hidden_stride_, logit_stride_, max_rows_;
    const Trajectory* trajectory_ = nullptr;
    TextRange range_{};
    std::int64_t n_rows_ = 0;
    FloatBuffer chain_;   // [layers][rows and one of zeros][padded H] z
    FloatBuffer states_;  // the same of y
    FloatBuffer slopes_;  // [layers][rows and one][padded H]
    FloatBuffer logits_;  // [rows][padded V]
    FloatBuffer errors_;  // [rows][padded H or V] what corrections say that a product lacks, negative
};

}  // namespace fedlearn
