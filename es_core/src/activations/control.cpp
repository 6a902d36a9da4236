#include "activations/control.h"

#include <algorithm>

#include "activations/kernels.h"
#include "isa.h"

namespace fedlearn {

namespace {

// sum [n] += row [n]
void add_row(float* sum, const float* row, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) sum[i] += row[i];
}

}  // namespace

ControlMatrices::ControlMatrices(const Rnn& rnn, std::int64_t taps, bool has_residuals)
    : index_(rnn, taps), has_residuals_(has_residuals) {
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
                                 std::int64_t max_texts)
    : rnn_(rnn),
      trials_(trials),
      matrices_(matrices),
      hidden_stride_(padded_columns(*rnn.isa->rnn, rnn.hidden)),
      logit_stride_(padded_columns(*rnn.isa->rnn, rnn.vocab)),
      max_rows_(max_texts * trials.scored) {
    chain_ = allocate<float>(rnn.layers * matrices.taps() * (max_rows_ + 1) * hidden_stride_);
    slopes_ = allocate<float>(rnn.layers * max_rows_ * hidden_stride_);
    logits_ = allocate<float>(max_rows_ * logit_stride_);
    errors_ = allocate<float>(max_rows_ * std::max(hidden_stride_, logit_stride_));
    from_ = allocate<float>((max_rows_ + 1) * hidden_stride_);
}

void ControlVariates::start(const Trajectory& trajectory, const TextRange& range) {
    trajectory_ = &trajectory;
    range_ = range;
    n_rows_ = range.n_texts * trials_.scored;
    for (std::int64_t layer = rnn_.layers - 1; layer >= 0; --layer) {
        for (std::int64_t row = 0; row < n_rows_; ++row) {
            const float* states = trajectory.after.get() + (range.text * trials_.scored + row) * trajectory.state_stride +
                                  layer * hidden_stride_;
            float* slopes = slopes_.get() + (layer * max_rows_ + row) * hidden_stride_;
            for (std::int64_t j = 0; j < hidden_stride_; ++j) slopes[j] = 1.0f - states[j] * states[j];
        }
        for (std::int64_t tap = 0; tap < matrices_.taps(); ++tap) follow(layer, tap);
    }
    if (matrices_.has_residuals()) return;
    std::fill_n(logits_.get(), n_rows_ * logit_stride_, 0.0f);
    multiply_features(logits_.get(), matrices_.index().logits(), logit_stride_);
}

// What `tap` tokens later changes a layer's noise at every row, from what was found for later tokens and the layer above.
void ControlVariates::follow(std::int64_t layer, std::int64_t tap) {
    const ControlIndex& index = matrices_.index();
    float* s = chain(layer, tap);
    std::fill_n(s, (n_rows_ + 1) * hidden_stride_, 0.0f);
    if (tap > 0) {
        multiply(s, chain(layer, tap - 1) + hidden_stride_, index.recurrent(layer));
        for (std::int64_t row = 0; row < n_rows_; ++row)
            if (!goes_on(row)) std::fill_n(s + row * hidden_stride_, hidden_stride_, 0.0f);
    }
    if (layer < rnn_.layers - 1)
        multiply(s, chain(layer + 1, tap), index.above(layer));
    else if (tap == 0)
        multiply_features(s, index.head, hidden_stride_);
    const float* slopes = slopes_.get() + layer * max_rows_ * hidden_stride_;
    for (std::int64_t i = 0; i < n_rows_ * hidden_stride_; ++i) s[i] *= slopes[i];
}

// products [rows][padded H] += rows [rows][padded H] times a matrix [H][H].
void ControlVariates::multiply(float* products, const float* rows, std::size_t tensor) const {
    rnn_.isa->activations->add_outer(products, hidden_stride_, {rows, 1, hidden_stride_}, n_rows_, matrices_.at(tensor),
                                     hidden_stride_, rnn_.hidden);
}

// products [rows][stride] += the features of every row times a matrix.
void ControlVariates::multiply_features(float* products, std::size_t tensor, std::int64_t stride) const {
    const float* matrix = matrices_.at(tensor);
    if (matrices_.has_residuals()) {
        const float* residuals = trajectory_->residuals.get() + range_.text * trials_.scored * trajectory_->residual_stride;
        rnn_.isa->activations->add_outer(products, stride, {residuals, 1, trajectory_->residual_stride}, n_rows_, matrix,
                                         stride, rnn_.vocab);
        return;
    }
    for (std::int64_t row = 0; row < n_rows_; ++row) {
        const std::uint16_t* tokens = scored_tokens(trials_, range_.text, row);
        add_row(products + row * stride, matrix + tokens[1] * stride, stride);
        add_row(products + row * stride, matrix + (rnn_.vocab + tokens[0]) * stride, stride);
    }
}

