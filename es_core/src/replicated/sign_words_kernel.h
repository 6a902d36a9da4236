// The words of all of a member's noise, many counters at once.
#pragma once

#include "replicated/noise.h"
#include "replicated/threefry.h"
#include "vectors.h"

namespace {

using fedlearn::Key;
using fedlearn::NoisePlanView;

void sign_words(std::uint32_t* words, const Key& key, const NoisePlanView& plan, std::uint64_t member) {
    for (std::int64_t block = 0; block < plan.n_blocks; block += kLanes) {
        Words counter[4] = {load<Words>(plan.counter0 + block), load<Words>(plan.counter1 + block),
                            Words{} + static_cast<std::uint32_t>(member),
                            Words{} + static_cast<std::uint32_t>(member >> 32)};
        threefry(key.words, counter);
        for (int w = 0; w < 4; ++w) store(words + w * plan.n_blocks + block, counter[w]);
    }
}

}  // namespace
