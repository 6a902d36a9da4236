// The only file that knows Python: checks dtype, contiguity and shape, and releases the interpreter lock.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "activity.h"
#include "evaluate.h"
#include "threads.h"
#include "update.h"

namespace py = pybind11;

namespace {

using namespace fedlearn;

constexpr std::int64_t kMaxParameters = std::int64_t{1} << 31;

std::string shape_text(const py::array& array) {
    return py::str(array.attr("dtype")).cast<std::string>() + py::str(array.attr("shape")).cast<std::string>();
}

// A C-contiguous array of Value with the expected number of dimensions, or ValueError.
template <class Value>
py::array_t<Value> checked(const char* name, const py::array& array, int dimensions) {
    if (!py::isinstance<py::array_t<Value, py::array::c_style>>(array) || array.ndim() != dimensions)
        throw py::value_error(std::string(name) + ": expected a C-contiguous array of " +
                              py::str(py::dtype::of<Value>()).cast<std::string>() + " with " +
                              std::to_string(dimensions) + " dimensions, got " + shape_text(array));
    return py::array_t<Value>(array);
}

void require(bool condition, const std::string& message) {
    if (!condition) throw py::value_error(message);
}

template <class Value>
std::span<const Value> view(const py::array_t<Value>& array) {
    return {array.data(), static_cast<std::size_t>(array.size())};
}

template <class Value>
std::span<Value> writable(const char* name, py::array_t<Value>& array) {
    require(array.writeable(), std::string(name) + ": expected a writable array, got a read-only one");
    return {array.mutable_data(), static_cast<std::size_t>(array.size())};
}

// Rows of (offset, rows, columns, rank, mask column); `n_parameters` bounds what they address.
std::vector<Tensor> tensors_from(const py::array& table, std::int64_t n_parameters) {
    const auto values = checked<std::int64_t>("tensors", table, 2);
    require(values.shape(1) == 5, "tensors: expected rows of (offset, rows, columns, rank, mask column), got " +
                                      shape_text(table));
    std::vector<Tensor> tensors;
    for (py::ssize_t i = 0; i < values.shape(0); ++i) {
        const Tensor t{values.at(i, 0), values.at(i, 1), values.at(i, 2), values.at(i, 3), values.at(i, 4)};
        require(t.rows > 0 && t.columns > 0 && t.rows <= kMaxParameters / t.columns && t.offset >= 0 &&
                    t.offset <= n_parameters - t.rows * t.columns,
                "tensors: expected row " + std::to_string(i) + " to lie within " + std::to_string(n_parameters) +
                    " parameters");
        require(t.rank >= 0 && t.rank <= kMaxRank, "tensors: expected a rank from 0 to 8, got " + std::to_string(t.rank));
        tensors.push_back(t);
    }
    require(!tensors.empty() && tensors.size() < 65536, "tensors: expected 1 to 65535 tensors");
    return tensors;
}

py::array_t<std::int8_t> sign_noise(std::uint64_t seed, std::uint32_t step, std::uint64_t member, std::uint32_t tensor,
                                    std::uint32_t factor, std::uint64_t offset, std::int64_t count) {
    require(count >= 0 && tensor < 65536 && factor < 65536,
            "tensor, factor, count: expected a tensor and a factor below 65536 and a count of zero or more, got " +
                std::to_string(tensor) + ", " + std::to_string(factor) + ", " + std::to_string(count));
    py::array_t<std::int8_t> signs(count);
    fill_signs(writable("signs", signs), make_key(seed, step, Domain::kNoise), member, tensor, factor, offset);
    return signs;
}

py::array_t<std::uint32_t> random_words(std::uint64_t seed, std::uint32_t step, std::uint64_t first_stream,
                                        std::int64_t n_streams, std::int64_t count) {
    require(n_streams >= 0 && count >= 0, "n_streams, count: expected zero or more");
    py::array_t<std::uint32_t> words({n_streams, count});
    const auto out = writable("words", words);
    for (std::int64_t i = 0; i < n_streams; ++i)
        fill_random_words(out.subspan(static_cast<std::size_t>(i * count), static_cast<std::size_t>(count)),
                          make_key(seed, step, Domain::kWindows), first_stream + static_cast<std::uint64_t>(i));
    return words;
}

py::array_t<std::int8_t> utilities_of(const py::array& losses, std::int64_t group_size, double scale,
                                      double resolution) {
    const auto values = checked<float>("losses", losses, 1);
    require(group_size > 0 && values.size() % group_size == 0,
            "losses: expected a multiple of the group size " + std::to_string(group_size) + ", got " +
                std::to_string(values.size()));
    py::array_t<std::int8_t> utilities(values.size());
    normalized_utilities(writable("utilities", utilities), view(values), group_size, scale, resolution);
    return utilities;
}

void require_pairs(bool antithetic, std::int64_t group_size) {
    require(!antithetic || group_size % 2 == 0,
            "group_size: expected an even number with antithetic pairs, got " + std::to_string(group_size));
}

py::array_t<std::int32_t> gradient_of(const py::array& table, std::int64_t n_parameters, std::uint64_t seed,
                                      std::uint32_t step, std::int64_t group_size,
                                      const std::vector<Span>& spans, const py::array& utilities,
                                      const std::optional<py::array>& row_masks, bool antithetic, int threads,
                                      bool naive) {
    require(n_parameters > 0 && n_parameters <= kMaxParameters, "n_parameters: out of range");
    const std::vector<Tensor> tensors = tensors_from(table, n_parameters);
    const auto values = checked<std::int8_t>("utilities", utilities, 1);
    std::int64_t n_members = 0, mask_columns = 0, rank = 1;
    require(group_size > 0, "group_size: expected at least 1, got " + std::to_string(group_size));
    require_pairs(antithetic, group_size);
    for (const auto& [first, count] : spans) {
        require(count > 0 && count <= values.size() && count % group_size == 0 &&
                    first % static_cast<std::uint64_t>(group_size) == 0,
                "spans: expected whole groups of " + std::to_string(group_size));
        n_members += count;
    }
    for (const Tensor& tensor : tensors) {
        rank = std::max(rank, tensor.rank);
        if (tensor.mask_column >= 0) mask_columns = std::max(mask_columns, tensor.mask_column + tensor.rows);
    }
    require(n_members == values.size(), "utilities: expected one a member, " + std::to_string(n_members) + ", got " +
                                            std::to_string(values.size()));
    // The kernels negate signed bytes.
    require(std::ranges::find(view(values), std::int8_t{-128}) == view(values).end(),
            "utilities: expected -127 to 127, got -128");
    require(n_members <= 2147483647 / (127 * rank),
            "spans: a population of " + std::to_string(n_members) + " members could overflow the 32-bit estimate");
    std::vector<std::uint8_t> masks;
    const std::int64_t n_groups = n_members / group_size;
    if (row_masks.has_value()) {
        const auto given = checked<std::uint8_t>("row_masks", *row_masks, 2);
        require(given.shape(0) == n_groups && given.shape(1) >= mask_columns,
                "row_masks: expected [" + std::to_string(n_groups) + ", " + std::to_string(mask_columns) + "], got " +
                    shape_text(*row_masks));
        mask_columns = given.shape(1);
        masks.resize(static_cast<std::size_t>(given.size() + kBlockMultiple));
        std::copy_n(given.data(), given.size(), masks.begin());
    } else {
        require(mask_columns == 0, "row_masks: expected masks, since a tensor names a mask column");
    }
    py::array_t<std::int32_t> estimate(n_parameters);
    const auto out = writable("estimate", estimate);
    const Population population{make_key(seed, step, Domain::kNoise),
                                group_size,
                                spans,
                                view(values),
                                masks.empty() ? nullptr : masks.data(),
                                mask_columns,
                                antithetic};
    const py::gil_scoped_release release;
    if (naive) {
        estimate_gradient_naive(out, tensors, population);
    } else {
        estimate_gradient(out, tensors, population, threads);
    }
    return estimate;
}

// Pointers to weights, two state vectors and the estimate of one tensor's interval, all of one length.
struct StepArrays {
    py::array_t<float> weights, first, second;
    py::array_t<std::int32_t> estimate;
    StepArrays(const py::array& w, const py::array& a, const py::array& b, const py::array& e)
        : weights(checked<float>("weights", w, 1)),
          first(checked<float>("first_moment", a, 1)),
          second(checked<float>("second_moment", b, 1)),
          estimate(checked<std::int32_t>("estimate", e, 1)) {
        require(weights.size() == first.size() && weights.size() == second.size() &&
                    weights.size() == estimate.size(),
                "weights, first_moment, second_moment, estimate: expected one length");
    }
};

void adam_of(const py::array& weights, const py::array& first_moment, const py::array& second_moment,
             const py::array& estimate, double gradient_scale, double learning_rate, double beta1, double beta2,
             double epsilon, double correction1, double correction2, double decay) {
    StepArrays arrays(weights, first_moment, second_moment, estimate);
    const AdamStep step{gradient_scale, learning_rate, beta1, beta2, epsilon, correction1, correction2, decay};
    float* w = writable("weights", arrays.weights).data();
    float* m = writable("first_moment", arrays.first).data();
    float* v = writable("second_moment", arrays.second).data();
    const py::gil_scoped_release release;
    adam_step(w, m, v, arrays.estimate.data(), arrays.estimate.size(), step);
}

void sgd_of(const py::array& weights, const py::array& momentum_buffer, const py::array& estimate,
            double gradient_scale, double learning_rate, double momentum, double decay) {
    StepArrays arrays(weights, momentum_buffer, momentum_buffer, estimate);
    const SgdStep step{gradient_scale, learning_rate, momentum, decay};
    float* w = writable("weights", arrays.weights).data();
    float* buffer = writable("momentum_buffer", arrays.first).data();
    const py::gil_scoped_release release;
    sgd_step(w, buffer, arrays.estimate.data(), arrays.estimate.size(), step);
}

// The RNN's arguments, checked and kept alive for a call.
struct RnnArguments {
    std::vector<Tensor> tensors;
    py::array_t<float> scales, weights;
    Rnn rnn;

