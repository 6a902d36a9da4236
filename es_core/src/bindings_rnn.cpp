// The RNN's functions: losses, gradients, and reading text.
#include <algorithm>
#include <functional>

#include "activations/activity.h"
#include "bindings.h"
#include "dispatch.h"
#include "rnn/evaluate.h"

namespace fedlearn {

namespace {

using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // vocabulary, hidden units, layers

// The cells that can do something, as a message lists them.
template <class Predicate>
std::string cell_names(Predicate can) {
    std::string names;
    for (const Cell& cell : kCells)
        if (std::invoke(can, cell)) names += (names.empty() ? "" : " or ") + std::string(cell.name);
    return names;
}

Cell cell_from(const std::string& name) {
    const auto* const found = std::ranges::find(kCells, name, &Cell::name);
    require(found != std::end(kCells), "cell: expected " + cell_names([](const Cell&) { return true; }) + ", got " + name);
    return *found;
}

// Rows and columns of an RNN's tensors, in the order that Rnn documents.
std::vector<std::pair<std::int64_t, std::int64_t>> tensor_sizes(const Cell& cell, const Shape& shape) {
    const auto [vocab, hidden, layers] = shape;
    const std::int64_t rows = cell.gates * hidden;
    std::vector<std::pair<std::int64_t, std::int64_t>> sizes{{vocab, rows}};
    for (std::int64_t layer = 0; layer < layers; ++layer) {
        if (layer > 0) sizes.emplace_back(rows, hidden);
        sizes.emplace_back(rows, hidden);
        sizes.emplace_back(1, rows);
        if (cell.has_hidden_bias) sizes.emplace_back(1, hidden);
    }
    sizes.insert(sizes.end(), {{vocab, hidden}, {1, vocab}, {1, cell.state_vectors * layers * hidden}});
    return sizes;
}

// The RNN's arguments, checked and kept alive for a call.
struct RnnArguments {
    std::vector<Tensor> tensors;
    py::array_t<float> scales, weights;
    Rnn rnn;

    // Control matrices may stand behind the model's tensors; with the readout and the matrix of perturbed logits.
    RnnArguments(const Cell& cell, const Shape& shape, const py::array& table, const py::array& tensor_scales,
                 const py::array& flat, std::int64_t reset_token, bool has_controls = false,
                 bool has_perturbed_logits = false)
        : scales(checked<float>("scales", tensor_scales, 1)), weights(checked<float>("weights", flat, 1)), rnn{} {
        tensors = tensors_from(table, weights.size());
        const auto [vocab, hidden, layers] = shape;
        require(vocab > 1 && vocab <= kMaxSize && hidden > 1 && hidden <= kMaxSize && layers > 0 && layers <= kMaxLayers,
                "shape: expected a vocabulary and a hidden size of 2 to " + std::to_string(kMaxSize) + " and 1 to " +
                    std::to_string(kMaxLayers) + " layers, got " + std::to_string(vocab) + ", " +
                    std::to_string(hidden) + ", " + std::to_string(layers));
        require(reset_token >= -1 && reset_token < vocab,
                "reset_token: expected -1 (none) or a token below " + std::to_string(vocab) + ", got " +
                    std::to_string(reset_token));
        auto expected = tensor_sizes(cell, shape);
        if (has_controls) {
            expected.emplace_back(vocab, hidden);
            // A layer has a matrix from its next token and, below the last layer, one from the layer above.
            for (std::int64_t i = 0; i < 2 * layers - 1; ++i) expected.emplace_back(hidden, hidden);
        }
        if (has_controls && has_perturbed_logits)
            expected.insert(expected.end(), {{vocab, hidden}, {1, vocab}, {vocab, vocab}});
        require(tensors.size() == expected.size() && scales.size() == static_cast<py::ssize_t>(tensors.size()),
                "tensors, scales: expected " + std::to_string(expected.size()) + " tensors for this shape, got " +
                    std::to_string(tensors.size()));
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            require(tensors[i].rows == expected[i].first && tensors[i].columns == expected[i].second,
                    "tensors: expected tensor " + std::to_string(i) + " of [" + std::to_string(expected[i].first) +
                        ", " + std::to_string(expected[i].second) + "]");
            const std::int64_t rank = expected[i].first == 1 ? 0 : tensors[0].rank;
            require(tensors[i].rank == rank,
                    "tensors: expected rank 0 for vectors and one rank for all matrices; tensor " + std::to_string(i) +
                        " has " + std::to_string(tensors[i].rank));
        }
        rnn = {cell, vocab, hidden, layers, tensors, view(scales), view(weights), false, &current_isa(), reset_token};
    }

