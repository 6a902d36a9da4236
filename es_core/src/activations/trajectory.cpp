#include "activations/trajectory.h"

#include <algorithm>
#include <cmath>

#include "activations/kernels.h"
#include "isa.h"
#include "threads.h"

namespace fedlearn {

namespace {

// residual [padded V] <- probabilities less one for the target; zero beyond V.
void fill_residual(float* residual, const float* log_probabilities, std::int64_t vocab, std::int64_t stride,
                   std::uint16_t target) {
    for (std::int64_t v = 0; v < vocab; ++v) residual[v] = std::exp(log_probabilities[v]);
    std::fill(residual + vocab, residual + stride, 0.0f);
    residual[target] -= 1.0f;
}

}  // namespace

std::int64_t padded_columns(const RnnKernels& kernels, std::int64_t n) {
    return (n + kernels.lanes - 1) / kernels.lanes * kernels.lanes;
}

const std::uint16_t* scored_tokens(const Trials& trials, std::int64_t text, std::int64_t row) {
    const std::int64_t length = trials.context + trials.scored + 1;
    return trials.tokens + (text + row / trials.scored) * length + trials.context + row % trials.scored;
}

std::int64_t losses_reached(const Rnn& rnn, const Trials& trials, std::int64_t text, std::int64_t row, std::int64_t most) {
    const std::uint16_t* tokens = scored_tokens(trials, text, row);
    most = std::min(most, trials.scored - row % trials.scored);
    std::int64_t n = 1;
    while (n < most && tokens[n] != rnn.reset_token) ++n;
    return n;
}

Trajectory trace(const PackedWeights& packed, const Trials& trials, const float* states, bool has_residuals,
                 int n_threads) {
    const PackedRnn& rnn = packed.view();
    const RnnKernels& kernels = packed.kernels();
    const std::int64_t n_texts = trials.n_groups * trials.batch_size, scored = trials.scored;
    const std::int64_t state_stride = rnn.state_vectors * rnn.padded_hidden, residual_stride = padded_columns(kernels, rnn.vocab);
    Trajectory trajectory{state_stride, residual_stride, allocate<float>(n_texts * scored * state_stride),
                          allocate<float>(n_texts * scored * state_stride),
                          allocate<float>(n_texts * scored * residual_stride)};
    const std::int64_t most_rows = context_rows(n_texts, n_threads), n_items = (n_texts + most_rows - 1) / most_rows;
    parallel_for(n_items, thread_count(n_threads, n_items), [&](int, std::int64_t item) {
        const std::int64_t first = item * most_rows, n_rows = std::min(most_rows, n_texts - first);
        const FloatBuffer state = allocate<float>(n_rows * state_stride);
        const FloatBuffer log_probabilities = allocate<float>(n_rows * rnn.vocab);
        const ByteBuffer scratch = allocate<std::byte>(kernels.scratch_bytes(rnn, n_rows));
        // The kernel's state is [state vectors][rows][padded H].
        const auto copy_states = [&](const auto& copy) {
            for (std::int64_t row = 0; row < n_rows; ++row)
                for (std::int64_t v = 0; v < rnn.state_vectors; ++v)
                    copy(state.get() + (v * n_rows + row) * rnn.padded_hidden, row, v * rnn.padded_hidden);
        };
        const std::int64_t text_length = trials.context + scored + 1;
        const std::uint16_t* tokens = trials.tokens + first * text_length + trials.context;
        RnnRows rows{};
        rows.n_rows = n_rows;
        rows.n_tokens = 1;
        rows.token_stride = text_length;
        rows.state = state.get();
        rows.log_probabilities = has_residuals ? log_probabilities.get() : nullptr;
        copy_states([&](float* own, std::int64_t row, std::int64_t offset) {
            std::copy_n(states + (first + row) * state_stride + offset, rnn.padded_hidden, own);
        });
        for (std::int64_t t = 0; t < scored; ++t) {
            const auto place = [&](const FloatBuffer& buffer, std::int64_t row, std::int64_t stride) {
                return buffer.get() + ((first + row) * scored + t) * stride;
            };
            copy_states([&](const float* own, std::int64_t row, std::int64_t offset) {
                float* before = place(trajectory.before, row, state_stride) + offset;
                if (tokens[row * text_length + t] == rnn.reset_token)
                    std::fill_n(before, rnn.padded_hidden, 0.0f);
                else
                    std::copy_n(own, rnn.padded_hidden, before);
            });
            rows.tokens = tokens + t;
            kernels.run(rnn, rows, scratch.get());
            copy_states([&](const float* own, std::int64_t row, std::int64_t offset) {
                std::copy_n(own, rnn.padded_hidden, place(trajectory.after, row, state_stride) + offset);
            });
            for (std::int64_t row = 0; has_residuals && row < n_rows; ++row)
                fill_residual(place(trajectory.residuals, row, residual_stride), log_probabilities.get() + row * rnn.vocab,
                              rnn.vocab, residual_stride, tokens[row * text_length + t + 1]);
        }
    });
    return trajectory;
}

GradientSums::GradientSums(const Rnn& rnn) : rnn_(rnn) {
    for (const Tensor& tensor : rnn.tensors) {
        offsets_.push_back(size_);
        strides_.push_back(padded_columns(*rnn.isa->rnn, tensor.columns));
        size_ += tensor.rows * strides_.back();
    }
    sums_ = allocate<float>(size_);
}

void GradientSums::clear() { std::fill_n(sums_.get(), size_, 0.0f); }

void GradientSums::add_rounded(std::span<std::int64_t> totals, double factor) const {
    for (std::size_t t = 0; t < rnn_.tensors.size(); ++t) {
        const Tensor& tensor = rnn_.tensors[t];
        const auto scale = static_cast<float>(factor * static_cast<double>(rnn_.scales[t]));
        for (std::int64_t row = 0; row < tensor.rows; ++row) {
            std::int64_t* out = totals.data() + tensor.offset + row * tensor.columns;
            rnn_.isa->activations->add_rounded(out, at(t) + row * strides_[t], scale, tensor.columns);
        }
    }
}

void add_head_gradient(GradientSums& sums, std::size_t weight, const Rnn& rnn, const Trials& trials,
                       const Trajectory& trajectory, const TextRange& range, const float* logit_deltas) {
    const std::int64_t stride = sums.stride(weight), n_rows = range.n_texts * trials.scored;
    const float* states = trajectory.after.get() + range.text * trials.scored * trajectory.state_stride + (rnn.layers - 1) * stride;
    rnn.isa->activations->add_outer(sums.at(weight), stride, {logit_deltas, trajectory.residual_stride, 1}, rnn.vocab, states,
                                    trajectory.state_stride, n_rows, stride);
    rnn.isa->activations->add_rows(sums.at(weight + 1), logit_deltas, n_rows, trajectory.residual_stride);
}

void add_layer_gradient(GradientSums& sums, const Rnn& rnn, const Trials& trials, const Trajectory& trajectory,
                        const TextRange& range, std::int64_t layer, const float* deltas) {
    const TensorIndex index(rnn);
    const auto at = static_cast<std::size_t>(layer);
    const std::int64_t first = range.text * trials.scored, n_rows = range.n_texts * trials.scored;
    const std::int64_t stride = sums.stride(index.recurrent[at]);
    const auto add_outer = [&](std::size_t tensor, const FloatBuffer& states, std::int64_t from) {
        rnn.isa->activations->add_outer(sums.at(tensor), stride, {deltas, stride, 1}, rnn.hidden,
                                          states.get() + first * trajectory.state_stride + from * stride,
                                          trajectory.state_stride, n_rows, stride);
    };
    add_outer(index.recurrent[at], trajectory.before, layer);
    rnn.isa->activations->add_rows(sums.at(index.bias[at]), deltas, n_rows, stride);
    if (layer > 0) {
        add_outer(index.input[at], trajectory.after, layer - 1);
        return;
    }
    for (std::int64_t row = 0; row < n_rows; ++row)
        rnn.isa->activations->add_rows(sums.at(index.embedding) + *scored_tokens(trials, range.text, row) * stride,
                                       deltas + row * stride, 1, stride);
}

}  // namespace fedlearn
