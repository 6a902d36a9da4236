// The floating point mode that replicated numbers are computed in.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace fedlearn {

// Sets round-to-nearest without flush-to-zero for its scope: loading a library linked with -ffast-math changes both for
// the whole process, and replicas would drift apart.
class FloatGuard {
public:
#if defined(__x86_64__)
    FloatGuard() : saved_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
    ~FloatGuard() { _mm_setcsr(saved_); }

private:
    unsigned saved_;
#elif defined(__aarch64__)
    FloatGuard() {
        asm volatile("mrs %0, fpcr" : "=r"(saved_));
        asm volatile("msr fpcr, %0" ::"r"(std::uint64_t{0}));
    }
    ~FloatGuard() { asm volatile("msr fpcr, %0" ::"r"(saved_)); }

private:
    std::uint64_t saved_;
#else
    FloatGuard() {}
#endif
public:
    FloatGuard(const FloatGuard&) = delete;
    FloatGuard& operator=(const FloatGuard&) = delete;
};

}  // namespace fedlearn
