#include "activations/credit.h"

#include "activations/kernels.h"
#include "isa.h"

namespace fedlearn {

namespace {

// values [group's rows] less their mean.
void centre(float* values, std::int64_t n) {
    float sum = 0.0f;
    for (std::int64_t i = 0; i < n; ++i) sum += values[i];
    const float mean = sum / static_cast<float>(n);
    for (std::int64_t i = 0; i < n; ++i) values[i] -= mean;
}

// Sums losses of one group's rows backwards into discounted credits, each as far as noise at its token reaches and less
// the group's mean; gives the sum of their squares.
double fill_credits(const Block& block, const MemberRun& run, std::int64_t first_row, std::int64_t text,
                    ItemScratch& scratch) {
    const std::int64_t n = block.trials.group_size;
    double squares = 0.0;
    for (std::int64_t t = block.trials.scored - 1; t >= 0; --t) {
        float* losses = scratch.losses.data() + t * run.n_rows + first_row;
        float* credits = scratch.credits.data() + t * run.n_rows + first_row;
        const bool is_felt_later = losses_reached(block.rnn, block.trials, text, t, 2) > 1;
        centre(losses, n);
        for (std::int64_t i = 0; i < n; ++i) {
            credits[i] = losses[i] + (is_felt_later ? block.noise.discount * credits[run.n_rows + i] : 0.0f);
            squares += static_cast<double>(credits[i]) * static_cast<double>(credits[i]);
        }
    }
    return squares;
}

// Takes what each token's noise of one group's members is predicted to do off that token's losses.
void take_off_noise(const Block& block, const MemberRun& run, std::int64_t first_row, std::int64_t item_text,
                    const SignRows& signs, ItemScratch& scratch) {
    const PackedRnn& rnn = block.packed.view();
    const auto take_off = [&](std::int64_t t, const float* z, float sigma, std::int64_t first_block,
                              std::int64_t first_sign, std::int64_t n) {
        block.rnn.isa->activations->add_sign_dots(scratch.losses.data() + t * run.n_rows + first_row, -sigma, z, signs,
                                                  block.trials.group_size, first_block, first_sign, n);
    };
    for (std::int64_t t = 0; t < block.trials.scored; ++t) {
        const std::int64_t row = item_text * block.trials.scored + t, token = signs.first_token + t;
        for (std::int64_t layer = 0; layer < rnn.layers; ++layer)
            take_off(t, scratch.controls.noise(layer, row), block.noise.sigma, signs.hidden_block[layer],
                     token * signs.hidden_pitch, rnn.hidden);
        if (block.noise.perturbs_logits())
            take_off(t, scratch.controls.logits(row), block.noise.logit_sigma, signs.logit_block,
                     token * signs.logit_pitch, rnn.vocab);
    }
}

// Takes what states before each token are predicted to do off the credits of one group's members; gives the sum of the
// squares of what is left.
double take_off_states(const Block& block, const MemberRun& run, std::int64_t first_row, ItemScratch& scratch) {
    double squares = 0.0;
    for (std::int64_t t = 0; t < block.trials.scored; ++t) {
        float* carried = scratch.carried.data() + t * run.n_rows + first_row;
        float* credits = scratch.credits.data() + t * run.n_rows + first_row;
        centre(carried, block.trials.group_size);
        for (std::int64_t i = 0; i < block.trials.group_size; ++i) {
            credits[i] -= carried[i];
            squares += static_cast<double>(credits[i]) * static_cast<double>(credits[i]);
        }
    }
    return squares;
}

}  // namespace

Squares assign_credit(const Block& block, const MemberRun& run, std::int64_t first_row, std::int64_t text,
                      std::int64_t item_text, const SignRows& signs, ItemScratch& scratch) {
    const double before = fill_credits(block, run, first_row, text, scratch);
    if (block.controls.is_empty()) return {before, before};
    take_off_noise(block, run, first_row, item_text, signs, scratch);
    fill_credits(block, run, first_row, text, scratch);
    return {before, take_off_states(block, run, first_row, scratch)};
}

}  // namespace fedlearn
