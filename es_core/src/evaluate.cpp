#include "evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include "threads.h"

namespace fedlearn {

namespace {

constexpr std::size_t kAlignment = 64;  // a cache line, and the widest vector

struct AlignedDelete {
    void operator()(void* memory) const { ::operator delete(memory, std::align_val_t{kAlignment}); }
};

// Aligned memory for n values, not initialised.
template <class Value>
std::unique_ptr<Value[], AlignedDelete> allocate(std::int64_t n) {
    const std::size_t bytes = static_cast<std::size_t>(std::max<std::int64_t>(n, 1)) * sizeof(Value);
    return std::unique_ptr<Value[], AlignedDelete>(
        static_cast<Value*>(::operator new(bytes, std::align_val_t{kAlignment})));
}

// Bias of a padding column of the head: its exponential is zero beside any real logit.
constexpr float kNeverCounts = -1e30f;

using FloatBuffer = std::unique_ptr<float[], AlignedDelete>;
using ByteBuffer = std::unique_ptr<std::byte[], AlignedDelete>;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Indices into the tensor table, in the order that Rnn documents.
struct TensorIndex {
    std::size_t embedding = 0;
    std::size_t input[kMaxLayers] = {};
    std::size_t recurrent[kMaxLayers] = {};
    std::size_t bias[kMaxLayers] = {};
    std::size_t head, head_bias, initial_state;

    explicit TensorIndex(std::int64_t layers) {
        std::size_t next = 1;
        for (std::int64_t layer = 0; layer < layers; ++layer) {
            if (layer > 0) input[layer] = next++;
            recurrent[layer] = next++;
            bias[layer] = next++;
        }
        head = next++;
        head_bias = next++;
        initial_state = next;
    }
};

// The weights, packed for the kernel, with the memory they live in.
class PackedWeights {
public:
    explicit PackedWeights(const Rnn& rnn) : PackedWeights(rnn, rnn.weights.data()) {}

    PackedWeights(const Rnn& rnn, const float* weights) : view_{} {
        const ReportedKernels& kernels = *current_isa().reported;
        const TensorIndex index(rnn.layers);
        const auto at = [&](std::size_t tensor) { return weights + rnn.tensors[tensor].offset; };
        view_.vocab = rnn.vocab;
        view_.hidden = rnn.hidden;
        view_.layers = rnn.layers;
        view_.tail = kernels.tail_of(rnn.vocab);
        view_.padded_columns = round_up(rnn.vocab - view_.tail, kernels.lanes);
        view_.padded_hidden = round_up(rnn.hidden, kernels.lanes);
        const auto pack_matrix = [&](std::size_t tensor, std::int64_t outputs) {
            float* panels = take(round_up(outputs, kernels.lanes) * rnn.hidden);
            kernels.pack(panels, at(tensor), outputs, rnn.hidden);
            return PackedMatrix{panels, round_up(outputs, kernels.lanes), rnn.hidden};
        };
        for (std::int64_t layer = 0; layer < rnn.layers; ++layer) {
            if (layer > 0) view_.input[layer] = pack_matrix(index.input[layer], rnn.hidden);
            view_.recurrent[layer] = pack_matrix(index.recurrent[layer], rnn.hidden);
            view_.bias[layer] = pad_rows(at(index.bias[layer]), 1, rnn.hidden, nullptr);
        }
        view_.embedding = pad_rows(at(index.embedding), rnn.vocab, rnn.hidden, at(index.bias[0]));
        view_.head = pack_matrix(index.head, rnn.vocab - view_.tail);
        view_.head_tail = pad_rows(at(index.head) + (rnn.vocab - view_.tail) * rnn.hidden, view_.tail, rnn.hidden, nullptr);
        float* head_bias = take(view_.padded_columns + view_.tail);
        std::fill_n(head_bias, view_.padded_columns, kNeverCounts);
        std::copy_n(at(index.head_bias), rnn.vocab - view_.tail, head_bias);
        std::copy_n(at(index.head_bias) + rnn.vocab - view_.tail, view_.tail, head_bias + view_.padded_columns);
        view_.head_bias = head_bias;
        initial_state_ = at(index.initial_state);
    }