void ControlVariates::drop(std::int64_t text) {
    const std::int64_t first = text * trials_.scored;
    for (std::int64_t layer = 0; layer < rnn_.layers; ++layer)
        for (std::int64_t tap = 0; tap < matrices_.taps(); ++tap)
            std::fill_n(chain(layer, tap) + first * hidden_stride_, trials_.scored * hidden_stride_, 0.0f);
    std::fill_n(logits_.get() + first * logit_stride_, trials_.scored * logit_stride_, 0.0f);
}

void ControlVariates::add_features(GradientSums& sums, std::size_t tensor, const float* rows, std::int64_t stride) const {
    if (matrices_.has_residuals()) {
        const float* residuals =
            trajectory_->residuals.get() + range_.text * trials_.scored * trajectory_->residual_stride;
        rnn_.isa->activations->add_outer(sums.at(tensor), stride, {residuals, trajectory_->residual_stride, 1},
                                         rnn_.vocab, rows, stride, n_rows_);
        return;
    }
    for (std::int64_t row = 0; row < n_rows_; ++row) {
        const std::uint16_t* tokens = scored_tokens(trials_, range_.text, row);
        add_row(sums.at(tensor) + tokens[1] * stride, rows + row * stride, stride);
        add_row(sums.at(tensor) + (rnn_.vocab + tokens[0]) * stride, rows + row * stride, stride);
    }
}

// Of a matrix [H][H] that multiplies the rows `from`.
void ControlVariates::add_gradient(GradientSums& sums, std::size_t tensor, const float* from) const {
    rnn_.isa->activations->add_outer(sums.at(tensor), hidden_stride_, {from, hidden_stride_, 1}, rnn_.hidden,
                                     errors_.get(), hidden_stride_, n_rows_);
}

// rows [rows][padded H] += s of a layer for the first `n_taps` losses, each discounted.
void ControlVariates::add_taps(float* rows, std::int64_t layer, std::int64_t n_taps, float discount) const {
    float weight = 1.0f;
    for (std::int64_t tap = 0; tap < n_taps; ++tap, weight *= discount) {
        const float* s = chain(layer, tap);
        for (std::int64_t i = 0; i < n_rows_ * hidden_stride_; ++i) rows[i] += weight * s[i];
    }
}

void ControlVariates::finish_layer(GradientSums& sums, float* deltas, std::int64_t layer, float discount) {
    const ControlIndex& index = matrices_.index();
    const std::int64_t stride = hidden_stride_, taps = matrices_.taps();
    const float* slopes = slopes_.get() + layer * max_rows_ * stride;
    for (std::int64_t i = 0; i < n_rows_ * stride; ++i) errors_[static_cast<std::size_t>(i)] = -deltas[i] * slopes[i];
    const auto clear = [&] { std::fill_n(from_.get(), (n_rows_ + 1) * stride, 0.0f); };
    if (layer < rnn_.layers - 1) {
        clear();
        add_taps(from_.get(), layer + 1, taps, discount);
        add_gradient(sums, index.above(layer), from_.get());
    } else {
        add_features(sums, index.head, errors_.get(), stride);
    }
    if (taps > 1) {
        clear();
        add_taps(from_.get(), layer, taps - 1, discount);
        float* next = from_.get() + stride;  // of the token after each row's
        for (std::int64_t row = 0; row < n_rows_; ++row)
            for (std::int64_t j = 0; j < stride; ++j) next[row * stride + j] *= goes_on(row) ? discount : 0.0f;
        add_gradient(sums, index.recurrent(layer), next);
    }
    add_taps(deltas, layer, taps, discount);
}

void ControlVariates::finish_logits(GradientSums& sums, float* deltas) {
    for (std::int64_t i = 0; i < n_rows_ * logit_stride_; ++i) errors_[static_cast<std::size_t>(i)] = -deltas[i];
    add_features(sums, matrices_.index().logits(), errors_.get(), logit_stride_);
    add_row(deltas, logits_.get(), n_rows_ * logit_stride_);
}

}  // namespace fedlearn
