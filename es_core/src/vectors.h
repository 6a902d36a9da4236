// Vector types of the width this translation unit is compiled for.
//
// The files that include this header are compiled once per instruction set, so everything here and there has internal
// linkage: a weak symbol shared by two of those objects would let the linker keep the copy that an older processor cannot run.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
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
typedef std::int16_t Shorts __attribute__((vector_size(kVectorBytes)));
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

#if !defined(__AVX512VNNI__) && !defined(__AVXVNNI__) && !defined(__ARM_FEATURE_DOTPROD)
// Sums of two neighbouring products of 16-bit numbers.
[[gnu::always_inline]] inline Ints pair_products(Shorts a, Shorts b) {
#if defined(__AVX512BW__)
    return reinterpret_cast<Ints>(_mm512_madd_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
    return reinterpret_cast<Ints>(_mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#elif defined(__SSE2__)
    return reinterpret_cast<Ints>(_mm_madd_epi16(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
    const Ints x = reinterpret_cast<Ints>(a), y = reinterpret_cast<Ints>(b);
    return ((x << 16) >> 16) * ((y << 16) >> 16) + (x >> 16) * (y >> 16);
#endif
}
#endif

// acc + sum over the four bytes of each lane of bits * values; bits are 0 or 1 and unsigned, values are signed.
[[gnu::always_inline]] inline Ints dot4_bits(Ints acc, Words bits, Words values) {
#if defined(__AVX512VNNI__)
    return reinterpret_cast<Ints>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(acc), reinterpret_cast<__m512i>(bits),
                                                      reinterpret_cast<__m512i>(values)));
#elif defined(__AVXVNNI__)
    return reinterpret_cast<Ints>(_mm256_dpbusd_avx_epi32(
        reinterpret_cast<__m256i>(acc), reinterpret_cast<__m256i>(bits), reinterpret_cast<__m256i>(values)));
#elif defined(__ARM_FEATURE_DOTPROD)
    return reinterpret_cast<Ints>(vdotq_s32(reinterpret_cast<int32x4_t>(acc), reinterpret_cast<int8x16_t>(bits),
                                            reinterpret_cast<int8x16_t>(values)));
#elif defined(__AVX512BW__)
    const __m512i pairs = _mm512_maddubs_epi16(reinterpret_cast<__m512i>(bits), reinterpret_cast<__m512i>(values));
    return acc + reinterpret_cast<Ints>(_mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
#elif defined(__AVX2__)
    const __m256i pairs = _mm256_maddubs_epi16(reinterpret_cast<__m256i>(bits), reinterpret_cast<__m256i>(values));
    return acc + reinterpret_cast<Ints>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#else
    const Words kept = values & (bits * 0xFFu);  // a byte of bits is 0 or 1: no carry between bytes
    const Ints signed_bytes = reinterpret_cast<Ints>(kept);
    return acc + ((signed_bytes << 24) >> 24) + ((signed_bytes << 16) >> 24) + ((signed_bytes << 8) >> 24) +
           (signed_bytes >> 24);
#endif
}

// What turns unsigned bytes into the first factor of dot4_bytes: ARM multiplies signed with signed bytes, which are less
// by kFirstOffset.
#if defined(__ARM_FEATURE_DOTPROD)
constexpr std::uint32_t kFirstFlip = 0x80808080u;
constexpr float kFirstOffset = 128.0f;
#else
constexpr std::uint32_t kFirstFlip = 0;
constexpr float kFirstOffset = 0.0f;
#endif

// acc + sum over the four bytes of each lane of first * second, for any bytes; the second are signed.
[[gnu::always_inline]] inline Ints dot4_bytes(Ints acc, Words first, Words second) {
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__) || defined(__ARM_FEATURE_DOTPROD)
    return dot4_bits(acc, first, second);
#else
    // Pairs of even and of odd bytes as 16-bit numbers: no product or sum of two can overflow 32 bits.
    const Words even = first & 0x00FF00FFu, odd = (first >> 8) & 0x00FF00FFu;
    const Shorts even_values = reinterpret_cast<Shorts>(second << 8) >> 8;
    const Shorts odd_values = reinterpret_cast<Shorts>(second) >> 8;
    return acc + pair_products(reinterpret_cast<Shorts>(even), even_values) +
           pair_products(reinterpret_cast<Shorts>(odd), odd_values);
#endif
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

[[gnu::always_inline]] inline Ints sum_each(Ints (&vectors)[kLanes]) {
    for (int n = kLanes / 2; n > 0; n /= 2)
        for (int i = 0; i < n; ++i) {
            const Floats a = reinterpret_cast<Floats>(vectors[2 * i]), b = reinterpret_cast<Floats>(vectors[2 * i + 1]);
            vectors[i] = reinterpret_cast<Ints>(even_lanes(a, b)) + reinterpret_cast<Ints>(odd_lanes(a, b));
        }
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