    void check_tokens(const py::array_t<std::uint16_t>& tokens) const {
        // Texts have millions of tokens: the compiler makes vectors of this, and of a loop that may stop it does not.
        std::uint16_t largest = 0;
        for (const std::uint16_t token : view(tokens)) largest = std::max(largest, token);
        require(largest < rnn.vocab, "tokens: expected tokens below " + std::to_string(rnn.vocab) + ", got " +
                                         std::to_string(largest));
    }
};

// What members are evaluated on, checked.
struct TrialArguments {
    py::array_t<std::uint16_t> tokens;
    py::array_t<std::uint8_t> is_cold;
    Trials trials;

    TrialArguments(const RnnArguments& rnn, std::uint64_t seed, std::uint32_t step, std::uint64_t first_member,
                   std::int64_t group_size, const py::array& text, std::int64_t context, const py::array& cold,
                   double sigma, bool antithetic = false)
        : tokens(checked<std::uint16_t>("tokens", text, 3)), is_cold(checked<std::uint8_t>("is_cold", cold, 1)) {
        rnn.check_tokens(tokens);
        const std::int64_t scored = tokens.shape(2) - context - 1;
        require(context >= 0 && scored > 0 && tokens.shape(1) > 0,
                "tokens: expected [groups, sequences, context + scored + 1], got " + shape_text(text));
        require(is_cold.size() == tokens.shape(0), "is_cold: expected one a group");
        require(group_size > 0 && first_member % static_cast<std::uint64_t>(group_size) == 0,
                "first_member: expected a multiple of the group size");
        require_pairs(antithetic, group_size);
        trials = {make_key(seed, step, Domain::kNoise), first_member, group_size, tokens.shape(0), tokens.shape(1),
                  context, scored, tokens.data(), is_cold.data(), static_cast<float>(sigma), antithetic};
    }
};

py::array_t<float> rnn_member_losses(const Shape& shape, const py::array& table, const py::array& scales,
                                     const py::array& weights, std::uint64_t seed, std::uint32_t step,
                                     std::uint64_t first_member, std::int64_t group_size, const py::array& tokens,
                                     std::int64_t context, const py::array& is_cold, double sigma,
                                     const std::string& cell, std::int64_t reset_token, bool antithetic, bool int8,
                                     int threads, bool naive) {
    RnnArguments arguments(cell_from(cell), shape, table, scales, weights, reset_token);
    require(!int8 || arguments.rnn.cell.has_int8,
            "int8: expected the cell " + cell_names(&Cell::has_int8) + ", got " + cell + "; use float32");
    arguments.rnn.is_int8 = int8;
    const TrialArguments given(arguments, seed, step, first_member, group_size, tokens, context, is_cold, sigma, antithetic);
    py::array_t<float> losses(given.trials.n_groups * group_size);
    const auto out = writable("losses", losses);
    const py::gil_scoped_release release;
    if (naive) {
        member_losses_naive(out, arguments.rnn, given.trials);
    } else {
        member_losses(out, arguments.rnn, given.trials, threads);
    }
    return losses;
}

std::tuple<py::array_t<float>, py::array_t<std::int32_t>, double> rnn_activation_gradient(
    const Shape& shape, const py::array& table, const py::array& scales, const py::array& weights, std::uint64_t seed,
    std::uint32_t step, std::uint64_t first_member, std::int64_t group_size, const py::array& tokens,
    std::int64_t context, const py::array& is_cold, double sigma, double logit_sigma, double discount,
    double correction, const std::string& cell, std::int64_t reset_token, bool control_variates, bool int8, int threads) {
    require(cell_from(cell).has_activation_noise, "cell: expected " + cell_names(&Cell::has_activation_noise) +
                                                      " for noise on activations, got " + cell +
                                                      "; put the noise on weights");
    RnnArguments arguments(cell_from(cell), shape, table, scales, weights, reset_token, control_variates, logit_sigma > 0.0);
    arguments.rnn.is_int8 = int8;
    const TrialArguments given(arguments, seed, step, first_member, group_size, tokens, context, is_cold, sigma);
    require(group_size > 1, "group_size: expected at least 2 members to compare, got " + std::to_string(group_size));
    require(sigma > 0.0 && logit_sigma >= 0.0, "sigma, logit_sigma: expected above 0, and at least 0");
    require(discount >= 0.0 && discount <= 1.0 && correction >= 0.0 && correction <= 1.0,
            "discount, correction: expected 0 to 1");
    py::array_t<float> losses(given.trials.n_groups * group_size);
    py::array_t<std::int32_t> estimate(arguments.weights.size());
    const auto out = writable("losses", losses);
    const auto sums = writable("estimate", estimate);
    const ActivationNoise noise{static_cast<float>(sigma), static_cast<float>(logit_sigma),
                                static_cast<float>(discount), static_cast<float>(correction)};
    double variance_left = 1.0;
    {
        const py::gil_scoped_release release;
        variance_left = activation_gradient(out, sums, arguments.rnn, given.trials, noise, threads);
    }
    return {losses, estimate, variance_left};
}

py::array_t<std::int32_t> rnn_head_gradient(const Shape& shape, const py::array& table, const py::array& scales,
                                            const py::array& weights, const py::array& tokens, std::int64_t context,
                                            const py::array& is_cold, const std::string& cell,
                                            std::int64_t reset_token, int threads) {
    const RnnArguments arguments(cell_from(cell), shape, table, scales, weights, reset_token);
    const TrialArguments given(arguments, 0, 0, 0, 1, tokens, context, is_cold, 0.0);
    py::array_t<std::int32_t> estimate(arguments.weights.size());
    const auto sums = writable("estimate", estimate);
    const py::gil_scoped_release release;
    head_gradient(sums, arguments.rnn, given.trials, threads);
    return estimate;
}

// A text a row and the states to begin with, checked; the states carried through a call begin as a copy.
struct TextArguments {
    py::array_t<std::uint16_t> tokens;
    py::array_t<float> state;

