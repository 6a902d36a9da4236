#include "replicated/noise.h"

#include "replicated/threefry.h"

namespace fedlearn {

namespace {

// Counters of neighbouring words, turned together; of a width that each processor has.
constexpr std::size_t kCounters = 4;
typedef std::uint32_t Counters __attribute__((vector_size(4 * kCounters)));

std::uint32_t word_at(const Key& key, std::uint64_t member, std::uint32_t stream, std::uint64_t index) {
    std::uint32_t counter[4] = {static_cast<std::uint32_t>(index / 4), stream, static_cast<std::uint32_t>(member),
                                static_cast<std::uint32_t>(member >> 32)};
    threefry(key.words, counter);
    return counter[index % 4];
}

}  // namespace

NoisePlan make_noise_plan(std::span<const Tensor> tensors) {
    NoisePlan plan;
    plan.factors.resize(tensors.size() * kMaxFactors);
    for (std::size_t t = 0; t < tensors.size(); ++t) {
        const Tensor& tensor = tensors[t];
        const std::int64_t n_factors = tensor.rank == 0 ? 1 : 2 * tensor.rank;
        for (std::int64_t f = 0; f < n_factors; ++f) {
            const std::int64_t length = tensor.rank == 0 ? tensor.rows * tensor.columns
                                        : f % 2 == 0     ? tensor.rows
                                                         : tensor.columns;
            const std::int64_t first = f % 2 == 0 ? tensor.first_sign : 0;
            const Factor factor{length, static_cast<std::int64_t>(plan.counter0.size()), first % kSignsPerBlock};
            plan.factors[t * kMaxFactors + static_cast<std::size_t>(f)] = factor;
            if (factor.skipped > 0) plan.cut.push_back(factor);
            const auto stream = static_cast<std::uint32_t>(tensor.number << 16) | static_cast<std::uint32_t>(f);
            for (std::int64_t block = first / kSignsPerBlock; block * kSignsPerBlock < first + length; ++block) {
                plan.counter0.push_back(static_cast<std::uint32_t>(block));
                plan.counter1.push_back(stream);
            }
        }
    }
    while (plan.counter0.size() % static_cast<std::size_t>(kBlockMultiple) != 0) {
        plan.counter0.push_back(0);
        plan.counter1.push_back(0);
    }
    return plan;
}

void fill_signs(std::span<std::int8_t> signs, const Key& key, std::uint64_t member, std::uint32_t tensor,
                std::uint32_t factor, std::uint64_t offset) {
    for (std::size_t i = 0; i < signs.size(); ++i) {
        const std::uint64_t bit = offset + i;
        const std::uint32_t word = word_at(key, member, (tensor << 16) | factor, bit / 32);
        signs[i] = (word >> (bit % 32)) & 1u ? std::int8_t{-1} : std::int8_t{1};
    }
}

void fill_random_words(std::span<std::uint32_t> words, const Key& key, std::uint64_t stream, std::uint64_t offset) {
    constexpr std::size_t kAtOnce = 4 * kCounters;
    std::size_t first = 0;
    for (; first < words.size() && (offset + first) % 4 != 0; ++first)
        words[first] = word_at(key, stream, 0, offset + first);
    for (; first + kAtOnce <= words.size(); first += kAtOnce) {
        Counters numbers;
        for (std::size_t i = 0; i < kCounters; ++i) numbers[i] = static_cast<std::uint32_t>((offset + first) / 4 + i);
        const Counters zero{};
        Counters counter[4] = {numbers, zero, zero + static_cast<std::uint32_t>(stream),
                               zero + static_cast<std::uint32_t>(stream >> 32)};
        threefry(key.words, counter);
        for (std::size_t i = 0; i < kAtOnce; ++i) words[first + i] = counter[i % 4][i / 4];
    }
    for (; first < words.size(); ++first) words[first] = word_at(key, stream, 0, offset + first);
}

}  // namespace fedlearn
