// Prints a digest of every kind of replicated number, from fixed inputs: golden THREADS [ARITHMETIC]
//
// THREADS is a number, or "naive" for the twin that takes one sign at a time; ARITHMETIC is the floating point mode
// that the core finds the process in. golden_face.py computes the same through Python; change both or neither.
#include <algorithm>
#include <bit>
#include <cfenv>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "activations/kernels.h"
#include "dispatch.h"
#include "replicated/estimate.h"
#include "replicated/member_signs.h"
#include "replicated/optimizers.h"
#include "replicated/utilities.h"
#include "rnn/kernels.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

// dispatch.cpp names the reported kernels too; nothing here calls them.
#define FEDLEARN_NO_REPORTED(isa)                     \
    extern const RnnKernels rnn_##isa;                \
    const RnnKernels rnn_##isa{};                     \
    extern const ActivationKernels activations_##isa; \
    const ActivationKernels activations_##isa{};
namespace fedlearn {
#if defined(__x86_64__)
FEDLEARN_NO_REPORTED(v4_vnni)
FEDLEARN_NO_REPORTED(v4)
FEDLEARN_NO_REPORTED(v3_vnni)
FEDLEARN_NO_REPORTED(v3)
#elif defined(__aarch64__)
FEDLEARN_NO_REPORTED(dot)
#endif
FEDLEARN_NO_REPORTED(base)
}  // namespace fedlearn

namespace {

using namespace fedlearn;

constexpr std::uint64_t kSeed = 0x9e3779b97f4a7c15;
constexpr std::uint32_t kStep = 7;
constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kDecay = 0.003;

// FNV-1a over the bytes of arrays, all little-endian.
class Digest {
public:
    template <class Value>
    Digest& add(const std::vector<Value>& values) {
        const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
        for (std::size_t i = 0; i < values.size() * sizeof(Value); ++i) hash_ = (hash_ ^ bytes[i]) * 0x100000001b3;
        return *this;
    }
    void print(const char* name) const { std::printf("%s: %016llx\n", name, static_cast<unsigned long long>(hash_)); }

private:
    std::uint64_t hash_ = 0xcbf29ce484222325;
};

void flush_to_zero() {
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);
#elif defined(__aarch64__)
    std::uint64_t control;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    asm volatile("msr fpcr, %0" ::"r"(control | std::uint64_t{1} << 24));
#endif
}

struct Arithmetic {
    std::string_view name;
    void (*begin)();
};

const Arithmetic kArithmetics[] = {
    {"usual", [] {}},
    {"flush-to-zero", flush_to_zero},
    {"downward", [] { std::fesetround(FE_DOWNWARD); }},
    {"upward", [] { std::fesetround(FE_UPWARD); }},
    {"toward-zero", [] { std::fesetround(FE_TOWARDZERO); }},
};

// The name of the arithmetic that the process is in, by what sums and products come to.
std::string_view arithmetic_in_use() {
    volatile float tiny = 1e-38f, thousandth = 1e-3f, one = 1.0f, minus_one = -1.0f, little = 1e-9f;
    const volatile float product = tiny * thousandth, above = one + little, below = minus_one - little,
                         under = one - little;
    if (product == 0.0f) return "flush-to-zero";
    if (above > 1.0f) return "upward";
    if (below < -1.0f) return "downward";
    return under < 1.0f ? "toward-zero" : "usual";
}

struct Options {
    bool is_naive;
    int threads;
    Arithmetic arithmetic;
};

// Calls into the core as from a host process in that arithmetic, which the core has to leave as it was.
template <class Work>
void call(const Options& options, const Work& work) {
    options.arithmetic.begin();
    const std::string_view before = arithmetic_in_use();
    work();
    const std::string_view after = arithmetic_in_use();
    std::fesetenv(FE_DFL_ENV);
    if (before != options.arithmetic.name || after != before)
        throw std::runtime_error("the arithmetic could not be changed, or was not left as it was");
}

std::vector<std::uint32_t> random_words(std::uint64_t stream, std::size_t count) {
    std::vector<std::uint32_t> words(count);
    fill_random_words(words, make_key(kSeed, kStep, Domain::kWindows), stream);
    return words;
}

