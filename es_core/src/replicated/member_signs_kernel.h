// Signs of many members as numbers, written once and multiplied by their factor's scale on the way.
#pragma once

#include "replicated/kernels.h"
#include "replicated/threefry.h"
#include "vectors.h"

namespace {

using fedlearn::Key;
using fedlearn::kSignsPerBlock;
using fedlearn::MemberSigns;
using fedlearn::SignFactor;

// The destination of the signs of one block of noise.
struct SignPlace {
    float* even;             // the source's own signs; nullptr: not wanted
    float* odd;              // the signs of its mirror; nullptr: not wanted
    std::int64_t n_skipped;  // of the block's first signs, whose places are not its own
    std::int64_t n_signs;    // with those
    float scale;
    float odd_scale;
};

// The blocks of all sources, one after the other: all of a source's before the next one's.
struct SignWalk {
    const MemberSigns& wanted;
    float* signs;
    std::uint64_t source;
    std::int64_t factor = 0;
    std::int64_t block;         // of the factor
    std::int64_t offset;        // of the factor's first block among a member's signs

    SignWalk(const MemberSigns& members, float* out, std::int64_t first_block)
        : wanted(members),
          signs(out),
          source(members.first_source +
                 static_cast<std::uint64_t>(first_block / members.n_blocks) * (members.is_antithetic ? 2 : 1)),
          block(first_block % members.n_blocks),
          offset(-members.factors[0].skipped) {
        while (block >= wanted.factors[factor].n_blocks) {
            block -= wanted.factors[factor].n_blocks;
            enter_next();
        }
    }

    void enter_next() {
        offset += wanted.factors[factor].length;
        if (++factor < wanted.n_factors) offset -= wanted.factors[factor].skipped;
    }

    float* row(std::uint64_t member) const {
        const auto number = static_cast<std::int64_t>(member - wanted.first_member);
        if (number < 0 || number >= wanted.n_members) return nullptr;
        return signs + number * wanted.n_signs + offset + block * kSignsPerBlock;
    }

    SignPlace place() const {
        const SignFactor& at = wanted.factors[factor];
        const bool is_mirrored = at.stream % 2 == 0;
        return {row(source), wanted.is_antithetic ? row(source + 1) : nullptr, block == 0 ? at.skipped : 0,
                smaller(kSignsPerBlock, at.length - block * kSignsPerBlock), at.scale,
                is_mirrored ? -at.scale : at.scale};
    }

    void advance() {
        if (++block < wanted.factors[factor].n_blocks) return;
        block = 0;
        enter_next();
        if (factor < wanted.n_factors) return;
        factor = 0;
        offset = -wanted.factors[0].skipped;
        source += wanted.is_antithetic ? 2 : 1;
    }
};

// signs [n_signs] <- the signs of the block whose words stand at `words`, kLanes apart.
[[gnu::always_inline]] inline void write_signs(float* signs, std::int64_t n_signs, float scale,
                                               const std::uint32_t* words) {
    // The scale is copied as bits, since sums in the process's arithmetic could change one that is subnormal or zero.
    std::uint32_t scale_bits;
    std::memcpy(&scale_bits, &scale, sizeof scale_bits);
    const Words plus = Words{} + scale_bits, minus = plus ^ 0x80000000u;
#pragma GCC unroll 32
    for (int first = 0; first < kSignsPerBlock; first += kLanes) {
        const Words bits = (Words{} + 1u) << (lane_numbers() + static_cast<std::uint32_t>(first % 32));
        const Words is_minus = (Words{} + words[first / 32 * kLanes]) & bits;
        const Words values = is_minus == 0 ? plus : minus;
        if (first + kLanes <= n_signs) {
            store(signs + first, values);
        } else {
            if (first < n_signs)
                std::memcpy(signs + first, &values, static_cast<std::size_t>(n_signs - first) * sizeof(float));
            return;
        }
    }
}

// The same without the first signs, in whose places others stand. Not inlined: whole models have no such blocks.
[[gnu::noinline]] void write_own(const SignPlace& place, const std::uint32_t* words) {
    float block[kSignsPerBlock];
    const auto write = [&](float* signs, float scale) {
        if (signs == nullptr) return;
        write_signs(block, place.n_signs, scale, words);
        std::memcpy(signs + place.n_skipped, block + place.n_skipped,
                    static_cast<std::size_t>(place.n_signs - place.n_skipped) * sizeof(float));
    };
    write(place.even, place.scale);
    write(place.odd, place.odd_scale);
}

void member_signs(float* signs, const Key& key, const MemberSigns& wanted, std::int64_t first_block,
                  std::int64_t n_blocks) {
    SignWalk walk(wanted, signs, first_block);
    for (std::int64_t done = 0; done < n_blocks; done += kLanes) {
        const auto n = static_cast<int>(smaller<std::int64_t>(n_blocks - done, kLanes));
        SignPlace places[kLanes];
        std::uint32_t words[4][kLanes] = {};
        for (int lane = 0; lane < n; ++lane, walk.advance()) {
            places[lane] = walk.place();
            const SignFactor& factor = wanted.factors[walk.factor];
            words[0][lane] = static_cast<std::uint32_t>(factor.first_block + walk.block);
            words[1][lane] = factor.stream;
            words[2][lane] = static_cast<std::uint32_t>(walk.source);
            words[3][lane] = static_cast<std::uint32_t>(walk.source >> 32);
        }
        Words counter[4];
        for (int w = 0; w < 4; ++w) counter[w] = load<Words>(words[w]);
        threefry(key.words, counter);
        for (int w = 0; w < 4; ++w) store(words[w], counter[w]);
        for (int lane = 0; lane < n; ++lane) {
            const SignPlace& place = places[lane];
            if (place.n_skipped > 0) {
                write_own(place, words[0] + lane);
                continue;
            }
            if (place.even != nullptr) write_signs(place.even, place.n_signs, place.scale, words[0] + lane);
            if (place.odd != nullptr) write_signs(place.odd, place.n_signs, place.odd_scale, words[0] + lane);
        }
    }
}

}  // namespace
