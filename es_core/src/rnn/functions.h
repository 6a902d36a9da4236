// Exponential, logarithm and tanh for vectors, to about 2e-7: reported code only, the last digits differ between instruction sets.
#pragma once

#include "vectors.h"

namespace {

// 2^f on [-1/2, 1/2]: the polynomial of degree 5 with the least relative error, 8e-8.
[[gnu::always_inline]] inline Floats power_of_fraction(Floats f) {
    Floats power = f * 1.3276323e-3f + 9.6754972e-3f;
    power = power * f + 5.5507135e-2f;
    power = power * f + 2.4022120e-1f;
    power = power * f + 6.9314694e-1f;
    return power * f + 1.0f;
}

// 2^x to 2e-7 relative for x <= 126, zero far below; a NaN stays no number.
[[gnu::always_inline]] inline Floats power_of_two(Floats x) {
#if defined(__AVX512F__)
    const Floats whole = reinterpret_cast<Floats>(
        _mm512_maskz_roundscale_ps(0xFFFF, reinterpret_cast<__m512>(x), _MM_FROUND_TO_NEAREST_INT));
    const Floats power = power_of_fraction(x - whole);
    return reinterpret_cast<Floats>(
        _mm512_maskz_scalef_ps(0xFFFF, reinterpret_cast<__m512>(power), reinterpret_cast<__m512>(whole)));
#else
    constexpr float kRoundingMagic = 12582912.0f;  // 1.5 * 2^23: adding it leaves round(x) in the low bits
    constexpr float kLeast = -126.0f;
    x = x < kLeast ? Floats{} + kLeast : x;
    const Floats shifted = x + kRoundingMagic;
    const Floats power = power_of_fraction(x - (shifted - kRoundingMagic));
    return reinterpret_cast<Floats>(reinterpret_cast<Ints>(power) + (reinterpret_cast<Ints>(shifted) << 23));
#endif
}

constexpr float kLog2E = 1.44269504f;

[[gnu::always_inline]] inline Floats reciprocal(Floats x) {
#if defined(__AVX512F__)
    const Floats guess = reinterpret_cast<Floats>(_mm512_maskz_rcp14_ps(0xFFFF, reinterpret_cast<__m512>(x)));
    return guess * (2.0f - x * guess);
#else
    return 1.0f / x;
#endif
}

// x where it is below the limit, or no number.
[[gnu::always_inline]] inline Floats at_most(Floats x, float limit) {
#if defined(__AVX512F__)
    return reinterpret_cast<Floats>(
        _mm512_maskz_min_ps(0xFFFF, _mm512_set1_ps(limit), reinterpret_cast<__m512>(x)));
#elif defined(__AVX2__)
    return reinterpret_cast<Floats>(_mm256_min_ps(_mm256_set1_ps(limit), reinterpret_cast<__m256>(x)));
#else
    return x > limit ? Floats{} + limit : x;
#endif
}

// Natural logarithm of normal numbers above zero, to 1e-7; what is not finite becomes no number.
[[gnu::always_inline]] inline Floats log_of(Floats x) {
    constexpr std::int32_t kHalfRoot = 0x3F3504F3;  // bits of sqrt(1/2): the fraction lies between it and its double
    const Ints bits = reinterpret_cast<Ints>(x);
    const Ints exponent = (bits - kHalfRoot) >> 23;
    const Floats fraction = reinterpret_cast<Floats>(bits - (exponent << 23));
    // log(f) = 2 artanh((f - 1) / (f + 1)), its series up to the ninth power: the rest is below 1e-9.
    const Floats s = (fraction - 1.0f) / (fraction + 1.0f), square = s * s;
    Floats series = square * (2.0f / 9.0f) + 2.0f / 7.0f;
    series = series * square + 2.0f / 5.0f;
    series = series * square + 2.0f / 3.0f;
    series = series * square + 2.0f;
    return __builtin_convertvector(exponent, Floats) * 0.69314718f + (series * s + (x - x));
}

// 1 - 2 / (e^(2x) + 1), to 2e-7; from x = 22 on it is 1 anyway.
[[gnu::always_inline]] inline Floats tanh_of(Floats x) {
    return 1.0f - 2.0f * reciprocal(power_of_two(at_most(x * (2.0f * kLog2E), 64.0f)) + 1.0f);
}

}  // namespace
