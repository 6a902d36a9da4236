// Source: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009.
#include "checksum.h"

#include <array>
#include <cstddef>
#include <stdexcept>

#include "processor.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fedlearn {

#if defined(__x86_64__)

namespace {

constexpr std::uint32_t kPolynomial = 0xEDB88320;  // reflected: the lowest bit is the highest power
constexpr std::size_t kLane = 16, kLanes = 4;

constexpr std::array<std::uint32_t, 256> kOfByte = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t rest = byte;
        for (int i = 0; i < 8; ++i) rest = rest >> 1 ^ (rest & 1 ? kPolynomial : 0);
        table[byte] = rest;
    }
    return table;
}();

#define FEDLEARN_FOLDING __attribute__((target("sse4.1,pclmul"), always_inline)) inline

FEDLEARN_FOLDING __m128i load(const std::uint8_t* bytes) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
}

// The lane as many bits further on as the factors stand for, added to what is there.
FEDLEARN_FOLDING __m128i folded(__m128i lane, __m128i factors, __m128i there) {
    const __m128i low = _mm_clmulepi64_si128(lane, factors, 0x00), high = _mm_clmulepi64_si128(lane, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), there);
}

// `rest` after these bytes: whole lanes, and at least kLanes of them. The factors are x^n modulo the polynomial, bits
// reflected, with n = 512 + 32 and 512 - 32, then 128 + 32 and 128 - 32, then 64; last the polynomial and its inverse.
__attribute__((target("sse4.1,pclmul")))
std::uint32_t folded_rest(std::span<const std::uint8_t> bytes, std::uint32_t rest) {
    const __m128i by_512 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i by_128 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i by_64 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i divisor = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low_words = _mm_setr_epi32(-1, 0, -1, 0);
    const std::uint8_t *next = bytes.data(), *end = next + bytes.size();

    __m128i lanes[kLanes];
    for (__m128i& lane : lanes) lane = load(next), next += kLane;
    lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128(static_cast<int>(rest)));
    for (; static_cast<std::size_t>(end - next) >= kLanes * kLane; next += kLanes * kLane)
        for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = folded(lanes[i], by_512, load(next + i * kLane));
    __m128i sum = lanes[0];
    for (std::size_t i = 1; i < kLanes; ++i) sum = folded(sum, by_128, lanes[i]);
    for (; next != end; next += kLane) sum = folded(sum, by_128, load(next));

    // 128 bits become 96, then 64; Barrett's reduction leaves 32.
    sum = _mm_xor_si128(_mm_srli_si128(sum, 8), _mm_clmulepi64_si128(sum, by_128, 0x10));
    const __m128i low = _mm_clmulepi64_si128(_mm_and_si128(sum, low_words), by_64, 0x00);
    sum = _mm_xor_si128(_mm_srli_si128(sum, 4), low);
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(sum, low_words), divisor, 0x10);
    quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_words), divisor, 0x00);
    return static_cast<std::uint32_t>(_mm_extract_epi32(_mm_xor_si128(sum, quotient), 1));
}

}  // namespace

bool has_crc32() {
    static const bool answer = has_polynomials();
    return answer;
}

std::uint32_t crc32(std::span<const std::uint8_t> bytes, std::uint32_t crc) {
    if (!has_crc32()) throw std::logic_error("crc32: expected a processor that multiplies polynomials; use zlib's");
    std::uint32_t rest = ~crc;
    if (bytes.size() >= kLanes * kLane) {
        const std::size_t whole = bytes.size() / kLane * kLane;
        rest = folded_rest(bytes.first(whole), rest);
        bytes = bytes.subspan(whole);
    }
    for (const std::uint8_t byte : bytes) rest = rest >> 8 ^ kOfByte[(rest ^ byte) & 0xFF];
    return ~rest;
}

#else

bool has_crc32() { return false; }

std::uint32_t crc32(std::span<const std::uint8_t>, std::uint32_t) {
    throw std::logic_error("crc32: expected a processor that multiplies polynomials; use zlib's");
}

#endif

}  // namespace fedlearn