    // Control matrices of so many taps stand behind the model's tensors; with those of perturbed logits.
    RnnArguments(const std::tuple<std::int64_t, std::int64_t, std::int64_t>& shape, const py::array& table,
                 const py::array& tensor_scales, const py::array& flat, std::int64_t control_taps = 0,
                 bool has_perturbed_logits = false)
        : scales(checked<float>("scales", tensor_scales, 1)), weights(checked<float>("weights", flat, 1)), rnn{} {
        tensors = tensors_from(table, weights.size());
        const auto [vocab, hidden, layers] = shape;
        require(vocab > 1 && vocab <= 65536 && hidden > 1 && hidden <= 65536 && layers > 0 && layers <= kMaxLayers,
                "shape: expected a vocabulary and a hidden size of 2 to 65536 and 1 to 16 layers, got " +
                    std::to_string(vocab) + ", " + std::to_string(hidden) + ", " + std::to_string(layers));
        std::vector<std::pair<std::int64_t, std::int64_t>> expected{{vocab, hidden}};
        for (std::int64_t layer = 0; layer < layers; ++layer) {
            if (layer > 0) expected.emplace_back(hidden, hidden);
            expected.emplace_back(hidden, hidden);
            expected.emplace_back(1, hidden);
        }
        expected.insert(expected.end(), {{vocab, hidden}, {1, vocab}, {1, layers * hidden}});
        const std::int64_t n_features = has_perturbed_logits ? 2 * vocab : vocab;
        for (std::int64_t i = 0; i < layers * control_taps; ++i) expected.emplace_back(n_features, hidden);
        if (control_taps > 0 && has_perturbed_logits) expected.emplace_back(n_features, vocab);
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
        rnn = {vocab, hidden, layers, tensors, view(scales), view(weights), false};
    }

