#include "activations/activity.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "activations/credit.h"
#include "activations/item.h"
#include "activations/kernels.h"
#include "isa.h"
#include "replicated/kernels.h"
#include "threads.h"

namespace fedlearn {

namespace {

void draw_noise(const Block& block, const MemberRun& run, ItemScratch& scratch) {
    const std::uint64_t first =
        block.trials.first_member + static_cast<std::uint64_t>(run.first_group * block.trials.group_size);
    for (std::int64_t row = 0; row < run.n_rows; ++row)
        block.rnn.isa->replicated->sign_words(scratch.words.data() + row * block.signs.n_words(), block.trials.key,
                                             block.signs.plan(), first + static_cast<std::uint64_t>(row));
}

// Rows start at their text's state; those of cold groups at the initial state with noise of its own.
void set_states(const Block& block, const MemberRun& run, std::int64_t sequence, ItemScratch& scratch) {
    const PackedRnn& rnn = block.packed.view();
    const std::int64_t group_size = block.trials.group_size;
    for (std::int64_t row = 0; row < run.n_rows; ++row) {
        const std::int64_t group = run.first_group + row / group_size;
        const float* start =
            block.states + (group * block.trials.batch_size + sequence) * rnn.layers * rnn.padded_hidden;
        for (std::int64_t layer = 0; layer < rnn.layers; ++layer) {
            float* state = scratch.state.get() + (layer * run.n_rows + row) * rnn.padded_hidden;
            std::copy_n(start + layer * rnn.padded_hidden, rnn.padded_hidden, state);
            if (block.trials.is_cold[group] == 0) continue;
            block.packed.kernels().expand_signs(
                scratch.initial.get(), scratch.words.data() + row * block.signs.n_words(), block.signs.plan().n_blocks,
                block.signs.initial_block(), block.signs.initial_sign(layer), rnn.hidden, block.noise.sigma);
            for (std::int64_t j = 0; j < rnn.padded_hidden; ++j) state[j] += scratch.initial[static_cast<std::size_t>(j)];
        }
    }
}

// scratch.losses [scored][rows] <- nats of every member and token, and scratch.carried. The run's first group is
// `item_group` of its item.
void run_members(const Block& block, const MemberRun& run, std::int64_t sequence, std::int64_t item_group,
                 ItemScratch& scratch) {
    const Trials& trials = block.trials;
    const std::int64_t text_length = trials.context + trials.scored + 1;
    for (std::int64_t row = 0; row < run.n_rows; ++row) {
        const std::int64_t text = (run.first_group + row / trials.group_size) * trials.batch_size + sequence;
        std::copy_n(trials.tokens + text * text_length + trials.context, trials.scored + 1,
                    scratch.tokens.data() + row * (trials.scored + 1));
    }
    set_states(block, run, sequence, scratch);
    const SignRows signs = block.signs.rows(scratch.words.data(), sequence * trials.scored);
    RnnRows rows{};
    rows.n_rows = run.n_rows;
    rows.n_tokens = trials.scored;
    rows.tokens = scratch.tokens.data();
    rows.token_stride = trials.scored + 1;
    rows.state = scratch.state.get();
    rows.signs = &signs;
    rows.token_losses = scratch.losses.data();
    const StateProducts products{scratch.vectors.data(), scratch.controls.row_stride(), scratch.controls.layer_stride(),
                                 scratch.carried.data()};
    if (!block.controls.is_empty()) {
        rows.products = &products;
        for (std::int64_t row = 0; row < run.n_rows; ++row) {
            const std::int64_t text = (item_group + row / trials.group_size) * trials.batch_size + sequence;
            scratch.vectors[static_cast<std::size_t>(row)] = scratch.controls.state(0, text * trials.scored);
        }
    }
    block.packed.kernels().run(block.packed.view(), rows, scratch.kernel.get());
}

// Gradients at the inputs of one group's units, on the text of one sequence.
Squares fill_deltas(const Block& block, const MemberRun& run, std::int64_t first_row, std::int64_t sequence,
                    std::int64_t item_text, ItemScratch& scratch) {
    const Trials& trials = block.trials;
    const PackedRnn& rnn = block.packed.view();
    const ActivationKernels& kernels = *block.rnn.isa->activations;
    const std::int64_t group = run.first_group + first_row / trials.group_size;
    const std::int64_t text = group * trials.batch_size + sequence, scored = trials.scored;
    const SignRows signs = block.signs.rows(scratch.words.data() + first_row * block.signs.n_words(), sequence * scored);
    const Squares squares = assign_credit(block, run, first_row, text, item_text, signs, scratch);
    // The divisor of a sum over members: the group's own mean was subtracted, hence one member less.
    const float degrees = static_cast<float>(trials.group_size - 1);
    for (std::int64_t t = 0; t < scored; ++t) {
        const std::int64_t at = t * run.n_rows + first_row, token = signs.first_token + t;
        for (std::int64_t layer = 0; layer < rnn.layers; ++layer) {
            const std::int64_t row = (layer * kItemGroups * trials.batch_size + item_text) * scored + t;
            float* delta = scratch.deltas.get() + row * rnn.padded_hidden;
            kernels.sum_signs(delta, 1.0f / (degrees * block.noise.sigma), scratch.credits.data() + at, signs,
                              trials.group_size, signs.hidden_block[layer], token * signs.hidden_pitch, rnn.hidden);
        }
        if (block.noise.perturbs_logits()) {
            float* delta = scratch.logit_deltas.get() + (item_text * scored + t) * block.trajectory.residual_stride;
            kernels.sum_signs(delta, 1.0f / (degrees * block.noise.logit_sigma), scratch.credits.data() + at, signs,
                              trials.group_size, signs.logit_block, token * signs.logit_pitch, rnn.vocab);
        }
    }
    // Noise on an initial state that is reset at once changes nothing.
    if (trials.is_cold[group] == 0 || *scored_tokens(trials, text, 0) == block.rnn.reset_token) return squares;
    for (std::int64_t layer = 0; layer < rnn.layers; ++layer) {
        kernels.sum_signs(scratch.initial.get(), 1.0f, scratch.credits.data() + first_row, signs, trials.group_size,
                          block.signs.initial_block(), block.signs.initial_sign(layer), rnn.hidden);
        float* deltas = scratch.initial_deltas.get() +
                        (item_text / trials.batch_size * rnn.layers + layer) * rnn.padded_hidden;
        const float weight = block.noise.discount * (block.controls.is_empty() ? 1.0f : block.noise.correction);
        for (std::int64_t j = 0; j < rnn.hidden; ++j)
            deltas[j] += scratch.initial[static_cast<std::size_t>(j)] * weight / (degrees * block.noise.sigma);
        if (block.controls.is_empty()) continue;
        const float* predicted = scratch.controls.state(layer, item_text * scored);
        for (std::int64_t j = 0; j < rnn.hidden; ++j) deltas[j] += block.noise.discount * predicted[j];
    }
    return squares;
}

// Lets a group of an item count zero: whoever averages over groups leaves it out, too.
void drop_group(const Block& block, std::int64_t group, std::int64_t item_group, ItemScratch& scratch) {
    const Trials& trials = block.trials;
    const PackedRnn& rnn = block.packed.view();
    const std::int64_t text = item_group * trials.batch_size, n_rows = trials.batch_size * trials.scored;
    const std::int64_t n_logits = n_rows * block.trajectory.residual_stride, n_states = rnn.layers * rnn.padded_hidden;
    for (std::int64_t layer = 0; layer < rnn.layers; ++layer) {
        const std::int64_t row = (layer * kItemGroups * trials.batch_size + text) * trials.scored;
        std::fill_n(scratch.deltas.get() + row * rnn.padded_hidden, n_rows * rnn.padded_hidden, 0.0f);
    }
    std::fill_n(block.trajectory.residuals_of(group * trials.batch_size, trials.scored), n_logits, 0.0f);
    if (block.noise.perturbs_logits()) std::fill_n(scratch.logit_deltas.get() + item_group * n_logits, n_logits, 0.0f);
    std::fill_n(scratch.initial_deltas.get() + item_group * n_states, n_states, 0.0f);
    for (std::int64_t i = 0; !block.controls.is_empty() && i < trials.batch_size; ++i) scratch.controls.drop(text + i);
}

void add_initial_state_gradient(const Block& block, std::int64_t n_groups, ItemScratch& scratch) {
    const PackedRnn& rnn = block.packed.view();
    float* sums = scratch.sums.at(TensorIndex(block.rnn).initial_state);
    for (std::int64_t row = 0; row < n_groups * rnn.layers; ++row)
        for (std::int64_t j = 0; j < rnn.hidden; ++j)
            sums[row % rnn.layers * rnn.hidden + j] +=
                scratch.initial_deltas[static_cast<std::size_t>(row * rnn.padded_hidden + j)];
}

// The head's gradient from the residuals, or where logits are perturbed from what trials say; then the readout's from the
// residuals.
void add_head_gradients(const Block& block, const TextRange& range, ItemScratch& scratch) {
    const auto add = [&](std::size_t weight, const float* logit_deltas) {
        add_head_gradient(scratch.sums, weight, block.rnn, block.trials, block.trajectory, range, logit_deltas);
    };
    const std::size_t head = TensorIndex(block.rnn).head;
    const float* residuals = block.trajectory.residuals_of(range.text, block.trials.scored);
    if (!block.noise.perturbs_logits()) return add(head, residuals);
    if (!block.controls.is_empty()) {
        scratch.controls.finish_logits(scratch.sums, scratch.logit_deltas.get());
        add(block.controls.index().readout(), residuals);
    }
    add(head, scratch.logit_deltas.get());
}

bool all_finite(std::span<const float> values) {
    return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

// Losses and gradients of the groups [first, first + n) of a block.
Squares run_item(std::span<float> losses, const Block& block, std::int64_t first, std::int64_t n, ItemScratch& scratch) {
    const Trials& trials = block.trials;
    const std::int64_t group_size = trials.group_size;
    Squares squares;
    scratch.sums.clear();
    std::fill_n(scratch.initial_deltas.get(), n * block.rnn.layers * block.packed.view().padded_hidden, 0.0f);
    const TextRange range{first * trials.batch_size, n * trials.batch_size};
    if (!block.controls.is_empty()) scratch.controls.start(block.trajectory, range);
    for (std::int64_t done = 0; done < n; done += block.groups_per_run()) {
        const std::int64_t n_groups = std::min(block.groups_per_run(), n - done);
        const MemberRun run{first + done, n_groups, n_groups * trials.group_size};
        draw_noise(block, run, scratch);
        for (std::int64_t sequence = 0; sequence < trials.batch_size; ++sequence) {
            run_members(block, run, sequence, done, scratch);
            for (std::int64_t t = 0; t < trials.scored; ++t)
                for (std::int64_t row = 0; row < run.n_rows; ++row)
                    losses[static_cast<std::size_t>(run.first_group * group_size + row)] +=
                        scratch.losses[static_cast<std::size_t>(t * run.n_rows + row)];
            for (std::int64_t g = 0; g < n_groups; ++g)
                squares += fill_deltas(block, run, g * group_size, sequence, (done + g) * trials.batch_size + sequence, scratch);
        }
        for (std::int64_t g = done; g < done + n_groups; ++g)
            if (!all_finite(losses.subspan(static_cast<std::size_t>((first + g) * group_size),
                                           static_cast<std::size_t>(group_size))))
                drop_group(block, first + g, g, scratch);
    }
    const std::int64_t layer_stride =
        kItemGroups * trials.batch_size * trials.scored * block.packed.view().padded_hidden;
    for (std::int64_t layer = 0; layer < block.rnn.layers; ++layer) {
        float* deltas = scratch.deltas.get() + layer * layer_stride;
        if (!block.controls.is_empty()) scratch.controls.finish_layer(scratch.sums, deltas, layer);
        add_layer_gradient(scratch.sums, block.rnn, trials, block.trajectory, range, layer, deltas);
    }
    add_head_gradients(block, range, scratch);
    add_initial_state_gradient(block, n, scratch);
    scratch.sums.add_rounded(scratch.totals, kEstimateUnit / static_cast<double>(trials.batch_size * trials.scored));
    return squares;
}

// estimate <- the totals, cut to what 32 bits hold.
void cut(std::span<std::int32_t> estimate, std::span<const std::int64_t> totals) {
    constexpr std::int64_t kGreatest = std::numeric_limits<std::int32_t>::max();
    for (std::size_t i = 0; i < estimate.size(); ++i)
        estimate[i] = static_cast<std::int32_t>(std::clamp(totals[i], -kGreatest, kGreatest));
}

// Calls work(block of trials, its first group) for every block.
template <class Work>
void for_each_block(const Trials& trials, const Work& work) {
    for (std::int64_t first = 0; first < trials.n_groups; first += kTracedGroups) {
        Trials block = trials;
        block.first_member += static_cast<std::uint64_t>(first * trials.group_size);
        block.n_groups = std::min(kTracedGroups, trials.n_groups - first);
        block.tokens += first * trials.batch_size * (trials.context + trials.scored + 1);
        block.is_cold += first;
        work(block, first);
    }
}

// The weights with the readout in the head's place: residuals are of its probabilities.
std::vector<float> readout_weights(const Rnn& rnn, const ControlMatrices& controls) {
    std::vector<float> weights(rnn.weights.begin(), rnn.weights.end());
    for (std::size_t i = 0; i < 2; ++i) {  // the weight and the bias
        const Tensor &from = rnn.tensors[controls.index().readout() + i], &to = rnn.tensors[TensorIndex(rnn).head + i];
        std::copy_n(rnn.weights.begin() + from.offset, from.rows * from.columns, weights.begin() + to.offset);
    }
    return weights;
}

}  // namespace

double activation_gradient(std::span<float> losses, std::span<std::int32_t> estimate, const Rnn& rnn,
                         const Trials& trials, const ActivationNoise& noise, int n_threads) {
    std::ranges::fill(losses, 0.0f);
    std::vector<std::int64_t> totals(estimate.size(), 0);
    if (!all_finite(rnn.weights)) {
        std::ranges::fill(losses, std::numeric_limits<float>::quiet_NaN());
        cut(estimate, totals);
        return 1.0;
    }
    Squares squares;
    const ControlMatrices controls(rnn);
    const bool has_readout = noise.perturbs_logits() && !controls.is_empty();
    const bool has_residuals = !noise.perturbs_logits() || has_readout;
    const std::vector<float> of_readout = has_readout ? readout_weights(rnn, controls) : std::vector<float>{};
    const PackedWeights plain(rnn, has_readout ? of_readout.data() : rnn.weights.data(), false);
    const PackedWeights packed(rnn, rnn.weights.data(), rnn.is_int8);
    const ActivationSigns signs(rnn, trials, noise.sigma, noise.logit_sigma);
    for_each_block(trials, [&](const Trials& part, std::int64_t first) {
        const FloatBuffer states = warm_up(plain, part, n_threads);
        Trajectory trajectory = trace(plain, part, states.get(), has_residuals, n_threads);
        const Block block{rnn, part, noise, packed, signs, states.get(), trajectory, controls};
        const std::int64_t n_items = (part.n_groups + kItemGroups - 1) / kItemGroups;
        std::vector<ItemScratch> scratch;
        for (int thread = 0; thread < thread_count(n_threads, n_items); ++thread) scratch.emplace_back(block);
        const auto own = losses.subspan(static_cast<std::size_t>(first * trials.group_size),
                                        static_cast<std::size_t>(part.n_groups * trials.group_size));
        std::vector<Squares> of_items(static_cast<std::size_t>(n_items));  // added up in one order, whatever the threads
        parallel_for(n_items, static_cast<int>(scratch.size()), [&](int thread, std::int64_t item) {
            of_items[static_cast<std::size_t>(item)] =
                run_item(own, block, item * kItemGroups, std::min(kItemGroups, part.n_groups - item * kItemGroups),
                         scratch[static_cast<std::size_t>(thread)]);
        });
        for (const Squares& of_item : of_items) squares += of_item;
        for (const ItemScratch& s : scratch) std::ranges::transform(totals, s.totals, totals.begin(), std::plus<>{});
    });
    cut(estimate, totals);
    const auto n_scored = static_cast<float>(trials.batch_size * trials.scored);
    for (float& loss : losses) loss /= n_scored;
    const double left = squares.after / squares.before;
    return std::isfinite(left) ? left : 1.0;
}

void head_gradient(std::span<std::int32_t> estimate, const Rnn& rnn, const Trials& trials, int n_threads) {
    std::vector<std::int64_t> totals(estimate.size(), 0);
    if (!all_finite(rnn.weights)) return cut(estimate, totals);
    const PackedWeights packed(rnn, rnn.weights.data(), false);
    GradientSums sums(rnn);
    for_each_block(trials, [&](const Trials& part, std::int64_t) {
        const FloatBuffer states = warm_up(packed, part, n_threads);
        const Trajectory trajectory = trace(packed, part, states.get(), true, n_threads);
        sums.clear();
        add_head_gradient(sums, TensorIndex(rnn).head, rnn, part, trajectory, {0, part.n_groups * part.batch_size},
                          trajectory.residuals.get());
        sums.add_rounded(totals, kEstimateUnit / static_cast<double>(trials.batch_size * trials.scored));
    });
    cut(estimate, totals);
}

}  // namespace fedlearn
