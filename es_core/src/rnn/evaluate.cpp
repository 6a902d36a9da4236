#include "rnn/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "rnn/packing.h"
#include "threads.h"

namespace fedlearn {

namespace {

// states [state vectors][n_rows][padded H] <- the initial state in every row.
void fill_initial_state(float* states, const PackedWeights& packed, std::int64_t n_rows) {
    const PackedRnn& rnn = packed.view();
    for (std::int64_t v = 0; v < rnn.state_vectors; ++v)
        for (std::int64_t row = 0; row < n_rows; ++row) {
            float* state = states + (v * n_rows + row) * rnn.padded_hidden;
            std::fill_n(state, rnn.padded_hidden, 0.0f);
            std::copy_n(packed.initial_state() + v * rnn.hidden, rnn.hidden, state);
        }
}

}  // namespace

std::int64_t context_rows(std::int64_t n_texts, int n_threads) {
    constexpr std::int64_t kStep = 16;
    const std::int64_t share = (n_texts - 1) / thread_count(n_threads, n_texts) + 1;
    return std::min((share + kStep - 1) / kStep * kStep, kContextRows);
}

FloatBuffer warm_up(const PackedWeights& packed, const Trials& trials, int n_threads) {
    const PackedRnn& rnn = packed.view();
    const std::int64_t n_texts = trials.n_groups * trials.batch_size;
    const std::int64_t text_length = trials.context + trials.scored + 1;
    const std::int64_t state_size = rnn.state_vectors * rnn.padded_hidden;
    FloatBuffer states = allocate<float>(n_texts * state_size);
    const std::int64_t most_rows = context_rows(n_texts, n_threads), n_items = (n_texts + most_rows - 1) / most_rows;
    const int n = thread_count(n_threads, n_items);
    const RnnKernels& kernels = packed.kernels();
    parallel_for(n_items, n, [&](int, std::int64_t item) {
        const std::int64_t first = item * most_rows, n_rows = std::min(most_rows, n_texts - first);
        const FloatBuffer state = allocate<float>(n_rows * state_size);
        const ByteBuffer scratch = allocate<std::byte>(kernels.scratch_bytes(rnn, n_rows));
        fill_initial_state(state.get(), packed, n_rows);
        if (trials.context > 0) {
            RnnRows rows{};
            rows.n_rows = n_rows;
            rows.n_tokens = trials.context;
            rows.tokens = trials.tokens + first * text_length;
            rows.token_stride = text_length;
            rows.state = state.get();
            kernels.run(rnn, rows, scratch.get());
        }
        for (std::int64_t row = 0; row < n_rows; ++row)
            for (std::int64_t v = 0; v < rnn.state_vectors; ++v) {
                float* out = states.get() + (first + row) * state_size + v * rnn.padded_hidden;
                if (trials.is_cold[(first + row) / trials.batch_size] != 0) {
                    std::fill_n(out, rnn.padded_hidden, 0.0f);
                    std::copy_n(packed.initial_state() + v * rnn.hidden, rnn.hidden, out);
                } else {
                    std::copy_n(state.get() + (v * n_rows + row) * rnn.padded_hidden, rnn.padded_hidden, out);
                }
            }
    });
    return states;
}

namespace {

// Memory of one thread that evaluates groups.
struct GroupScratch {
    FloatBuffer factors;   // [group_size][row_stride]
    FloatBuffer state;     // [state vectors][group_size][padded H]
    ByteBuffer kernel;
    std::vector<std::uint32_t> words;
};

// Losses of one group: its members are the rows of one product.
void group_losses(float* losses, const PackedWeights& packed, const FactorRows& factor_rows, const Trials& trials,
                  const float* states, std::int64_t group, GroupScratch& scratch) {
    const PackedRnn& rnn = packed.view();
    const RnnNoise& noise = factor_rows.view();
    const std::int64_t n = trials.group_size;
    const std::uint64_t first_member = trials.first_member + static_cast<std::uint64_t>(group * n);
    for (std::int64_t i = 0; i < n; ++i)
        factor_rows.fill(scratch.factors.get() + i * noise.row_stride, scratch.words.data(), trials.key,
                         noise_source(first_member + static_cast<std::uint64_t>(i), trials.is_antithetic));
    std::fill_n(losses, n, 0.0f);
    const std::int64_t text_length = trials.context + trials.scored + 1;
    for (std::int64_t sequence = 0; sequence < trials.batch_size; ++sequence) {
        const std::int64_t text = group * trials.batch_size + sequence;
        const float* start = states + text * rnn.state_vectors * rnn.padded_hidden;
        for (std::int64_t v = 0; v < rnn.state_vectors; ++v)
            for (std::int64_t i = 0; i < n; ++i) {
                float* state = scratch.state.get() + (v * n + i) * rnn.padded_hidden;
                std::copy_n(start + v * rnn.padded_hidden, rnn.padded_hidden, state);
                if (trials.is_cold[group] == 0) continue;
                const float* added =
                    scratch.factors.get() + i * noise.row_stride + factor_rows.initial_state() + v * rnn.hidden;
                for (std::int64_t j = 0; j < rnn.hidden; ++j) state[j] += added[j];
            }
        RnnRows rows{};
        rows.n_rows = n;
        rows.n_tokens = trials.scored;
        rows.tokens = trials.tokens + text * text_length + trials.context;
        rows.state = scratch.state.get();
        rows.noise = &noise;
        rows.factors = scratch.factors.get();
        rows.losses = losses;
        packed.kernels().run(rnn, rows, scratch.kernel.get());
    }
}

void low_rank_losses(std::span<float> losses, const Rnn& rnn, const Trials& trials, int n_threads) {
    // Contexts are read once a group, in float32; only the members' own rows are in int8.
    const PackedWeights plain(rnn, rnn.weights.data(), false);
    const FloatBuffer states = warm_up(plain, trials, n_threads);
    const PackedWeights packed(rnn, rnn.weights.data(), rnn.is_int8);
    const FactorRows factor_rows(rnn, trials.sigma);
    const int n = thread_count(n_threads, trials.n_groups);
    std::vector<GroupScratch> scratch(static_cast<std::size_t>(n));
    for (GroupScratch& s : scratch) {
        s.factors = allocate<float>(trials.group_size * factor_rows.view().row_stride);
        s.state = allocate<float>(packed.view().state_vectors * trials.group_size * packed.view().padded_hidden);
        s.kernel = allocate<std::byte>(packed.kernels().scratch_bytes(packed.view(), trials.group_size));
        s.words.resize(static_cast<std::size_t>(factor_rows.n_words()));
    }
    parallel_for(trials.n_groups, n, [&](int thread, std::int64_t group) {
        group_losses(losses.data() + group * trials.group_size, packed, factor_rows, trials, states.get(), group,
                     scratch[static_cast<std::size_t>(thread)]);
    });
}

// Full-rank members share no product: each runs alone, on its own packed copy of the weights.
void full_rank_losses(std::span<float> losses, const Rnn& rnn, const Trials& trials, int n_threads) {
    const PackedWeights packed(rnn, rnn.weights.data(), false);
    const FloatBuffer states = warm_up(packed, trials, n_threads);
    const std::int64_t text_length = trials.context + trials.scored + 1;
    const std::int64_t state_size = packed.view().state_vectors * packed.view().padded_hidden;
    const auto n_members = static_cast<std::int64_t>(losses.size());
    parallel_for(n_members, thread_count(n_threads, n_members), [&](int, std::int64_t i) {
        std::vector<float> perturbed(rnn.weights.size());
        perturb(perturbed, rnn, trials, trials.first_member + static_cast<std::uint64_t>(i));
        const PackedWeights own(rnn, perturbed.data(), false);
        const std::int64_t group = i / trials.group_size, n_rows = trials.batch_size;
        const FloatBuffer state = allocate<float>(n_rows * state_size);
        fill_initial_state(state.get(), own, n_rows);
        if (trials.is_cold[group] == 0)
            for (std::int64_t row = 0; row < n_rows; ++row)
                for (std::int64_t v = 0; v < own.view().state_vectors; ++v)
                    std::copy_n(states.get() + (group * n_rows + row) * state_size + v * own.view().padded_hidden,
                                own.view().padded_hidden,
                                state.get() + (v * n_rows + row) * own.view().padded_hidden);
        std::vector<float> sums(static_cast<std::size_t>(n_rows), 0.0f);
        const ByteBuffer scratch = allocate<std::byte>(own.kernels().scratch_bytes(own.view(), n_rows));
        RnnRows rows{};
        rows.n_rows = n_rows;
        rows.n_tokens = trials.scored;
        rows.tokens = trials.tokens + group * n_rows * text_length + trials.context;
        rows.token_stride = text_length;
        rows.state = state.get();
        rows.losses = sums.data();
        own.kernels().run(own.view(), rows, scratch.get());
        float& loss = losses[static_cast<std::size_t>(i)];
        loss = 0.0f;
        for (const float sum : sums) loss += sum;
    });
}

// The groups from `first` on, as trials of their own.
Trials block_of(const Trials& trials, std::int64_t first) {
    Trials block = trials;
    block.first_member += static_cast<std::uint64_t>(first * trials.group_size);
    block.n_groups = std::min(kBlockGroups, trials.n_groups - first);
    block.tokens += first * trials.batch_size * (trials.context + trials.scored + 1);
    block.is_cold += first;
    return block;
}

bool all_finite(std::span<const float> values) {
    return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

void divide(std::span<float> losses, const Trials& trials) {
    const auto n_scored = static_cast<float>(trials.batch_size * trials.scored);
    for (float& loss : losses) loss /= n_scored;
}

}  // namespace

void member_losses(std::span<float> losses, const Rnn& rnn, const Trials& trials, int n_threads) {
    if (!all_finite(rnn.weights)) {
        std::ranges::fill(losses, std::numeric_limits<float>::quiet_NaN());
        return;
    }
    for (std::int64_t first = 0; first < trials.n_groups; first += kBlockGroups) {
        const Trials block = block_of(trials, first);
        const auto block_losses = losses.subspan(static_cast<std::size_t>(first * trials.group_size),
                                                 static_cast<std::size_t>(block.n_groups * trials.group_size));
        if (rnn.tensors[0].rank == 0) {
            full_rank_losses(block_losses, rnn, block, n_threads);
        } else {
            low_rank_losses(block_losses, rnn, block, n_threads);
        }
    }
    divide(losses, trials);
}

void text_losses(float* losses, float* log_probabilities, float* state, const Rnn& rnn, const std::uint16_t* tokens,
                 std::int64_t token_stride, std::int64_t n_rows, std::int64_t n_tokens, int n_threads) {
    const PackedWeights packed(rnn, rnn.weights.data(), false);
    const RnnKernels& kernels = packed.kernels();
    const std::int64_t padded = packed.view().padded_hidden, n_vectors = packed.view().state_vectors;
    const std::int64_t most_rows = context_rows(n_rows, n_threads), n_items = (n_rows + most_rows - 1) / most_rows;
    parallel_for(n_items, thread_count(n_threads, n_items), [&](int, std::int64_t item) {
        const std::int64_t first = item * most_rows, n = std::min(most_rows, n_rows - first);
        const FloatBuffer own = allocate<float>(n_vectors * n * padded);
        const ByteBuffer scratch = allocate<std::byte>(kernels.scratch_bytes(packed.view(), n));
        std::fill_n(own.get(), n_vectors * n * padded, 0.0f);
        // The kernel's state is [state vectors][rows][padded H].
        const auto outside = [&](std::int64_t row, std::int64_t v) {
            return state + ((first + row) * n_vectors + v) * rnn.hidden;
        };
        const auto inside = [&](std::int64_t row, std::int64_t v) { return own.get() + (v * n + row) * padded; };
        for (std::int64_t row = 0; row < n; ++row)
            for (std::int64_t v = 0; v < n_vectors; ++v)
                std::copy_n(outside(row, v), rnn.hidden, inside(row, v));
        RnnRows rows{};
        rows.n_rows = n;
        rows.n_tokens = n_tokens;
        rows.tokens = tokens + first * token_stride;
        rows.token_stride = token_stride;
        rows.state = own.get();
        rows.losses = losses != nullptr ? losses + first : nullptr;
        rows.log_probabilities = log_probabilities != nullptr ? log_probabilities + first * rnn.vocab : nullptr;
        kernels.run(packed.view(), rows, scratch.get());
        for (std::int64_t row = 0; row < n; ++row)
            for (std::int64_t v = 0; v < n_vectors; ++v)
                std::copy_n(inside(row, v), rnn.hidden, outside(row, v));
    });
}

}  // namespace fedlearn