    TextArguments(const RnnArguments& rnn, const py::array& text, const py::array& before, py::ssize_t least_tokens)
        : tokens(checked<std::uint16_t>("tokens", text, 2)) {
        const auto given = checked<float>("state", before, 3);
        rnn.check_tokens(tokens);
        require(tokens.shape(1) >= least_tokens, "tokens: expected [rows, at least " + std::to_string(least_tokens) +
                                                     "], got " + shape_text(text));
        require(given.shape(0) == tokens.shape(0) && given.shape(1) == state_vectors_of(rnn.rnn) &&
                    given.shape(2) == rnn.rnn.hidden,
                "state: expected [" + std::to_string(tokens.shape(0)) + ", " +
                    std::to_string(state_vectors_of(rnn.rnn)) + ", " + std::to_string(rnn.rnn.hidden) + "], got " + shape_text(before));
        state = py::array_t<float>({given.shape(0), given.shape(1), given.shape(2)});
        std::copy_n(given.data(), given.size(), writable("state", state).data());
    }
};

std::tuple<py::array_t<float>, py::array_t<float>> rnn_text_losses(const Shape& shape, const py::array& table,
                                                                   const py::array& scales, const py::array& weights,
                                                                   const py::array& tokens, const py::array& state,
                                                                   const std::string& cell, std::int64_t reset_token,
                                                                   int threads) {
    const RnnArguments arguments(cell_from(cell), shape, table, scales, weights, reset_token);
    TextArguments text(arguments, tokens, state, 2);
    py::array_t<float> losses(text.tokens.shape(0));
    float* carried = text.state.mutable_data();
    float* out = losses.mutable_data();
    std::fill_n(out, losses.size(), 0.0f);
    {
        const py::gil_scoped_release release;
        text_losses(out, nullptr, carried, arguments.rnn, text.tokens.data(), text.tokens.shape(1),
                    text.tokens.shape(0), text.tokens.shape(1) - 1, threads);
    }
    return {losses, text.state};
}

std::tuple<py::array_t<float>, py::array_t<float>> rnn_next(const Shape& shape, const py::array& table,
                                                            const py::array& scales, const py::array& weights,
                                                            const py::array& tokens, const py::array& state,
                                                            const std::string& cell, std::int64_t reset_token) {
    const RnnArguments arguments(cell_from(cell), shape, table, scales, weights, reset_token);
    TextArguments text(arguments, tokens, state, 1);
    py::array_t<float> log_probabilities({text.tokens.shape(0), static_cast<py::ssize_t>(arguments.rnn.vocab)});
    float* carried = text.state.mutable_data();
    float* out = log_probabilities.mutable_data();
    {
        const py::gil_scoped_release release;
        text_losses(nullptr, out, carried, arguments.rnn, text.tokens.data(), text.tokens.shape(1),
                    text.tokens.shape(0), text.tokens.shape(1), 1);
    }
    return {log_probabilities, text.state};
}

}  // namespace