// Antithetic members on both sides of 2^32, an odd one first; scales that are subnormal and zero.
void print_member_signs(const Options& options) {
    const std::vector<SignFactor> factors{sign_factor(0, 0, 0, 33, 0.3f), sign_factor(0, 1, 0, 129, 1.0f),
                                          sign_factor(65535, 4, 0, 128, -1e-42f), sign_factor(7, 0, 0, 5000, 0.0f)};
    std::vector<float> signs(9 * (33 + 129 + 128 + 5000));
    const MemberRange members{make_key(kSeed, kStep, Domain::kNoise), 4294967291, 9, true};
    call(options, [&] { fill_member_signs(signs, factors, members, *current_isa().replicated, options.threads); });
    Digest().add(signs).print("member_signs");
}

void print_noise(const Options& options) {
    Digest().add(random_words((std::uint64_t{1} << 40) + 5, 1001)).print("random_words");
    std::vector<std::int8_t> signs(1001);
    fill_signs(signs, make_key(kSeed, kStep, Domain::kNoise), (std::uint64_t{1} << 33) + 3, 5, 1, 129);
    Digest().add(signs).print("signs");
    print_member_signs(options);

    std::vector<float> losses;
    for (const std::uint32_t word : random_words(1, 490)) losses.push_back(std::bit_cast<float>(0x40000000 | word >> 9));
    losses[20] = std::bit_cast<float>(0x7fc00000);  // not a number
    losses[40] = std::bit_cast<float>(0x7f800000);  // infinity
    std::vector<std::int8_t> utilities(losses.size());
    call(options, [&] { normalized_utilities(utilities, losses, 7, 0.4, 32.0); });
    Digest().add(utilities).print("utilities");
}

// Two masked tensors, and shapes that no tile fits; vectors are one row of rank 0.
std::vector<Tensor> table(std::int64_t rank, bool is_masked) {
    std::vector<Tensor> tensors{{0, 33, 17, rank, 0, 0}, {0, 1, 131, 0, -1, 1}, {0, 5, 70, rank, -1, 2},
                                {0, 64, 48, rank, -1, 3}, {0, 1, 19, 0, 33, 4}};
    std::int64_t offset = 0;
    for (Tensor& tensor : tensors) {
        tensor.offset = offset;
        offset += tensor.rows * tensor.columns;
        if (!is_masked) tensor.mask_column = -1;
    }
    return tensors;
}

constexpr std::size_t kParameters = 33 * 17 + 131 + 5 * 70 + 64 * 48 + 19;
constexpr std::size_t kMaskColumns = 34;

std::vector<std::int32_t> estimate(const Options& options, const std::vector<Tensor>& tensors,
                                   const Population& population) {
    std::vector<std::int32_t> sums(kParameters);
    call(options, [&] {
        if (options.is_naive) {
            estimate_gradient_naive(sums, tensors, population);
        } else {
            estimate_gradient(sums, tensors, population, *current_isa().replicated, options.threads);
        }
    });
    return sums;
}

std::vector<std::int8_t> signed_bytes(const std::vector<std::uint32_t>& words) {
    std::vector<std::int8_t> bytes;
    for (const std::uint32_t word : words) bytes.push_back(static_cast<std::int8_t>(static_cast<int>(word % 255) - 127));
    return bytes;
}

std::vector<std::uint8_t> row_masks(const std::vector<std::uint32_t>& words) {
    std::vector<std::uint8_t> masks;
    for (const std::uint32_t word : words) masks.push_back(static_cast<std::uint8_t>(word & 1));
    masks.resize(masks.size() + kBlockMultiple);
    return masks;
}

void print_gradients(const Options& options) {
    const Key key = make_key(kSeed, kStep, Domain::kNoise);
    const std::vector<Span> one_span{{(std::uint64_t{1} << 33) + 3, 1}};
    const std::vector<std::int8_t> one{1};
    Digest().add(estimate(options, table(0, false), {key, 1, one_span, one, nullptr, 0})).print("noise");

    // Members on both sides of 2^32, and chunks whose size is no multiple of 4.
    const std::vector<Span> spans{{0, 600}, {4294967292, 9}, {3000000000000, 258}};
    const std::vector<std::int8_t> utilities = signed_bytes(random_words(2, 867));
    const std::vector<std::uint8_t> masks = row_masks(random_words(3, 289 * kMaskColumns));
    const Population population{key, 3, spans, utilities, masks.data(), kMaskColumns};
    Digest().add(estimate(options, table(0, true), population)).print("gradient_of_full_rank");
    Digest().add(estimate(options, table(1, true), population)).print("gradient_of_rank_1");
    Digest().add(estimate(options, table(2, true), population)).print("gradient_of_rank_2");

    const std::vector<Span> even_spans{{0, 600}, {4294967292, 12}, {3000000000000, 258}};
    const std::vector<std::int8_t> pair_utilities = signed_bytes(random_words(8, 870));
    const std::vector<std::uint8_t> pair_masks = row_masks(random_words(9, 145 * kMaskColumns));
    const Population pairs{key, 6, even_spans, pair_utilities, pair_masks.data(), kMaskColumns, true};
    Digest().add(estimate(options, table(2, true), pairs)).print("gradient_of_antithetic_pairs");
}

