#include "update.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "memory.h"
#include "threads.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace fedlearn {

namespace {

// Sets round-to-nearest without flush-to-zero for its scope: loading a library linked with -ffast-math changes both for
// the whole process, and replicas would drift apart.
class FloatGuard {
public:
#if defined(__x86_64__)
    FloatGuard() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
    ~FloatGuard() { _mm_setcsr(saved_); }

private:
    unsigned saved_;
#elif defined(__aarch64__)
    FloatGuard() {
        asm volatile("mrs %0, fpcr" : "=r"(saved_));
        asm volatile("msr fpcr, %0" ::"r"(std::uint64_t{0}));
    }
    ~FloatGuard() { asm volatile("msr fpcr, %0" ::"r"(saved_)); }

private:
    std::uint64_t saved_;
#else
    FloatGuard() {}
#endif
public:
    FloatGuard(const FloatGuard&) = delete;
    FloatGuard& operator=(const FloatGuard&) = delete;
};

// Members of all spans with their places in `utilities`, cut into chunks that never cross a span.
struct Piece {
    std::uint64_t first_member;
    std::int64_t first_index;
    std::int64_t size;
};

std::vector<Piece> cut_into_chunks(const Population& population) {
    std::vector<Piece> pieces;
    std::int64_t index = 0;
    for (const auto& [first_member, count] : population.spans) {
        for (std::int64_t done = 0; done < count; done += kChunkMembers)
            pieces.push_back({first_member + static_cast<std::uint64_t>(done), index + done,
                              std::min(kChunkMembers, count - done)});
        index += count;
    }
    return pieces;
}

void accumulate_piece(std::int32_t* estimate, std::span<const Tensor> tensors, const NoisePlanView& plan,
                      const Population& population, const Piece& piece, std::byte* scratch) {
    std::uint64_t members[kChunkMembers];
    std::int8_t utilities[kChunkMembers] = {};
    const std::uint8_t* masks[kChunkMembers];
    const std::int64_t size = (piece.size + 3) / 4 * 4;
    for (std::int64_t i = 0; i < size; ++i) {
        const std::int64_t index = piece.first_index + std::min(i, piece.size - 1);
        const NoiseSource source =
            noise_source(piece.first_member + static_cast<std::uint64_t>(i), population.is_antithetic);
        members[i] = source.member;
        if (i < piece.size) {
            const std::int8_t utility = population.utilities[static_cast<std::size_t>(index)];
            utilities[i] = source.is_negated ? static_cast<std::int8_t>(-utility) : utility;
        }
        masks[i] = population.row_masks + index / population.group_size * population.mask_stride;
    }
    const MemberChunk chunk{members, utilities, population.row_masks != nullptr ? masks : nullptr, size};
    current_isa().replicated->accumulate_gradient(estimate, population.key, plan, tensors.data(),
                                                  static_cast<std::int64_t>(tensors.size()), chunk, scratch);
}

}  // namespace

void estimate_gradient(std::span<std::int32_t> estimate, std::span<const Tensor> tensors, const Population& population,
                       int n_threads) {
    const NoisePlan plan_memory = make_noise_plan(tensors);
    const NoisePlanView plan = plan_memory.view();
    const std::vector<Piece> pieces = cut_into_chunks(population);
    const auto n_items = static_cast<std::int64_t>(pieces.size());
    const int n = thread_count(n_threads, n_items);
    const std::int64_t scratch_bytes = current_isa().replicated->gradient_scratch_bytes(
        plan, tensors.data(), static_cast<std::int64_t>(tensors.size()));
    // The first thread adds to the estimate itself, the others each to a sum of their own.
    std::ranges::fill(estimate, 0);
    std::vector<std::vector<std::int32_t>> sums(static_cast<std::size_t>(n - 1));
    for (auto& sum : sums) sum.resize(estimate.size());
    std::vector<ByteBuffer> scratch;
    for (int thread = 0; thread < n; ++thread) scratch.push_back(allocate<std::byte>(scratch_bytes));
    parallel_for(n_items, n, [&](int thread, std::int64_t item) {
        std::int32_t* sum = thread == 0 ? estimate.data() : sums[static_cast<std::size_t>(thread - 1)].data();
        accumulate_piece(sum, tensors, plan, population, pieces[static_cast<std::size_t>(item)],
                         scratch[static_cast<std::size_t>(thread)].get());
    });
    for (const auto& sum : sums)
        for (std::size_t i = 0; i < estimate.size(); ++i) estimate[i] += sum[i];
}

