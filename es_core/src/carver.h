// Pieces of one allocation. For kernels, hence with internal linkage: see vectors.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace {

// Hands out one piece after the other; without memory it only adds up what they take.
class Carver {
public:
    explicit Carver(std::byte* memory) : memory_(memory) {}

    // Memory for n values, null without memory. Pieces of wider types come first: nothing is aligned anew.
    template <class Value>
    Value* take(std::int64_t n) {
        const std::int64_t first = bytes_;
        bytes_ += n * std::int64_t{sizeof(Value)};
        return memory_ == nullptr ? nullptr : reinterpret_cast<Value*>(memory_ + first);
    }

    std::int64_t bytes() const { return bytes_; }

private:
    std::byte* memory_;
    std::int64_t bytes_ = 0;
};

}  // namespace
