// Vector types of the width this translation unit is compiled for.
//
// The files that include this header are compiled once per instruction set, so everything here and there has internal
// linkage: a weak symbol shared by two of those objects would let the linker keep the copy that an older processor cannot run.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
constexpr int kRegisters = 32;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
constexpr int kRegisters = 16;
#elif defined(__aarch64__)
constexpr int kVectorBytes = 16;
constexpr int kRegisters = 32;
#else
constexpr int kVectorBytes = 16;
constexpr int kRegisters = 16;
#endif

constexpr int kLanes = kVectorBytes / 4;

// A register tile is `rows` x `vectors` accumulators; a panel of a matrix is as many columns as a tile. A narrow tile has
// more rows, to keep the multipliers busy and to use each loaded weight more often.
constexpr int kTileVectors = kRegisters == 32 ? 4 : 2;
constexpr int kTileColumns = kTileVectors * kLanes;

constexpr int tile_rows(int vectors) {
    if (kRegisters == 32) return vectors >= 5 ? 5 : vectors == 4 ? 6 : vectors == 3 ? 8 : 12;
    return vectors >= 3 ? 4 : vectors == 2 ? 6 : 12;
}

// Vectors of the panel that begins where `left` vectors are left: one more than a tile's is no panel of its own.
constexpr std::int64_t panel_vectors(std::int64_t left) {
    return left == kTileVectors + 1 || left < kTileVectors ? left : kTileVectors;
}

typedef float Floats __attribute__((vector_size(kVectorBytes)));
typedef std::int32_t Ints __attribute__((vector_size(kVectorBytes)));
typedef std::uint32_t Words __attribute__((vector_size(kVectorBytes)));
typedef std::int8_t Int8s __attribute__((vector_size(kVectorBytes)));
typedef std::uint8_t NarrowBytes __attribute__((vector_size(kLanes)));

template <class Vector, class Element>
[[gnu::always_inline]] inline Vector load(const Element* from) {
    Vector value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

template <class Vector, class Element>
[[gnu::always_inline]] inline void store(Element* to, Vector value) {
    std::memcpy(to, &value, sizeof value);
}

[[gnu::always_inline]] inline Words lane_numbers() {
    Words lanes{};
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = static_cast<std::uint32_t>(lane);
    return lanes;
}

#if defined(__AVX512F__)
[[gnu::always_inline]] inline Floats even_lanes(Floats a, Floats b) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}
[[gnu::always_inline]] inline Floats odd_lanes(Floats a, Floats b) {
    return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}
#elif defined(__AVX2__)
[[gnu::always_inline]] inline Floats even_lanes(Floats a, Floats b) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
}
[[gnu::always_inline]] inline Floats odd_lanes(Floats a, Floats b) {
    return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
}
#else
[[gnu::always_inline]] inline Floats even_lanes(Floats a, Floats b) { return __builtin_shufflevector(a, b, 0, 2, 4, 6); }
[[gnu::always_inline]] inline Floats odd_lanes(Floats a, Floats b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7); }
#endif

template <class Integer>
[[gnu::always_inline]] constexpr Integer round_up(Integer value, Integer multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

// [a0 + a1, a2 + a3, ..., b0 + b1, ...]
[[gnu::always_inline]] inline Floats pair_sums(Floats a, Floats b) { return even_lanes(a, b) + odd_lanes(a, b); }

[[gnu::always_inline]] inline Floats greater(Floats a, Floats b) { return a > b ? a : b; }

// Sums of the lanes of kLanes vectors: lane i is the sum of vectors[i].
[[gnu::always_inline]] inline Floats sum_each(Floats (&vectors)[kLanes]) {
    for (int n = kLanes / 2; n > 0; n /= 2)
        for (int i = 0; i < n; ++i) vectors[i] = pair_sums(vectors[2 * i], vectors[2 * i + 1]);
    return vectors[0];
}

// Greatest lanes of kLanes vectors: lane i is the greatest of vectors[i].
[[gnu::always_inline]] inline Floats max_each(Floats (&vectors)[kLanes]) {
    for (int n = kLanes / 2; n > 0; n /= 2)
        for (int i = 0; i < n; ++i)
            vectors[i] = greater(even_lanes(vectors[2 * i], vectors[2 * i + 1]),
                                 odd_lanes(vectors[2 * i], vectors[2 * i + 1]));
    return vectors[0];
}

template <class Number>
[[gnu::always_inline]] constexpr Number smaller(Number a, Number b) {
    return a < b ? a : b;
}

}  // namespace