// Weights and moments of an optimizer that has taken 50 steps. With small scales, moments are and stay subnormal where
// the estimate is always small.
template <class TakeStep>
void add_fifty_steps(Digest& digest, const Options& options, const TakeStep& take_step) {
    constexpr std::size_t kCount = 1003;
    std::vector<float> weights, first(kCount), second(kCount);
    for (const std::uint32_t word : random_words(4, kCount)) weights.push_back(std::bit_cast<float>(word & 0xbfffffff));
    double beta1_power = 1.0, beta2_power = 1.0;
    for (std::uint64_t step = 0; step < 50; ++step) {
        std::vector<std::int32_t> sums;
        for (const std::uint32_t word : random_words(100 + step, kCount))
            sums.push_back(static_cast<std::int32_t>(word) >> (sums.size() % 32));
        beta1_power *= kBeta1, beta2_power *= kBeta2;
        const double correction1 = 1.0 / (1.0 - beta1_power), correction2 = 1.0 / (1.0 - beta2_power);
        call(options, [&] { take_step(weights, first, second, sums, correction1, correction2); });
    }
    digest.add(weights).add(first).add(second);
}

void print_optimizers(const Options& options, double decay, const char* adam_name, const char* sgd_name) {
    using Floats = std::vector<float>;
    using Integers = std::vector<std::int32_t>;
    Digest adam, sgd;
    for (const double scale : {-3.7e-7, 1e-20, 1e-41}) {
        add_fifty_steps(adam, options, [&](Floats& w, Floats& m, Floats& v, const Integers& sums, double c1, double c2) {
            adam_step(w.data(), m.data(), v.data(), sums.data(), std::ssize(sums),
                      {scale, 0.006, kBeta1, kBeta2, 1e-8, c1, c2, decay}, *current_isa().replicated);
        });
        add_fifty_steps(sgd, options, [&](Floats& w, Floats& m, Floats&, const Integers& sums, double, double) {
            sgd_step(w.data(), m.data(), sums.data(), std::ssize(sums), {scale, 0.3, kBeta1, decay},
                     *current_isa().replicated);
        });
    }
    adam.print(adam_name);
    sgd.print(sgd_name);
}

void print_pull(const Options& options) {
    std::vector<float> weights, start;
    for (const std::uint32_t word : random_words(10, 1003)) weights.push_back(std::bit_cast<float>(word & 0xbfffffff));
    for (const std::uint32_t word : random_words(11, 1003)) start.push_back(std::bit_cast<float>(word & 0xbfffffff));
    Digest digest;
    for (const double share : {1e-3, 0.3, 1e-9, 1.0}) {
        call(options, [&] { pull_towards(weights.data(), start.data(), std::ssize(weights), share, *current_isa().replicated); });
        digest.add(weights);
    }
    digest.print("pull_towards");
}

Options parse(int n_arguments, char** arguments) {
    if (n_arguments < 2 || n_arguments > 3) throw std::invalid_argument("expected: golden THREADS [ARITHMETIC]");
    const std::string_view threads = arguments[1], wanted = n_arguments == 3 ? arguments[2] : "usual";
    for (const Arithmetic& arithmetic : kArithmetics)
        if (arithmetic.name == wanted) return {threads == "naive", std::atoi(arguments[1]), arithmetic};
    throw std::invalid_argument("unknown arithmetic");
}

}  // namespace

int main(int n_arguments, char** arguments) {
    try {
        const Options options = parse(n_arguments, arguments);
        std::printf("isa: %s\n", current_isa().name);
        print_noise(options);
        print_gradients(options);
        print_optimizers(options, 0.0, "adam", "sgd");
        print_optimizers(options, kDecay, "adam_with_decay", "sgd_with_decay");
        print_pull(options);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