void bind_rnn(py::module_& m) {
    using namespace pybind11::literals;
    m.def("rnn_member_losses", rnn_member_losses, "shape"_a, "tensors"_a, "scales"_a, "weights"_a, py::kw_only(),
          "seed"_a, "step"_a, "first_member"_a, "group_size"_a, "tokens"_a, "context"_a, "is_cold"_a, "sigma"_a,
          "cell"_a = "tanh", "reset_token"_a = -1, "antithetic"_a = false, "int8"_a = false, "threads"_a = 0,
          "naive"_a = false);
    m.def("rnn_activation_gradient", rnn_activation_gradient, "shape"_a, "tensors"_a, "scales"_a, "weights"_a,
          py::kw_only(), "seed"_a, "step"_a, "first_member"_a, "group_size"_a, "tokens"_a, "context"_a, "is_cold"_a,
          "sigma"_a, "logit_sigma"_a, "discount"_a, "correction"_a = 1.0, "cell"_a = "tanh", "reset_token"_a = -1, "control_variates"_a = false,
          "int8"_a = false, "threads"_a = 0);
    m.def("rnn_head_gradient", rnn_head_gradient, "shape"_a, "tensors"_a, "scales"_a, "weights"_a, py::kw_only(),
          "tokens"_a, "context"_a, "is_cold"_a, "cell"_a = "tanh", "reset_token"_a = -1, "threads"_a = 0);
    m.attr("ESTIMATE_UNIT") = kEstimateUnit;
    m.attr("RNN_MAX_SIZE") = kMaxSize;
    m.attr("RNN_MAX_LAYERS") = kMaxLayers;
    m.attr("RNN_ROW_MULTIPLE") = kByteMultiple;
    m.attr("RNN_CONTEXT_ROWS") = kContextRows;
    m.attr("RNN_RUN_ROWS") = kRunRows;
    m.attr("RNN_BLOCK_GROUPS") = kBlockGroups;
    m.attr("RNN_TRACED_GROUPS") = kTracedGroups;
    m.attr("RNN_ITEM_GROUPS") = kItemGroups;
    m.def("rnn_text_losses", rnn_text_losses, "shape"_a, "tensors"_a, "scales"_a, "weights"_a, py::kw_only(),
          "tokens"_a, "state"_a, "cell"_a = "tanh", "reset_token"_a = -1, "threads"_a = 0);
    m.def("rnn_next_log_probabilities", rnn_next, "shape"_a, "tensors"_a, "scales"_a, "weights"_a, py::kw_only(),
          "tokens"_a, "state"_a, "cell"_a = "tanh", "reset_token"_a = -1);
}

}  // namespace fedlearn
