// Masks of dropout, many counters at once.
#pragma once

#include <cstdint>
#include <cstring>

#include "replicated/noise.h"
#include "replicated/threefry.h"
#include "vectors.h"

namespace {

using fedlearn::DropoutMask;
using fedlearn::kBlockMultiple;
using fedlearn::kMaskedAtOnce;
using fedlearn::Key;

void dropout_mask(float* mask, const Key& key, std::int64_t count, const DropoutMask& wanted) {
    std::uint32_t kept_bits;
    std::memcpy(&kept_bits, &wanted.kept, sizeof kept_bits);
    const Ints share = Ints{} + wanted.share;
    float rest[kMaskedAtOnce];
    for (std::int64_t first = 0; first < count; first += kMaskedAtOnce) {
        const std::int64_t left = count - first;
        float* const out = left >= kMaskedAtOnce ? mask + first : rest;
        for (int lane = 0; lane < kBlockMultiple; lane += kLanes) {
            const auto block = static_cast<std::uint32_t>(first / kMaskedAtOnce * kBlockMultiple + lane);
            Words counter[4] = {lane_numbers() + block, Words{}, Words{}, Words{}};
            threefry(key.words, counter);
            for (int half = 0; half < 8; ++half) {
                const Words word = counter[half / 2];
                const Ints number = reinterpret_cast<Ints>(half % 2 == 0 ? word & 0xffffu : word >> 16);
                const Words bits = reinterpret_cast<Words>(number < share) & kept_bits;
                store(out + half * kBlockMultiple + lane, bits);
            }
        }
        if (out == rest) std::memcpy(mask + first, rest, static_cast<std::size_t>(left) * sizeof(float));
    }
}

}  // namespace