    const PackedRnn& view() const { return view_; }
    const float* initial_state() const { return initial_state_; }  // [layers][H]

private:
    float* take(std::int64_t n) { return memory_.emplace_back(allocate<float>(n)).get(); }

    float* pad_rows(const float* rows, std::int64_t n_rows, std::int64_t length, const float* added) {
        const std::int64_t padded = round_up(length, current_isa().reported->lanes);
        float* out = take(n_rows * padded);
        for (std::int64_t row = 0; row < n_rows; ++row)
            for (std::int64_t j = 0; j < padded; ++j)
                out[row * padded + j] =
                    j < length ? rows[row * length + j] + (added != nullptr ? added[j] : 0.0f) : 0.0f;
        return out;
    }

    PackedRnn view_;
    const float* initial_state_;
    std::vector<FloatBuffer> memory_;
};

// Where each factor of a member stands in its row of floats, and how to fill it from the noise words.
class FactorRows {
public:
    FactorRows(const Rnn& rnn, float sigma) : plan_(make_noise_plan(rnn.tensors)), view_{} {
        const TensorIndex index(rnn.layers);
        view_.rank = rnn.tensors[index.embedding].rank;
        const auto amplitude = [&](std::size_t tensor) { return sigma * rnn.scales[tensor]; };
        const auto root = static_cast<float>(std::sqrt(static_cast<double>(std::max<std::int64_t>(view_.rank, 1))));
        // Factor 2k runs over rows and 2k + 1 over columns; a matrix reads its columns, the embedding its rows.
        const auto add_matrix = [&](std::size_t tensor, bool reads_rows) {
            MatrixNoise noise{};
            for (std::int64_t k = 0; k < view_.rank; ++k) {
                noise.into[k] = add(tensor, reads_rows ? 2 * k : 2 * k + 1, 1.0f);
                noise.out[k] = add(tensor, reads_rows ? 2 * k + 1 : 2 * k, amplitude(tensor) / root);
            }
            return noise;
        };
        view_.embedding = add_matrix(index.embedding, true);
        for (std::int64_t layer = 0; layer < rnn.layers; ++layer) {
            if (layer > 0) view_.input[layer] = add_matrix(index.input[layer], false);
            view_.recurrent[layer] = add_matrix(index.recurrent[layer], false);
            view_.bias[layer] = add(index.bias[layer], 0, amplitude(index.bias[layer]));
        }
        view_.head = add_matrix(index.head, false);
        view_.head_bias = add(index.head_bias, 0, amplitude(index.head_bias));
        initial_state_ = add(index.initial_state, 0, amplitude(index.initial_state));
        // An odd number of cache lines: rows of one tile fall into different sets of the cache.
        view_.row_stride = round_up(view_.row_stride, 32) + 16;
    }

    const RnnNoise& view() const { return view_; }
    std::int64_t initial_state() const { return initial_state_; }
    std::int64_t n_words() const { return plan_.view().n_words(); }

    // row [row_stride] <- the factors of one member; words [n_words] is scratch memory.
    void fill(float* row, std::uint32_t* words, const Key& key, std::uint64_t member) const {
        const NoisePlanView plan = plan_.view();
        current_isa().replicated->sign_words(words, key, plan, member);
        for (const Entry& entry : entries_) {
            const Factor& factor = plan.factor(entry.tensor, entry.factor);
            current_isa().reported->expand_signs(row + entry.offset, words, plan.n_blocks, factor.first_block,
                                                 factor.length, entry.amplitude);
        }
    }

private:
    struct Entry {
        std::int64_t tensor;
        std::int64_t factor;
        std::int64_t offset;
        float amplitude;
    };

