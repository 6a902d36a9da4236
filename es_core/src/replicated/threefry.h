// Threefry4x32-20: a counter-based random function, the same on every machine because it only adds, rotates and xors.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <cstdint>

namespace {

using ThreefryKey = const std::uint32_t[4];

template <class Word>
[[gnu::always_inline]] inline Word rotate_left(Word x, int by) {
    return (x << by) | (x >> (32 - by));
}

// Turns the counter into four random words. Word is uint32_t, or a vector of them for many counters at once.
template <class Word>
[[gnu::always_inline]] inline void threefry(ThreefryKey& key, Word (&counter)[4]) {
    constexpr int kRotations[8][2] = {{10, 26}, {11, 21}, {13, 27}, {23, 5}, {6, 20}, {17, 11}, {25, 10}, {18, 20}};
    constexpr int kRounds = 20;
    const std::uint32_t schedule[5] = {key[0], key[1], key[2], key[3],
                                       0x1BD11BDAu ^ key[0] ^ key[1] ^ key[2] ^ key[3]};
    for (int i = 0; i < 4; ++i) counter[i] += schedule[i];
#pragma GCC unroll 20
    for (int round = 0; round < kRounds; ++round) {
        const int first = round % 2 == 0 ? 1 : 3;  // words 1 and 3 change places every round
        const int second = 4 - first;
        counter[0] += counter[first];
        counter[first] = rotate_left(counter[first], kRotations[round % 8][0]) ^ counter[0];
        counter[2] += counter[second];
        counter[second] = rotate_left(counter[second], kRotations[round % 8][1]) ^ counter[2];
        if (round % 4 == 3) {
            const int injection = round / 4 + 1;
            for (int i = 0; i < 4; ++i) counter[i] += schedule[(injection + i) % 5];
            counter[3] += static_cast<std::uint32_t>(injection);
        }
    }
}

}  // namespace
