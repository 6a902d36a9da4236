// One item of a block of trials: some groups whose members run, are credited, and whose outer products are summed together.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "activations/activation_signs.h"
#include "activations/activity.h"
#include "activations/control.h"
#include "activations/trajectory.h"
#include "memory.h"

namespace fedlearn {

// Sums of squares of credits about their group's mean, before and after predictions were taken off.
struct Squares {
    double before = 0.0, after = 0.0;

    // A group's losses on a text that are not all finite count nothing.
    Squares& operator+=(const Squares& other) {
        if (!std::isfinite(other.before + other.after)) return *this;
        before += other.before;
        after += other.after;
        return *this;
    }
};

// What all items of a block share.
struct Block {
    const Rnn& rnn;
    const Trials& trials;
    const ActivationNoise& noise;
    const PackedWeights& packed;
    const ActivationSigns& signs;
    const float* states;      // [texts][layers][padded H] where the scored tokens begin
    Trajectory& trajectory;
    const ControlMatrices& controls;

    std::int64_t groups_per_run() const { return std::max<std::int64_t>(1, kRunRows / trials.group_size); }
};

// Memory of one thread.
struct ItemScratch {
    std::vector<std::uint32_t> words;     // [rows][n_words]
    std::vector<std::uint16_t> tokens;    // [rows][scored + 1]
    FloatBuffer state;                    // [layers][rows][padded H]
    std::vector<float> losses, credits;   // [scored][rows]
    std::vector<float> carried;           // the same: what states before each token are predicted to do to the credits
    std::vector<const float*> vectors;    // [rows] what a text's states are predicted with
    FloatBuffer deltas;                   // [layers][item's texts * scored][padded H]
    FloatBuffer logit_deltas;             // [item's texts * scored][padded V], only where logits are perturbed
    FloatBuffer initial_deltas;           // [item's groups][layers][padded H], sums over a group's texts
    FloatBuffer initial;                  // [padded H]
    ByteBuffer kernel;
    GradientSums sums;
    ControlVariates controls;
    std::vector<std::int64_t> totals;     // [n_parameters]

    explicit ItemScratch(const Block& block)
        : sums(block.rnn),
          controls(block.rnn, block.trials, block.controls, block.noise, kItemGroups * block.trials.batch_size),
          totals(block.rnn.weights.size(), 0) {
        const PackedRnn& rnn = block.packed.view();
        const std::int64_t n_rows = block.groups_per_run() * block.trials.group_size, scored = block.trials.scored;
        const auto resize = [](auto& vector, std::int64_t n) { vector.resize(static_cast<std::size_t>(n)); };
        resize(words, n_rows * block.signs.n_words());
        resize(tokens, n_rows * (scored + 1));
        resize(losses, n_rows * scored);
        resize(credits, n_rows * scored);
        resize(carried, n_rows * scored);
        resize(vectors, n_rows);
        state = allocate<float>(rnn.layers * n_rows * rnn.padded_hidden);
        deltas = allocate<float>(rnn.layers * kItemGroups * block.trials.batch_size * scored * rnn.padded_hidden);
        logit_deltas = allocate<float>(block.noise.perturbs_logits() ? kItemGroups * block.trials.batch_size * scored *
                                                                          block.trajectory.residual_stride
                                                                    : 0);
        initial_deltas = allocate<float>(kItemGroups * rnn.layers * rnn.padded_hidden);
        initial = allocate<float>(rnn.padded_hidden);
        kernel = allocate<std::byte>(block.packed.kernels().scratch_bytes(rnn, n_rows));
    }
};

// A few groups of a block whose members run side by side.
struct MemberRun {
    std::int64_t first_group;
    std::int64_t n_groups;
    std::int64_t n_rows;
};

}  // namespace fedlearn