    void check_tokens(const py::array_t<std::uint16_t>& tokens) const {
        for (const std::uint16_t token : view(tokens))
            require(token < rnn.vocab, "tokens: expected tokens below " + std::to_string(rnn.vocab) + ", got " +
                                           std::to_string(token));
    }
};

using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

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
                                     std::int64_t context, const py::array& is_cold, double sigma, bool antithetic,
                                     bool int8, int threads, bool naive) {
    RnnArguments arguments(shape, table, scales, weights);
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

std::tuple<py::array_t<float>, py::array_t<std::int32_t>> rnn_activation_gradient(
    const Shape& shape, const py::array& table, const py::array& scales, const py::array& weights, std::uint64_t seed,
    std::uint32_t step, std::uint64_t first_member, std::int64_t group_size, const py::array& tokens,
    std::int64_t context, const py::array& is_cold, double sigma, double logit_sigma, double discount,
    std::int64_t control_taps, bool int8, int threads) {
    require(control_taps >= 0 && control_taps <= kMaxControlTaps,
            "control_taps: expected 0 to " + std::to_string(kMaxControlTaps) + ", got " + std::to_string(control_taps));
    RnnArguments arguments(shape, table, scales, weights, control_taps, logit_sigma > 0.0);
    arguments.rnn.is_int8 = int8;
    const TrialArguments given(arguments, seed, step, first_member, group_size, tokens, context, is_cold, sigma);
    require(group_size > 1, "group_size: expected at least 2 members to compare, got " + std::to_string(group_size));
    require(sigma > 0.0 && logit_sigma >= 0.0 && discount >= 0.0 && discount <= 1.0,
            "sigma, logit_sigma, discount: expected above 0, at least 0, and 0 to 1");
    py::array_t<float> losses(given.trials.n_groups * group_size);
    py::array_t<std::int32_t> estimate(arguments.weights.size());
    const auto out = writable("losses", losses);
    const auto sums = writable("estimate", estimate);
    const ActivationNoise noise{static_cast<float>(sigma), static_cast<float>(logit_sigma),
                                static_cast<float>(discount), control_taps};
    {
        const py::gil_scoped_release release;
        activation_gradient(out, sums, arguments.rnn, given.trials, noise, threads);
    }
    return {losses, estimate};
}

py::array_t<std::int32_t> rnn_head_gradient(const Shape& shape, const py::array& table, const py::array& scales,
                                            const py::array& weights, const py::array& tokens, std::int64_t context,
                                            const py::array& is_cold, int threads) {
    const RnnArguments arguments(shape, table, scales, weights);
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
        require(given.shape(0) == tokens.shape(0) && given.shape(1) == rnn.rnn.layers &&
                    given.shape(2) == rnn.rnn.hidden,
                "state: expected [rows, layers, hidden], got " + shape_text(before));
        state = py::array_t<float>({given.shape(0), given.shape(1), given.shape(2)});
        std::copy_n(given.data(), given.size(), writable("state", state).data());
    }
};

