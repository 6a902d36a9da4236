// The module: noise and update. The bindings' files are the only ones that know Python; they check arguments and release
// the interpreter lock.
#include "bindings.h"

#include <cmath>

#include "checksum.h"
#include "dispatch.h"
#include "replicated/coding.h"
#include "replicated/estimate.h"
#include "replicated/float_guard.h"
#include "replicated/member_signs.h"
#include "replicated/muon.h"
#include "replicated/optimizers.h"
#include "replicated/utilities.h"
#include "threads.h"

namespace py = pybind11;

namespace {

using namespace fedlearn;

constexpr std::int64_t kMaxSigns = std::int64_t{1} << 40;

py::array_t<std::int8_t> sign_noise(std::uint64_t seed, std::uint32_t step, std::uint64_t member, std::uint32_t tensor,
                                    std::uint32_t factor, std::uint64_t offset, std::int64_t count) {
    require(count >= 0 && tensor < 65536 && factor < 65536,
            "tensor, factor, count: expected a tensor and a factor below 65536 and a count of zero or more, got " +
                std::to_string(tensor) + ", " + std::to_string(factor) + ", " + std::to_string(count));
    py::array_t<std::int8_t> signs(count);
    fill_signs(writable("signs", signs), make_key(seed, step, Domain::kNoise), member, tensor, factor, offset);
    return signs;
}

// Rows of (tensor, factor, length) with a scale and a first sign each, checked.
std::vector<SignFactor> factors_from(const py::array& table, const std::optional<py::array>& scales,
                                     const std::optional<py::array>& first_signs) {
    const auto rows = checked<std::int64_t>("factors", table, 2);
    require(rows.shape(1) == 3, "factors: expected rows of (tensor, factor, length), got " + shape_text(table));
    py::array_t<float> given;
    if (scales.has_value()) {
        given = checked<float>("scales", *scales, 1);
        require(given.size() == rows.shape(0), "scales: expected one a factor, " + std::to_string(rows.shape(0)) +
                                                   ", got " + std::to_string(given.size()));
    }
    py::array_t<std::int64_t> firsts;
    if (first_signs.has_value()) {
        firsts = checked<std::int64_t>("first_signs", *first_signs, 1);
        require(firsts.size() == rows.shape(0), "first_signs: expected one a factor, " +
                                                    std::to_string(rows.shape(0)) + ", got " +
                                                    std::to_string(firsts.size()));
    }
    std::vector<SignFactor> factors;
    for (py::ssize_t i = 0; i < rows.shape(0); ++i) {
        const std::int64_t tensor = rows.at(i, 0), factor = rows.at(i, 1), length = rows.at(i, 2);
        require(tensor >= 0 && tensor < 65536 && factor >= 0 && factor < 65536 && length > 0 &&
                    length <= kMaxParameters,
                "factors: expected a tensor and a factor from 0 to 65535 and a length of 1 to 2^31, got " +
                    std::to_string(tensor) + ", " + std::to_string(factor) + ", " + std::to_string(length));
        const std::int64_t first = first_signs.has_value() ? firsts.at(i) : 0;
        require(first >= 0 && first <= kMaxParameters,
                "first_signs: expected 0 to 2^31, got " + std::to_string(first));
        factors.push_back(sign_factor(static_cast<std::uint32_t>(tensor), static_cast<std::uint32_t>(factor), first,
                                      length, scales.has_value() ? given.at(i) : 1.0f));
    }
    return factors;
}

py::array_t<float> member_signs(std::uint64_t seed, std::uint32_t step, std::uint64_t first_member,
                                std::int64_t n_members, const py::array& table, const std::optional<py::array>& scales,
                                const std::optional<py::array>& first_signs, bool antithetic, int threads) {
    const std::vector<SignFactor> factors = factors_from(table, scales, first_signs);
    std::int64_t n_signs = 0;
    for (const SignFactor& factor : factors) n_signs += factor.length - factor.skipped;
    require(n_members >= 0 && n_members <= kMaxSigns / std::max<std::int64_t>(n_signs, 1),
            "n_members: expected zero or more, of at most 2^40 signs together, got " + std::to_string(n_members));
    py::array_t<float> signs({n_members, n_signs});
    const auto out = writable("signs", signs);
    const py::gil_scoped_release release;
    fill_member_signs(out, factors, {make_key(seed, step, Domain::kNoise), first_member, n_members, antithetic},
                      *current_isa().replicated, threads);
    return signs;
}

py::array_t<std::uint32_t> random_words(std::uint64_t seed, std::uint32_t step, std::uint64_t first_stream,
                                        std::int64_t n_streams, std::int64_t count, std::int64_t offset) {
    require(n_streams >= 0 && count >= 0 && offset >= 0, "n_streams, count, offset: expected zero or more");
    py::array_t<std::uint32_t> words({n_streams, count});
    const auto out = writable("words", words);
    for (std::int64_t i = 0; i < n_streams; ++i)
        fill_random_words(out.subspan(static_cast<std::size_t>(i * count), static_cast<std::size_t>(count)),
                          make_key(seed, step, Domain::kWindows), first_stream + static_cast<std::uint64_t>(i),
                          static_cast<std::uint64_t>(offset));
    return words;
}

py::array_t<float> dropout_mask(std::uint64_t seed, std::int64_t count, double kept) {
    require(count >= 0 && count <= kMaxParameters && kept >= 0.0 && kept <= 1.0,
            "count, kept: expected 0 to 2^31 numbers and a share from 0 to 1, got " + std::to_string(count) + ", " +
                std::to_string(kept));
    py::array_t<float> mask(count);
    const auto out = writable("mask", mask);
    const py::gil_scoped_release release;
    current_isa().replicated->dropout_mask(
        out.data(), make_key(seed, 0, Domain::kDropout), count,
        {kept > 0.0 ? static_cast<float>(1.0 / kept) : 0.0f, static_cast<std::int32_t>(std::lround(kept * 65536.0))});
    return mask;
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

py::array_t<std::int32_t> gradient_of(const py::array& table, std::int64_t n_parameters, std::uint64_t seed,
                                      std::uint32_t step, std::int64_t group_size,
                                      const std::vector<Span>& spans, const py::array& utilities,
                                      const std::optional<py::array>& row_masks,
                                      const std::optional<py::array>& places, bool antithetic, int threads,
                                      bool naive) {
    require(n_parameters > 0 && n_parameters <= kMaxParameters, "n_parameters: out of range");
    const std::vector<Tensor> tensors = tensors_from(table, n_parameters, places);
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
        estimate_gradient(out, tensors, population, *current_isa().replicated, threads);
    }
    return estimate;
}

// Row lengths, checked to cover `n_numbers`.
py::array_t<std::int64_t> lengths_from(const py::array& row_lengths, std::int64_t n_numbers) {
    auto lengths = checked<std::int64_t>("row_lengths", row_lengths, 1);
    std::int64_t left = n_numbers;
    for (const std::int64_t length : view(lengths)) {
        // The text takes far longer than the comparison, and rows are many.
        if (length <= 0 || length > left)
            throw py::value_error("row_lengths: expected rows that make up " + std::to_string(n_numbers));
        left -= length;
    }
    require(left == 0, "row_lengths: expected rows that make up " + std::to_string(n_numbers) + ", got " +
                           std::to_string(n_numbers - left));
    return lengths;
}

// The bytes of rows and their codes: `code` finds the codes of rows of these lengths, `fill` writes the bytes by them.
template <typename Code, typename Fill>
py::tuple coded_rows(const py::array& row_lengths, py::ssize_t n_numbers, Code code, Fill fill) {
    const auto lengths = lengths_from(row_lengths, n_numbers);
    py::array_t<std::uint8_t> codes(lengths.size());
    const auto codes_out = writable("codes", codes);
    code(codes_out, view(lengths));
    py::array_t<std::int8_t> bytes(coded_bytes(view(lengths), codes_out));
    const std::span<std::uint8_t> out{reinterpret_cast<std::uint8_t*>(bytes.mutable_data()),
                                      static_cast<std::size_t>(bytes.size())};
    fill(out, view(lengths), codes_out);
    return py::make_tuple(bytes, codes);
}

py::tuple encode_rows_of(const py::array& numbers, const py::array& row_lengths, bool exact) {
    const auto given = checked<std::int64_t>("numbers", numbers, 1);
    const auto& kernels = *current_isa().replicated;
    return coded_rows(
        row_lengths, given.size(),
        [&](std::span<std::uint8_t> codes, RowLengths lengths) {
            if (exact)
                require(exact_codes(codes, view(given), lengths), "numbers: expected integers of 32 bits");
            else
                rounded_codes(codes, view(given), lengths, kernels);
        },
        [&](std::span<std::uint8_t> bytes, RowLengths lengths, RowCodes codes) {
            encode_rows(bytes, view(given), lengths, codes, kernels);
        });
}

py::tuple round_rows_of(const py::array& numbers, const py::array& words, const py::array& row_lengths) {
    const auto given = checked<std::int64_t>("numbers", numbers, 1);
    const auto random = checked<std::uint32_t>("words", words, 1);
    require(random.size() == given.size(), "words: expected a word for each number, " + std::to_string(given.size()) +
                                               ", got " + std::to_string(random.size()));
    const auto& kernels = *current_isa().replicated;
    return coded_rows(
        row_lengths, given.size(),
        [&](std::span<std::uint8_t> codes, RowLengths lengths) { rounded_codes(codes, view(given), lengths, kernels); },
        [&](std::span<std::uint8_t> bytes, RowLengths lengths, RowCodes codes) {
            round_rows(bytes, view(given), view(random), lengths, codes, kernels);
        });
}

py::tuple pack_rows_of(const py::array& numbers, const py::array& random, const py::array& row_lengths) {
    const auto given = checked<std::int64_t>("numbers", numbers, 1);
    const auto octets = checked<std::uint8_t>("random", random, 1);
    require(octets.size() >= given.size(), "random: expected a byte for each number, " +
                                               std::to_string(given.size()) + ", got " +
                                               std::to_string(octets.size()));
    const auto& kernels = *current_isa().replicated;
    return coded_rows(
        row_lengths, given.size(),
        [&](std::span<std::uint8_t> codes, RowLengths lengths) { packed_codes(codes, view(given), lengths, kernels); },
        [&](std::span<std::uint8_t> bytes, RowLengths lengths, RowCodes codes) {
            pack_rows(bytes, view(given), view(octets), lengths, codes, kernels);
        });
}

py::array_t<std::int32_t> decode_rows_of(const py::array& numbers, const py::array& codes,
                                         const py::array& row_lengths, std::int64_t n_numbers) {
    const auto bytes = checked<std::int8_t>("numbers", numbers, 1);
    const auto given = checked<std::uint8_t>("codes", codes, 1);
    const auto lengths = lengths_from(row_lengths, n_numbers);
    require(given.size() == lengths.size(), "codes: expected one a row, " + std::to_string(lengths.size()) +
                                                ", got " + std::to_string(given.size()));
    const std::int64_t n_bytes = coded_bytes(view(lengths), view(given));
    require(n_bytes >= 0, "codes: expected shifts up to " + std::to_string(kMaxShift) + ", or " +
                              std::to_string(kExact) + " and up to " + std::to_string(kMaxExactBytes) +
                              " bytes, or " + std::to_string(kPacked) + " to " + std::to_string(kMaxPacked));
    require(n_bytes == bytes.size(), "numbers: expected " + std::to_string(n_bytes) + " bytes by the codes, got " +
                                         std::to_string(bytes.size()));
    py::array_t<std::int32_t> decoded(n_numbers);
    decode_rows(writable("decoded", decoded),
                {reinterpret_cast<const std::uint8_t*>(bytes.data()), static_cast<std::size_t>(bytes.size())},
                view(lengths), view(given));
    return decoded;
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
    adam_step(w, m, v, arrays.estimate.data(), arrays.estimate.size(), step, *current_isa().replicated);
}

void sgd_of(const py::array& weights, const py::array& momentum_buffer, const py::array& estimate,
            double gradient_scale, double learning_rate, double momentum, double decay) {
    StepArrays arrays(weights, momentum_buffer, momentum_buffer, estimate);
    const SgdStep step{gradient_scale, learning_rate, momentum, decay};
    float* w = writable("weights", arrays.weights).data();
    float* buffer = writable("momentum_buffer", arrays.first).data();
    const py::gil_scoped_release release;
    sgd_step(w, buffer, arrays.estimate.data(), arrays.estimate.size(), step, *current_isa().replicated);
}

void muon_of(const py::array& weights, const py::array& momentum, const py::array& estimate, std::int64_t rows,
             std::int64_t columns, double gradient_scale, double rate, double kept, double decay, int threads) {
    StepArrays arrays(weights, momentum, momentum, estimate);
    const std::int64_t n = arrays.estimate.size();
    require(rows > 0 && columns > 0 && rows <= kMaxMuonSide && columns <= kMaxMuonSide && n % (rows * columns) == 0,
            "rows, columns: expected whole matrices with sides of 1 to " + std::to_string(kMaxMuonSide) + ", got " +
                std::to_string(rows) + " x " + std::to_string(columns) + " of " + std::to_string(n));
    const MuonStep step{gradient_scale, rate, kept, decay};
    float* w = writable("weights", arrays.weights).data();
    float* m = writable("momentum", arrays.first).data();
    const py::gil_scoped_release release;
    muon_step(w, m, arrays.estimate.data(), {n / (rows * columns), rows, columns}, step, *current_isa().replicated,
              threads);
}

void pull_towards_of(const py::array& weights, const py::array& start, double share) {
    auto pulled = checked<float>("weights", weights, 1);
    const auto towards = checked<float>("start", start, 1);
    require(pulled.size() == towards.size(), "weights, start: expected one length, got " +
                                                 std::to_string(pulled.size()) + " and " +
                                                 std::to_string(towards.size()));
    require(share >= 0.0 && share <= 1.0, "share: expected 0 to 1, got " + std::to_string(share));
    float* w = writable("weights", pulled).data();
    const py::gil_scoped_release release;
    pull_towards(w, towards.data(), towards.size(), share, *current_isa().replicated);
}

// The floating point mode of a step as a context of Python's, of the thread that enters it.
struct GuardContext {
    std::optional<FloatGuard> guard;  // empty outside
};

// The lock is kept: a frame takes some microseconds.
std::uint32_t crc32_of(const py::buffer& data, std::uint32_t value) {
    require(has_crc32(), "crc32: expected a processor that multiplies polynomials, see has_crc32; use zlib's");
    const py::buffer_info info = data.request();
    require(info.ndim == 1 && info.itemsize == 1 && (info.size < 2 || info.strides[0] == 1),
            "data: expected bytes one after another");
    return crc32({static_cast<const std::uint8_t*>(info.ptr), static_cast<std::size_t>(info.size)}, value);
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
    m.def("member_signs", member_signs, "seed"_a, "step"_a, "first_member"_a, "n_members"_a, "factors"_a,
          "scales"_a = py::none(), "first_signs"_a = py::none(), py::kw_only(), "antithetic"_a = false, "threads"_a = 0);
    m.def("random_words", random_words, "seed"_a, "step"_a, "first_stream"_a, "n_streams"_a, "count"_a, "offset"_a = 0);
    m.def("dropout_mask", dropout_mask, "seed"_a, "count"_a, "kept"_a);
    m.def("normalized_utilities", utilities_of, "losses"_a, "group_size"_a, "scale"_a, "resolution"_a);
    m.def("estimate_gradient", gradient_of, "tensors"_a, "n_parameters"_a, py::kw_only(), "seed"_a, "step"_a,
          "group_size"_a, "spans"_a, "utilities"_a, "row_masks"_a, "places"_a = py::none(), "antithetic"_a = false,
          "threads"_a = 0, "naive"_a = false);
    m.def("encode_rows", encode_rows_of, "numbers"_a, "row_lengths"_a, py::kw_only(), "exact"_a);
    m.def("round_rows", round_rows_of, "numbers"_a, "words"_a, "row_lengths"_a);
    m.def("pack_rows", pack_rows_of, "numbers"_a, "random"_a, "row_lengths"_a);
    m.def("decode_rows", decode_rows_of, "numbers"_a, "codes"_a, "row_lengths"_a, "n_numbers"_a);
    m.def("adam_step", adam_of, "weights"_a, "first_moment"_a, "second_moment"_a, "estimate"_a, py::kw_only(),
          "gradient_scale"_a, "learning_rate"_a, "beta1"_a, "beta2"_a, "epsilon"_a, "correction1"_a, "correction2"_a,
          "decay"_a = 0.0);
    m.def("sgd_step", sgd_of, "weights"_a, "momentum_buffer"_a, "estimate"_a, py::kw_only(), "gradient_scale"_a,
          "learning_rate"_a, "momentum"_a, "decay"_a = 0.0);
    m.def("muon_step", muon_of, "weights"_a, "momentum"_a, "estimate"_a, "rows"_a, "columns"_a, py::kw_only(),
          "gradient_scale"_a, "rate"_a, "kept"_a, "decay"_a = 0.0, "threads"_a = 1);
    py::class_<GuardContext>(m, "FloatGuard")
        .def(py::init<>())
        .def("__enter__", [](GuardContext& context) { context.guard.emplace(); })
        .def("__exit__", [](GuardContext& context, const py::args&) { context.guard.reset(); });
    m.def("pull_towards", pull_towards_of, "weights"_a, "start"_a, "share"_a);
    bind_rnn(m);
    m.def("has_crc32", has_crc32);
    m.def("crc32", crc32_of, "data"_a, "value"_a, py::pos_only());
    m.def("supported_isas", supported_isas);
    m.def("current_isa", [] { return std::string(current_isa().name); });
    m.def("select_isa", [](const std::string& name) { select_isa(name.c_str()); }, "name"_a);
    m.def("usable_processors", usable_processors);
}
