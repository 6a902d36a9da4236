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
    for (std::size_t t = index_.first; t < rnn.tensors.size(); ++t) {
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
      logit_stride_(padded_columns(*rnn.isa->rnn, rnn.vocab)) {
    const std::int64_t max_rows = max_texts * trials.scored;
    products_ = allocate<float>(rnn.layers * matrices.taps() * max_rows * hidden_stride_);
    logit_products_ = allocate<float>(max_rows * logit_stride_);
    s_ = allocate<float>(hidden_stride_);
    slopes_ = allocate<float>(hidden_stride_);
    shifted_ = allocate<float>(max_rows * std::max(hidden_stride_, logit_stride_));
}

void ControlVariates::start(const Trajectory& trajectory, const TextRange& range) {
    trajectory_ = &trajectory;
    range_ = range;
    n_rows_ = range.n_texts * trials_.scored;
    const auto fill = [&](float* products, std::size_t tensor, std::int64_t stride) {
        const float* matrix = matrices_.at(tensor);
        std::fill_n(products, n_rows_ * stride, 0.0f);
        if (matrices_.has_residuals()) {
            const float* residuals =
                trajectory.residuals.get() + range.text * trials_.scored * trajectory.residual_stride;
            rnn_.isa->activations->add_outer(products, stride, {residuals, 1, trajectory.residual_stride}, n_rows_,
                                              matrix, stride, rnn_.vocab);
            return;
        }
        for (std::int64_t row = 0; row < n_rows_; ++row) {
            const std::uint16_t* tokens = scored_tokens(trials_, range.text, row);
            add_row(products + row * stride, matrix + tokens[1] * stride, stride);
            add_row(products + row * stride, matrix + (rnn_.vocab + tokens[0]) * stride, stride);
        }
    };
    for (std::int64_t layer = 0; layer < rnn_.layers; ++layer)
        for (std::int64_t tap = 0; tap < matrices_.taps(); ++tap)
            fill(products(layer, tap), matrices_.index().at(layer, tap), hidden_stride_);
    if (!matrices_.has_residuals()) fill(logit_products_.get(), matrices_.index().logits, logit_stride_);
}

const float* ControlVariates::slopes(std::int64_t layer, std::int64_t row) {
    const float* states = trajectory_->after.get() +
                          (range_.text * trials_.scored + row) * trajectory_->state_stride + layer * hidden_stride_;
    for (std::int64_t j = 0; j < hidden_stride_; ++j) slopes_[static_cast<std::size_t>(j)] = 1.0f - states[j] * states[j];
    return slopes_.get();
}

const float* ControlVariates::hidden(std::int64_t layer, std::int64_t tap, std::int64_t row) {
    const float* product = products(layer, tap) + (row + tap) * hidden_stride_;
    const float* slope = slopes(layer, row);
    for (std::int64_t j = 0; j < hidden_stride_; ++j) s_[static_cast<std::size_t>(j)] = product[j] * slope[j];
    return s_.get();
}

void ControlVariates::drop(std::int64_t text) {
    const std::int64_t first = text * trials_.scored;
    for (std::int64_t layer = 0; layer < rnn_.layers; ++layer)
        for (std::int64_t tap = 0; tap < matrices_.taps(); ++tap)
            std::fill_n(products(layer, tap) + first * hidden_stride_, trials_.scored * hidden_stride_, 0.0f);
    std::fill_n(logit_products_.get() + first * logit_stride_, trials_.scored * logit_stride_, 0.0f);
}

const float* ControlVariates::logits(std::int64_t row) const { return logit_products_.get() + row * logit_stride_; }

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

void ControlVariates::finish_layer(GradientSums& sums, float* deltas, std::int64_t layer, float discount) {
    const std::int64_t scored = trials_.scored, stride = hidden_stride_;
    const auto reaches = [&](std::int64_t row, std::int64_t tap) {
        return losses_reached(rnn_, trials_, range_.text, row, tap + 1) > tap;
    };
    float weight = 1.0f;
    for (std::int64_t tap = 0; tap < matrices_.taps(); ++tap, weight *= discount) {
        // Rows where the loss is; zero where no noise of `tap` tokens earlier reaches it.
        for (std::int64_t row = 0; row < n_rows_; ++row) {
            float* shifted = shifted_.get() + row * stride;
            if (row % scored < tap || !reaches(row - tap, tap)) {
                std::fill_n(shifted, stride, 0.0f);
                continue;
            }
            const float* slope = slopes(layer, row - tap);
            const float* delta = deltas + (row - tap) * stride;
            for (std::int64_t j = 0; j < stride; ++j) shifted[j] = -weight * delta[j] * slope[j];
        }
        add_features(sums, matrices_.index().at(layer, tap), shifted_.get(), stride);
    }
    weight = 1.0f;
    for (std::int64_t tap = 0; tap < matrices_.taps(); ++tap, weight *= discount)
        for (std::int64_t row = 0; row < n_rows_; ++row) {
            if (!reaches(row, tap)) continue;
            const float* s = hidden(layer, tap, row);
            for (std::int64_t j = 0; j < stride; ++j) deltas[row * stride + j] += weight * s[j];
        }
}

void ControlVariates::finish_logits(GradientSums& sums, float* deltas) {
    for (std::int64_t i = 0; i < n_rows_ * logit_stride_; ++i) shifted_[static_cast<std::size_t>(i)] = -deltas[i];
    add_features(sums, matrices_.index().logits, shifted_.get(), logit_stride_);
    add_row(deltas, logit_products_.get(), n_rows_ * logit_stride_);
}

}  // namespace fedlearn