std::tuple<py::array_t<float>, py::array_t<float>> rnn_text_losses(const Shape& shape, const py::array& table,
                                                                   const py::array& scales, const py::array& weights,
                                                                   const py::array& tokens, const py::array& state,
                                                                   int threads) {
    const RnnArguments arguments(shape, table, scales, weights);
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
                                                            const py::array& tokens, const py::array& state) {
    const RnnArguments arguments(shape, table, scales, weights);
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

std::vector<std::string> supported_isas() {
    std::vector<std::string> names;
    for (const Isa& isa : compiled_isas())
        if (isa.is_supported()) names.emplace_back(isa.name);
    return names;
}

}  // namespace

PYBIND11_MODULE(_native, m) {
    using namespace pybind11::literals;
    m.def("sign_noise", sign_noise, "seed"_a, "step"_a, "member"_a, "tensor"_a, "factor"_a, "offset"_a, "count"_a);
    m.def("random_words", random_words, "seed"_a, "step"_a, "first_stream"_a, "n_streams"_a, "count"_a);
    m.def("normalized_utilities", utilities_of, "losses"_a, "group_size"_a, "scale"_a, "resolution"_a);
    m.def("estimate_gradient", gradient_of, "tensors"_a, "n_parameters"_a, py::kw_only(), "seed"_a, "step"_a,
          "group_size"_a, "spans"_a, "utilities"_a, "row_masks"_a, "antithetic"_a = false, "threads"_a = 0,
          "naive"_a = false);
    m.def("adam_step", adam_of, "weights"_a, "first_moment"_a, "second_moment"_a, "estimate"_a, py::kw_only(),
          "gradient_scale"_a, "learning_rate"_a, "beta1"_a, "beta2"_a, "epsilon"_a, "correction1"_a, "correction2"_a,
          "decay"_a = 0.0);
    m.def("sgd_step", sgd_of, "weights"_a, "momentum_buffer"_a, "estimate"_a, py::kw_only(), "gradient_scale"_a,
          "learning_rate"_a, "momentum"_a, "decay"_a = 0.0);
    m.def("rnn_member_losses", rnn_member_losses, "shape"_a, "tensors"_a, "scales"_a, "weights"_a, py::kw_only(),
          "seed"_a, "step"_a, "first_member"_a, "group_size"_a, "tokens"_a, "context"_a, "is_cold"_a, "sigma"_a,
          "antithetic"_a = false, "int8"_a = false, "threads"_a = 0, "naive"_a = false);
    m.def("rnn_activation_gradient", rnn_activation_gradient, "shape"_a, "tensors"_a, "scales"_a, "weights"_a,
          py::kw_only(), "seed"_a, "step"_a, "first_member"_a, "group_size"_a, "tokens"_a, "context"_a, "is_cold"_a,
          "sigma"_a, "logit_sigma"_a, "discount"_a, "control_taps"_a = 0, "int8"_a = false, "threads"_a = 0);
    m.def("rnn_head_gradient", rnn_head_gradient, "shape"_a, "tensors"_a, "scales"_a, "weights"_a, py::kw_only(),
          "tokens"_a, "context"_a, "is_cold"_a, "threads"_a = 0);
    m.attr("ESTIMATE_UNIT") = kEstimateUnit;
    m.def("rnn_text_losses", rnn_text_losses, "shape"_a, "tensors"_a, "scales"_a, "weights"_a, py::kw_only(),
          "tokens"_a, "state"_a, "threads"_a = 0);
    m.def("rnn_next_log_probabilities", rnn_next, "shape"_a, "tensors"_a, "scales"_a, "weights"_a, py::kw_only(),
          "tokens"_a, "state"_a);
    m.def("supported_isas", supported_isas);
    m.def("current_isa", [] { return std::string(current_isa().name); });
    m.def("select_isa", [](const std::string& name) { select_isa(name.c_str()); }, "name"_a);
    m.def("usable_processors", usable_processors);
}
