#include "replicated/estimate.h"

#include <algorithm>
#include <vector>

#include "memory.h"
#include "threads.h"

namespace fedlearn {

namespace {

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
                      const Population& population, const Piece& piece, const ReplicatedKernels& kernels,
                      std::byte* scratch) {
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
    kernels.accumulate_gradient(estimate, population.key, plan, tensors.data(), std::ssize(tensors), chunk, scratch);
}

}  // namespace

void estimate_gradient(std::span<std::int32_t> estimate, std::span<const Tensor> tensors, const Population& population,
                       const ReplicatedKernels& kernels, int n_threads) {
    const NoisePlan plan_memory = make_noise_plan(tensors);
    const NoisePlanView plan = plan_memory.view();
    const std::vector<Piece> pieces = cut_into_chunks(population);
    const auto n_items = static_cast<std::int64_t>(pieces.size());
    const int n = thread_count(n_threads, n_items);
    const std::int64_t scratch_bytes = kernels.gradient_scratch_bytes(plan, tensors.data(), std::ssize(tensors));
    // The first thread adds to the estimate itself, the others each to a sum of their own.
    std::ranges::fill(estimate, 0);
    std::vector<std::vector<std::int32_t>> sums(static_cast<std::size_t>(n - 1));
    for (auto& sum : sums) sum.resize(estimate.size());
    std::vector<ByteBuffer> scratch;
    for (int thread = 0; thread < n; ++thread) scratch.push_back(allocate<std::byte>(scratch_bytes));
    parallel_for(n_items, n, [&](int thread, std::int64_t item) {
        std::int32_t* sum = thread == 0 ? estimate.data() : sums[static_cast<std::size_t>(thread - 1)].data();
        accumulate_piece(sum, tensors, plan, population, pieces[static_cast<std::size_t>(item)], kernels,
                         scratch[static_cast<std::size_t>(thread)].get());
    });
    for (const auto& sum : sums)
        for (std::size_t i = 0; i < estimate.size(); ++i) estimate[i] += sum[i];
}

void estimate_gradient_naive(std::span<std::int32_t> estimate, std::span<const Tensor> tensors,
                             const Population& population) {
    std::ranges::fill(estimate, 0);
    std::int64_t index = 0;
    const auto sign_at = [&](std::uint64_t member, const Tensor& tensor, std::int64_t factor, std::int64_t offset) {
        std::int8_t sign;
        fill_signs({&sign, 1}, population.key, member, static_cast<std::uint32_t>(tensor.number),
                   static_cast<std::uint32_t>(factor), static_cast<std::uint64_t>(offset));
        return static_cast<std::int32_t>(sign);
    };
    for (const auto& [first_member, count] : population.spans) {
        for (std::int64_t i = 0; i < count; ++i, ++index) {
            const auto [member, is_negated] =
                noise_source(first_member + static_cast<std::uint64_t>(i), population.is_antithetic);
            const std::int32_t utility = population.utilities[static_cast<std::size_t>(index)];
            for (const Tensor& tensor : tensors) {
                for (std::int64_t row = 0; row < tensor.rows; ++row) {
                    if (population.row_masks != nullptr && tensor.mask_column >= 0 &&
                        population.row_masks[index / population.group_size * population.mask_stride +
                                             tensor.mask_column + row] == 0)
                        continue;
                    for (std::int64_t column = 0; column < tensor.columns; ++column) {
                        std::int32_t noise = 0;
                        if (tensor.rank == 0) noise = sign_at(member, tensor, 0, tensor.first_sign + row * tensor.columns + column);
                        for (std::int64_t k = 0; k < tensor.rank; ++k)
                            noise += sign_at(member, tensor, 2 * k, tensor.first_sign + row) *
                                     sign_at(member, tensor, 2 * k + 1, column);
                        estimate[static_cast<std::size_t>(tensor.offset + row * tensor.columns + column)] +=
                            utility * (is_negated ? -noise : noise);
                    }
                }
            }
        }
    }
}

}  // namespace fedlearn
