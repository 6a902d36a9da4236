#include "activations/activation_signs.h"

#include <vector>

namespace fedlearn {

namespace {

constexpr std::int64_t kWordBits = 32;

std::int64_t whole_words(std::int64_t n_signs) { return (n_signs + kWordBits - 1) / kWordBits * kWordBits; }

}  // namespace

ActivationSigns::ActivationSigns(const Rnn& rnn, const Trials& trials, float hidden_amplitude, float logit_amplitude) {
    const std::int64_t n_tokens = trials.batch_size * trials.scored;
    rows_.hidden_pitch = whole_words(rnn.hidden);
    rows_.logit_pitch = logit_amplitude > 0.0f ? whole_words(rnn.vocab) : 0;
    rows_.hidden_amplitude = hidden_amplitude;
    rows_.logit_amplitude = logit_amplitude;
    std::vector<Tensor> tensors;
    const auto add = [&](std::int64_t n) { tensors.push_back({0, 1, n, 0, -1, std::ssize(tensors)}); };
    for (std::int64_t layer = 0; layer < rnn.layers; ++layer) add(n_tokens * rows_.hidden_pitch);
    add(n_tokens * rows_.logit_pitch);
    add(rnn.layers * rows_.hidden_pitch);
    plan_ = make_noise_plan(tensors);
    const NoisePlanView plan = plan_.view();
    rows_.n_blocks = plan.n_blocks;
    for (std::int64_t layer = 0; layer < rnn.layers; ++layer) rows_.hidden_block[layer] = plan.factor(layer, 0).first_block;
    rows_.logit_block = plan.factor(rnn.layers, 0).first_block;
    initial_block_ = plan.factor(rnn.layers + 1, 0).first_block;
}

SignRows ActivationSigns::rows(const std::uint32_t* words, std::int64_t first_token) const {
    SignRows rows = rows_;
    rows.words = words;
    rows.first_token = first_token;
    return rows;
}

}  // namespace fedlearn
