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
constexpr int kTileVectors = 4;  // columns of a register tile, in vectors; 32 registers
constexpr int kTileRows = 6;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
constexpr int kTileVectors = 2;  // 16 registers
constexpr int kTileRows = 6;
#elif defined(__aarch64__)
constexpr int kVectorBytes = 16;
constexpr int kTileVectors = 4;  // 32 registers
constexpr int kTileRows = 6;
#else
constexpr int kVectorBytes = 16;
constexpr int kTileVectors = 2;  // 16 registers
constexpr int kTileRows = 6;
#endif

constexpr int kLanes = kVectorBytes / 4;
constexpr int kTileColumns = kTileVectors * kLanes;

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

template <class Integer>
[[gnu::always_inline]] constexpr Integer round_up(Integer value, Integer multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

template <class Number>
[[gnu::always_inline]] constexpr Number smaller(Number a, Number b) {
    return a < b ? a : b;
}

}  // namespace
