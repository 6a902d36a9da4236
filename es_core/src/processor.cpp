// Asks the processor itself: compilers' own ways need libraries that not every linker has.
#include "processor.h"

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__aarch64__) && defined(_WIN32)
#include <windows.h>
#endif

namespace fedlearn {

#if defined(__x86_64__)

namespace {

struct Registers {
    unsigned a, b, c, d;
};

Registers ask(unsigned leaf, unsigned part) {
    Registers answer{};
    if (__get_cpuid_count(leaf, part, &answer.a, &answer.b, &answer.c, &answer.d) == 0) return {};
    return answer;
}

bool has_bits(std::uint64_t word, std::uint64_t bits) { return (word & bits) == bits; }

constexpr unsigned bit(int number) { return 1u << number; }

// The registers that the system saves when threads change places: a wider one would be lost.
std::uint64_t saved_registers() {
    if (!has_bits(ask(1, 0).c, bit(27))) return 0;
    unsigned low, high;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return std::uint64_t{high} << 32 | low;
}

bool saves_256_bits() { return has_bits(saved_registers(), 0x06); }

bool saves_512_bits() {
#if defined(__APPLE__)
    return saves_256_bits();  // macOS saves more from a thread's first use on
#else
    return has_bits(saved_registers(), 0xE6);
#endif
}

}  // namespace

bool has_v3() {
    constexpr unsigned kFma = bit(12), kAvx2 = bit(5), kBmi2 = bit(8);
    return saves_256_bits() && has_bits(ask(1, 0).c, kFma) && has_bits(ask(7, 0).b, kAvx2 | kBmi2);
}

bool has_v4() {
    constexpr unsigned kF = bit(16), kDq = bit(17), kCd = bit(28), kBw = bit(30), kVl = bit(31);
    return has_v3() && saves_512_bits() && has_bits(ask(7, 0).b, kF | kDq | kCd | kBw | kVl);
}

bool has_v3_vnni() { return has_v3() && has_bits(ask(7, 1).a, bit(4)); }

bool has_v4_vnni() { return has_v4() && has_bits(ask(7, 0).c, bit(11)); }

bool has_polynomials() {
    constexpr unsigned kProducts = bit(1), kSse41 = bit(19);
    return has_bits(ask(1, 0).c, kProducts | kSse41);
}

#elif defined(__aarch64__)

bool has_dot() {
#if defined(__linux__)
    constexpr unsigned long kDotProducts = 1ul << 20;  // HWCAP_ASIMDDP
    return (getauxval(AT_HWCAP) & kDotProducts) != 0;
#elif defined(__APPLE__)
    int answer = 0;
    std::size_t size = sizeof answer;
    return sysctlbyname("hw.optional.arm.FEAT_DotProd", &answer, &size, nullptr, 0) == 0 && answer != 0;
#elif defined(_WIN32)
    constexpr unsigned long kDotProducts = 43;  // PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE
    return IsProcessorFeaturePresent(kDotProducts) != 0;
#else
    return false;
#endif
}

#endif

}  // namespace fedlearn
