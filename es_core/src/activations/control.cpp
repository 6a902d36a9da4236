#include "activations/control.h"

#include <algorithm>

#include "activations/kernels.h"
#include "isa.h"

namespace fedlearn {

ControlMatrices::ControlMatrices(const Rnn& rnn) : index_(rnn) {
    for (std::size_t t = index_.head; t < rnn.tensors.size(); ++t) {
        const Tensor& tensor = rnn.tensors[t];
        const std::int64_t stride = padded_columns(*rnn.isa->rnn, tensor.columns);
        FloatBuffer& rows = rows_.emplace_back(allocate<float>(tensor.rows * stride));
        std::fill_n(rows.get(), tensor.rows * stride, 0.0f);
        for (std::int64_t row = 0; row < tensor.rows; ++row)
            std::copy_n(rnn.weights.data() + tensor.offset + row * tensor.columns, tensor.columns,
                        rows.get() + row * stride);
    }
}

ControlVariates::ControlVariates(const Rnn& rnn, const Trials& trials, const ControlMatrices& matrices,
                                 const ActivationNoise& noise, std::int64_t max_texts)
    : rnn_(rnn),
      trials_(trials),
      matrices_(matrices),
      discount_(noise.discount),
      correction_(noise.correction),
      perturbs_logits_(noise.perturbs_logits()),
      hidden_stride_(padded_columns(*rnn.isa->rnn, rnn.hidden)),
      logit_stride_(padded_columns(*rnn.isa->rnn, rnn.vocab)),
      max_rows_(matrices.is_empty() ? 0 : max_texts * trials.scored) {
    chain_ = allocate<float>(at(rnn.layers, 0));
    states_ = allocate<float>(at(rnn.layers, 0));
    slopes_ = allocate<float>(at(rnn.layers, 0));
    logits_ = allocate<float>(max_rows_ * logit_stride_);
    errors_ = allocate<float>(max_rows_ * std::max(hidden_stride_, logit_stride_));
}

void ControlVariates::start(const Trajectory& trajectory, const TextRange& range) {
    trajectory_ = &trajectory;
    range_ = range;
    n_rows_ = range.n_texts * trials_.scored;
    for (std::int64_t layer = rnn_.layers - 1; layer >= 0; --layer) {
        fill_slopes(layer);
        follow(layer);
    }
    if (!perturbs_logits_) return;
    std::fill_n(logits_.get(), n_rows_ * logit_stride_, 0.0f);
    multiply_residuals(logits_.get(), matrices_.index().logits(), logit_stride_);
}

// The range's, [rows][residual stride].
const float* ControlVariates::residuals() const {
    return trajectory_->residuals_of(range_.text, trials_.scored);
}

void ControlVariates::fill_slopes(std::int64_t layer) {
    for (std::int64_t row = 0; row < n_rows_; ++row) {
        const float* states = states_after(layer) + row * trajectory_->state_stride;
        float* slopes = slopes_.get() + at(layer, row);
        for (std::int64_t j = 0; j < hidden_stride_; ++j) slopes[j] = 1.0f - states[j] * states[j];
    }
}

// z and y of one layer, token by token backwards for all texts side by side, once the layer above has them.
void ControlVariates::follow(std::int64_t layer) {
    const ControlIndex& index = matrices_.index();
    const ActivationKernels& kernels = *rnn_.isa->activations;
    const std::int64_t stride = hidden_stride_, scored = trials_.scored;
    float* z = chain_.get() + at(layer, 0);
    float* y = states_.get() + at(layer, 0);
    std::fill_n(z, (n_rows_ + 1) * stride, 0.0f);
    std::fill_n(y, (n_rows_ + 1) * stride, 0.0f);
    if (layer < rnn_.layers - 1)
        kernels.add_outer(z, stride, {noise(layer + 1, 0), 1, stride}, n_rows_, matrices_.at(index.above(layer)), stride,
                          rnn_.hidden, stride);
    else
        multiply_residuals(z, index.head, stride);
    // Where a text ends, y of the next one's first token is still zero; a state that is reset has none.
    for (std::int64_t t = scored - 1; t >= 0; --t) {
        for (std::int64_t row = t; row < n_rows_; row += scored) {
            const float* slopes = slopes_.get() + at(layer, row);
            for (std::int64_t j = 0; j < stride; ++j)
                z[row * stride + j] = slopes[j] * (z[row * stride + j] + discount_ * y[(row + 1) * stride + j]);
        }
        kernels.add_outer(y + t * stride, scored * stride, {z + t * stride, 1, scored * stride}, range_.n_texts,
                          matrices_.at(index.next(layer)), stride, rnn_.hidden, stride);
        for (std::int64_t row = t; row < n_rows_; row += scored)
            if (*scored_tokens(trials_, range_.text, row) == rnn_.reset_token) std::fill_n(y + row * stride, stride, 0.0f);
    }
}

const float* ControlVariates::states_after(std::int64_t layer) const {
    return trajectory_->after.get() + range_.text * trials_.scored * trajectory_->state_stride + layer * hidden_stride_;
}

// products [rows][stride] += the residuals of every row times a matrix.
void ControlVariates::multiply_residuals(float* products, std::size_t tensor, std::int64_t stride) const {
    rnn_.isa->activations->add_outer(products, stride, {residuals(), 1, trajectory_->residual_stride}, n_rows_,
                                     matrices_.at(tensor), stride, rnn_.vocab, stride);
}

void ControlVariates::drop(std::int64_t text) {
    const std::int64_t first = text * trials_.scored;
    for (std::int64_t layer = 0; layer < rnn_.layers; ++layer)
        std::fill_n(chain_.get() + at(layer, first), trials_.scored * hidden_stride_, 0.0f);
    std::fill_n(logits_.get() + first * logit_stride_, trials_.scored * logit_stride_, 0.0f);
}

// sums of a matrix [n][columns] that multiplies the rows `from` [rows][from_stride] += what the errors [rows][stride] say of
// their products.
void ControlVariates::add_gradient(GradientSums& sums, std::size_t tensor, const float* from, std::int64_t n,
                                   std::int64_t from_stride, std::int64_t stride) const {
    rnn_.isa->activations->add_outer(sums.at(tensor), stride, {from, from_stride, 1}, n, errors_.get(), stride, n_rows_,
                                     stride);
}

void ControlVariates::finish_layer(GradientSums& sums, float* deltas, std::int64_t layer) {
    const ControlIndex& index = matrices_.index();
    const std::int64_t stride = hidden_stride_;
    const float* slopes = slopes_.get() + at(layer, 0);
    float* errors = errors_.get();
    for (std::int64_t i = 0; i < n_rows_ * stride; ++i) errors[i] = -deltas[i] * slopes[i];
    if (layer < rnn_.layers - 1)
        add_gradient(sums, index.above(layer), noise(layer + 1, 0), rnn_.hidden, stride, stride);
    else
        add_gradient(sums, index.head, residuals(), rnn_.vocab, trajectory_->residual_stride, stride);
    for (std::int64_t row = 0; row < n_rows_; ++row) {
        const float later = losses_reached(rnn_, trials_, range_.text, row, 2) > 1 ? discount_ : 0.0f;
        for (std::int64_t j = 0; j < stride; ++j) errors[row * stride + j] *= later;
    }
    add_gradient(sums, index.next(layer), noise(layer, 1), rnn_.hidden, stride, stride);
    for (std::int64_t i = 0; i < n_rows_ * stride; ++i) deltas[i] = noise(layer, 0)[i] + correction_ * deltas[i];
}

void ControlVariates::finish_logits(GradientSums& sums, float* deltas) {
    for (std::int64_t i = 0; i < n_rows_ * logit_stride_; ++i) errors_[static_cast<std::size_t>(i)] = -deltas[i];
    add_gradient(sums, matrices_.index().logits(), residuals(), rnn_.vocab, trajectory_->residual_stride, logit_stride_);
    rnn_.isa->activations->add_rows(deltas, logits_.get(), 1, n_rows_ * logit_stride_);
}

}  // namespace fedlearn
