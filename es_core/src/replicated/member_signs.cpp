#include "replicated/member_signs.h"

#include <algorithm>

#include "threads.h"

namespace fedlearn {

namespace {

constexpr std::int64_t kItemBlocks = 2048;  // a megabyte of signs: what a thread takes at once

}  // namespace

SignFactor sign_factor(std::uint32_t tensor, std::uint32_t factor, std::int64_t first, std::int64_t length, float scale) {
    const std::int64_t skipped = first % kSignsPerBlock;
    const std::int64_t end = skipped + length;
    return {(tensor << 16) | factor, first / kSignsPerBlock, skipped, end, (end + kSignsPerBlock - 1) / kSignsPerBlock,
            scale};
}

void fill_member_signs(std::span<float> signs, std::span<const SignFactor> factors, const MemberRange& members,
                       const ReplicatedKernels& kernels, int n_threads) {
    if (signs.empty()) return;
    MemberSigns wanted{};
    wanted.factors = factors.data();
    wanted.n_factors = std::ssize(factors);
    wanted.first_member = wanted.first_source = members.first;
    wanted.n_members = members.n;
    wanted.is_antithetic = members.is_antithetic;
    for (const SignFactor& factor : factors) {
        wanted.n_signs += factor.length - factor.skipped;
        wanted.n_blocks += factor.n_blocks;
    }
    std::int64_t n_sources = members.n;
    if (members.is_antithetic) {
        wanted.first_source = noise_source(members.first, true).member;
        const std::uint64_t last = members.first + static_cast<std::uint64_t>(members.n - 1);
        n_sources = static_cast<std::int64_t>((noise_source(last, true).member - wanted.first_source) / 2 + 1);
    }
    const std::int64_t n_blocks = n_sources * wanted.n_blocks;
    const std::int64_t n_items = (n_blocks + kItemBlocks - 1) / kItemBlocks;
    parallel_for(n_items, thread_count(n_threads, n_items), [&](int, std::int64_t item) {
        const std::int64_t first = item * kItemBlocks;
        kernels.member_signs(signs.data(), members.key, wanted, first, std::min(kItemBlocks, n_blocks - first));
    });
}

}  // namespace fedlearn