void estimate_gradient_naive(std::span<std::int32_t> estimate, std::span<const Tensor> tensors,
                             const Population& population) {
    std::ranges::fill(estimate, 0);
    std::int64_t index = 0;
    const auto sign_at = [&](std::uint64_t member, std::size_t tensor, std::int64_t factor, std::int64_t offset) {
        std::int8_t sign;
        fill_signs({&sign, 1}, population.key, member, static_cast<std::uint32_t>(tensor),
                   static_cast<std::uint32_t>(factor), static_cast<std::uint64_t>(offset));
        return static_cast<std::int32_t>(sign);
    };
    for (const auto& [first_member, count] : population.spans) {
        for (std::int64_t i = 0; i < count; ++i, ++index) {
            const auto [member, is_negated] =
                noise_source(first_member + static_cast<std::uint64_t>(i), population.is_antithetic);
            const std::int32_t utility = population.utilities[static_cast<std::size_t>(index)];
            for (std::size_t t = 0; t < tensors.size(); ++t) {
                const Tensor& tensor = tensors[t];
                for (std::int64_t row = 0; row < tensor.rows; ++row) {
                    if (population.row_masks != nullptr && tensor.mask_column >= 0 &&
                        population.row_masks[index / population.group_size * population.mask_stride +
                                             tensor.mask_column + row] == 0)
                        continue;
                    for (std::int64_t column = 0; column < tensor.columns; ++column) {
                        std::int32_t noise = 0;
                        if (tensor.rank == 0) noise = sign_at(member, t, 0, row * tensor.columns + column);
                        for (std::int64_t k = 0; k < tensor.rank; ++k)
                            noise += sign_at(member, t, 2 * k, row) * sign_at(member, t, 2 * k + 1, column);
                        estimate[static_cast<std::size_t>(tensor.offset + row * tensor.columns + column)] +=
                            utility * (is_negated ? -noise : noise);
                    }
                }
            }
        }
    }
}

void normalized_utilities(std::span<std::int8_t> utilities, std::span<const float> losses, std::int64_t group_size,
                          double scale, double resolution) {
    const FloatGuard guard;
    std::ranges::fill(utilities, std::int8_t{0});
    if (!(scale > 0.0)) return;
    const auto size = static_cast<std::size_t>(group_size);
    for (std::size_t first = 0; first < losses.size(); first += size) {
        const auto group = losses.subspan(first, size);
        double sum = 0.0;
        for (const float loss : group) sum += static_cast<double>(loss);
        if (!std::isfinite(sum)) continue;
        const double mean = sum / static_cast<double>(group_size);
        for (std::size_t i = 0; i < size; ++i) {
            const double utility = std::nearbyint(resolution * (mean - static_cast<double>(group[i])) / scale);
            utilities[first + i] = static_cast<std::int8_t>(std::clamp(utility, -127.0, 127.0));
        }
    }
}

void adam_step(float* weights, float* first_moment, float* second_moment, const std::int32_t* estimate, std::int64_t n,
               const AdamStep& step) {
    const FloatGuard guard;
    current_isa().replicated->adam(weights, first_moment, second_moment, estimate, n, step);
}

void sgd_step(float* weights, float* momentum_buffer, const std::int32_t* estimate, std::int64_t n,
              const SgdStep& step) {
    const FloatGuard guard;
    current_isa().replicated->sgd(weights, momentum_buffer, estimate, n, step);
}

}  // namespace fedlearn