    std::int64_t add(std::size_t tensor, std::int64_t factor, float amplitude) {
        const std::int64_t offset = view_.row_stride;
        const auto number = static_cast<std::int64_t>(tensor);
        entries_.push_back({number, factor, offset, amplitude});
        view_.row_stride += round_up(plan_.view().factor(number, factor).length, kBlockMultiple);
        return offset;
    }

    NoisePlan plan_;
    RnnNoise view_;
    std::int64_t initial_state_ = 0;
    std::vector<Entry> entries_;
};

// states [layers][n_rows][padded H] <- the initial state in every row.
void fill_initial_state(float* states, const PackedWeights& packed, std::int64_t n_rows) {
    const PackedRnn& rnn = packed.view();
    for (std::int64_t layer = 0; layer < rnn.layers; ++layer)
        for (std::int64_t row = 0; row < n_rows; ++row) {
            float* state = states + (layer * n_rows + row) * rnn.padded_hidden;
            std::fill_n(state, rnn.padded_hidden, 0.0f);
            std::copy_n(packed.initial_state() + layer * rnn.hidden, rnn.hidden, state);
        }
}

// Texts that are warmed up together by one call of the kernel.
constexpr std::int64_t kContextRows = 48;

// The state after each text's context under unperturbed weights, [texts][layers][padded H]; texts are the groups'
// sequences, one after the other. Cold groups get the initial state.
FloatBuffer warm_up(const PackedWeights& packed, const Trials& trials, int n_threads) {
    const PackedRnn& rnn = packed.view();
    const std::int64_t n_texts = trials.n_groups * trials.batch_size;
    const std::int64_t text_length = trials.context + trials.scored + 1;
    const std::int64_t state_size = rnn.layers * rnn.padded_hidden;
    FloatBuffer states = allocate<float>(n_texts * state_size);
    const std::int64_t n_items = (n_texts + kContextRows - 1) / kContextRows;
    const int n = thread_count(n_threads, n_items);
    const ReportedKernels& kernels = *current_isa().reported;
    parallel_for(n_items, n, [&](int, std::int64_t item) {
        const std::int64_t first = item * kContextRows, n_rows = std::min(kContextRows, n_texts - first);
        const FloatBuffer state = allocate<float>(n_rows * state_size);
        const ByteBuffer scratch = allocate<std::byte>(kernels.rnn_scratch_bytes(rnn, n_rows));
        fill_initial_state(state.get(), packed, n_rows);
        if (trials.context > 0) {
            RnnRows rows{};
            rows.n_rows = n_rows;
            rows.n_tokens = trials.context;
            rows.tokens = trials.tokens + first * text_length;
            rows.token_stride = text_length;
            rows.state = state.get();
            kernels.rnn_run(rnn, rows, scratch.get());
        }
        for (std::int64_t row = 0; row < n_rows; ++row)
            for (std::int64_t layer = 0; layer < rnn.layers; ++layer) {
                float* out = states.get() + (first + row) * state_size + layer * rnn.padded_hidden;
                if (trials.is_cold[(first + row) / trials.batch_size] != 0) {
                    std::fill_n(out, rnn.padded_hidden, 0.0f);
                    std::copy_n(packed.initial_state() + layer * rnn.hidden, rnn.hidden, out);
                } else {
                    std::copy_n(state.get() + (layer * n_rows + row) * rnn.padded_hidden, rnn.padded_hidden, out);
                }
            }
    });
    return states;
}

// Memory of one thread that evaluates groups.
struct GroupScratch {
    FloatBuffer factors;   // [group_size][row_stride]
    FloatBuffer state;     // [layers][group_size][padded H]
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
                         first_member + static_cast<std::uint64_t>(i));
    std::fill_n(losses, n, 0.0f);
    const std::int64_t text_length = trials.context + trials.scored + 1;
    for (std::int64_t sequence = 0; sequence < trials.batch_size; ++sequence) {
        const std::int64_t text = group * trials.batch_size + sequence;
        const float* start = states + text * rnn.layers * rnn.padded_hidden;
        for (std::int64_t layer = 0; layer < rnn.layers; ++layer)
            for (std::int64_t i = 0; i < n; ++i) {
                float* state = scratch.state.get() + (layer * n + i) * rnn.padded_hidden;
                std::copy_n(start + layer * rnn.padded_hidden, rnn.padded_hidden, state);
                if (trials.is_cold[group] == 0) continue;
                const float* added =
                    scratch.factors.get() + i * noise.row_stride + factor_rows.initial_state() + layer * rnn.hidden;
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
        current_isa().reported->rnn_run(rnn, rows, scratch.kernel.get());
    }
}

void low_rank_losses(std::span<float> losses, const Rnn& rnn, const Trials& trials, int n_threads) {
    const PackedWeights packed(rnn);
    const FactorRows factor_rows(rnn, trials.sigma);
    const FloatBuffer states = warm_up(packed, trials, n_threads);
    const int n = thread_count(n_threads, trials.n_groups);
    std::vector<GroupScratch> scratch(static_cast<std::size_t>(n));
    for (GroupScratch& s : scratch) {
        s.factors = allocate<float>(trials.group_size * factor_rows.view().row_stride);
        s.state = allocate<float>(rnn.layers * trials.group_size * packed.view().padded_hidden);
        s.kernel = allocate<std::byte>(current_isa().reported->rnn_scratch_bytes(packed.view(), trials.group_size));
        s.words.resize(static_cast<std::size_t>(factor_rows.n_words()));
    }
    parallel_for(trials.n_groups, n, [&](int thread, std::int64_t group) {
        group_losses(losses.data() + group * trials.group_size, packed, factor_rows, trials, states.get(), group,
                     scratch[static_cast<std::size_t>(thread)]);
    });
}

// perturbed [n_parameters] <- weights + sigma * noise of one member, one element after the other.
void perturb(std::vector<float>& perturbed, const Rnn& rnn, const Trials& trials, std::uint64_t member) {
    std::vector<std::int8_t> signs, row_signs, column_signs;
    for (std::size_t t = 0; t < rnn.tensors.size(); ++t) {
        const Tensor& tensor = rnn.tensors[t];
        const std::int64_t n = tensor.rows * tensor.columns;
        std::vector<float> noise(static_cast<std::size_t>(n), 0.0f);
        const auto signs_of = [&](std::int64_t factor, std::int64_t length) {
            std::vector<std::int8_t> values(static_cast<std::size_t>(length));
            fill_signs(values, trials.key, member, static_cast<std::uint32_t>(t), static_cast<std::uint32_t>(factor), 0);
            return values;
        };
        if (tensor.rank == 0) {
            std::ranges::copy(signs_of(0, n), noise.begin());
        }
        for (std::int64_t k = 0; k < tensor.rank; ++k) {
            const auto a = signs_of(2 * k, tensor.rows), b = signs_of(2 * k + 1, tensor.columns);
            for (std::size_t i = 0; i < noise.size(); ++i)
                noise[i] += static_cast<float>(a[i / b.size()] * b[i % b.size()]);
        }
        const auto root = static_cast<float>(std::sqrt(static_cast<double>(std::max<std::int64_t>(tensor.rank, 1))));
        const float amplitude = trials.sigma * rnn.scales[t] / root;
        for (std::size_t i = 0; i < noise.size(); ++i) {
            const std::size_t at = static_cast<std::size_t>(tensor.offset) + i;
            perturbed[at] = rnn.weights[at] + amplitude * noise[i];
        }
    }
}

// Full-rank members share no product: each runs alone, on its own packed copy of the weights.
void full_rank_losses(std::span<float> losses, const Rnn& rnn, const Trials& trials, int n_threads) {
    const PackedWeights packed(rnn);
    const FloatBuffer states = warm_up(packed, trials, n_threads);
    const std::int64_t text_length = trials.context + trials.scored + 1;
    const std::int64_t state_size = rnn.layers * packed.view().padded_hidden;
    const auto n_members = static_cast<std::int64_t>(losses.size());
    parallel_for(n_members, thread_count(n_threads, n_members), [&](int, std::int64_t i) {
        std::vector<float> perturbed(rnn.weights.size());
        perturb(perturbed, rnn, trials, trials.first_member + static_cast<std::uint64_t>(i));
        const PackedWeights own(rnn, perturbed.data());
        const std::int64_t group = i / trials.group_size, n_rows = trials.batch_size;
        const FloatBuffer state = allocate<float>(n_rows * state_size);
        fill_initial_state(state.get(), own, n_rows);
        if (trials.is_cold[group] == 0)
            for (std::int64_t row = 0; row < n_rows; ++row)
                for (std::int64_t layer = 0; layer < rnn.layers; ++layer)
                    std::copy_n(states.get() + (group * n_rows + row) * state_size + layer * own.view().padded_hidden,
                                own.view().padded_hidden,
                                state.get() + (layer * n_rows + row) * own.view().padded_hidden);
        std::vector<float> sums(static_cast<std::size_t>(n_rows), 0.0f);
        const ByteBuffer scratch = allocate<std::byte>(current_isa().reported->rnn_scratch_bytes(own.view(), n_rows));
        RnnRows rows{};
        rows.n_rows = n_rows;
        rows.n_tokens = trials.scored;
        rows.tokens = trials.tokens + group * n_rows * text_length + trials.context;
        rows.token_stride = text_length;
        rows.state = state.get();
        rows.losses = sums.data();
        current_isa().reported->rnn_run(own.view(), rows, scratch.get());
        float& loss = losses[static_cast<std::size_t>(i)];
        loss = 0.0f;
        for (const float sum : sums) loss += sum;
    });
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
    if (rnn.tensors[0].rank == 0) {
        full_rank_losses(losses, rnn, trials, n_threads);
    } else {
        low_rank_losses(losses, rnn, trials, n_threads);
    }
    divide(losses, trials);
}

void member_losses_naive(std::span<float> losses, const Rnn& rnn, const Trials& trials) {
    const TensorIndex index(rnn.layers);
    const auto hidden = static_cast<std::size_t>(rnn.hidden), vocab = static_cast<std::size_t>(rnn.vocab);
    std::vector<double> state(static_cast<std::size_t>(rnn.layers) * hidden);
    // Reads one token with the given weights and gives the logits.
    const auto read = [&](const float* weights, std::uint16_t token) {
        const auto at = [&](std::size_t tensor) { return weights + rnn.tensors[tensor].offset; };
        std::vector<double> below(hidden);
        for (std::int64_t layer = 0; layer < rnn.layers; ++layer) {
            double* h = state.data() + static_cast<std::size_t>(layer) * hidden;
            std::vector<double> next(hidden);
            for (std::size_t i = 0; i < hidden; ++i) {
                double sum = static_cast<double>(at(index.bias[layer])[i]);
                if (layer == 0) sum += static_cast<double>(at(index.embedding)[token * hidden + i]);
                for (std::size_t j = 0; j < hidden; ++j) {
                    if (layer > 0) sum += static_cast<double>(at(index.input[layer])[i * hidden + j]) * below[j];
                    sum += static_cast<double>(at(index.recurrent[layer])[i * hidden + j]) * h[j];
                }
                next[i] = std::tanh(sum);
            }
            std::ranges::copy(next, h);
            below = next;
        }
        std::vector<double> logits(vocab);
        for (std::size_t v = 0; v < vocab; ++v) {
            logits[v] = static_cast<double>(at(index.head_bias)[v]);
            for (std::size_t j = 0; j < hidden; ++j)
                logits[v] += static_cast<double>(at(index.head)[v * hidden + j]) * below[j];
        }
        return logits;
    };
    const auto begin = [&](const float* weights) {
        const float* initial = weights + rnn.tensors[index.initial_state].offset;
        std::copy_n(initial, state.size(), state.begin());
    };
    std::vector<float> perturbed(rnn.weights.size());
    for (std::size_t i = 0; i < losses.size(); ++i) {
        const auto group = static_cast<std::int64_t>(i) / trials.group_size;
        perturb(perturbed, rnn, trials, trials.first_member + i);
        double loss = 0.0;
        for (std::int64_t sequence = 0; sequence < trials.batch_size; ++sequence) {
            const std::uint16_t* text = trials.tokens + (group * trials.batch_size + sequence) *
                                                            (trials.context + trials.scored + 1);
            begin(trials.is_cold[group] != 0 ? perturbed.data() : rnn.weights.data());
            for (std::int64_t t = 0; t < trials.context && trials.is_cold[group] == 0; ++t)
                read(rnn.weights.data(), text[t]);
            for (std::int64_t t = trials.context; t < trials.context + trials.scored; ++t) {
                const std::vector<double> logits = read(perturbed.data(), text[t]);
                const double greatest = std::ranges::max(logits);
                double sum = 0.0;
                for (const double logit : logits) sum += std::exp(logit - greatest);
                loss += greatest + std::log(sum) - logits[text[t + 1]];
            }
        }
        losses[i] = static_cast<float>(loss);
    }
    divide(losses, trials);
}

void text_losses(float* losses, float* log_probabilities, float* state, const Rnn& rnn, const std::uint16_t* tokens,
                 std::int64_t token_stride, std::int64_t n_rows, std::int64_t n_tokens, int n_threads) {
    const PackedWeights packed(rnn);
    const ReportedKernels& kernels = *current_isa().reported;
    const std::int64_t padded = packed.view().padded_hidden;
    const std::int64_t n_items = (n_rows + kContextRows - 1) / kContextRows;
    parallel_for(n_items, thread_count(n_threads, n_items), [&](int, std::int64_t item) {
        const std::int64_t first = item * kContextRows, n = std::min(kContextRows, n_rows - first);
        const FloatBuffer own = allocate<float>(rnn.layers * n * padded);
        const ByteBuffer scratch = allocate<std::byte>(kernels.rnn_scratch_bytes(packed.view(), n));
        std::fill_n(own.get(), rnn.layers * n * padded, 0.0f);
        // The kernel's state is [layers][rows][padded H].
        const auto outside = [&](std::int64_t row, std::int64_t layer) {
            return state + ((first + row) * rnn.layers + layer) * rnn.hidden;
        };
        const auto inside = [&](std::int64_t row, std::int64_t layer) { return own.get() + (layer * n + row) * padded; };
        for (std::int64_t row = 0; row < n; ++row)
            for (std::int64_t layer = 0; layer < rnn.layers; ++layer)
                std::copy_n(outside(row, layer), rnn.hidden, inside(row, layer));
        RnnRows rows{};
        rows.n_rows = n;
        rows.n_tokens = n_tokens;
        rows.tokens = tokens + first * token_stride;
        rows.token_stride = token_stride;
        rows.state = own.get();
        rows.losses = losses != nullptr ? losses + first : nullptr;
        rows.log_probabilities = log_probabilities != nullptr ? log_probabilities + first * rnn.vocab : nullptr;
        kernels.rnn_run(packed.view(), rows, scratch.get());
        for (std::int64_t row = 0; row < n; ++row)
            for (std::int64_t layer = 0; layer < rnn.layers; ++layer)
                std::copy_n(inside(row, layer), rnn.hidden, outside(row, layer));
    });
}

}  // namespace fedlearn
