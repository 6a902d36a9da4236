// Aligned memory that nobody clears: what is allocated in every call must not cost a pass over it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace fedlearn {

inline constexpr std::size_t kAlignment = 64;  // a cache line, and the widest vector

struct AlignedDelete {
    void operator()(void* memory) const { ::operator delete(memory, std::align_val_t{kAlignment}); }
};

// Aligned memory for n values, not initialised.
template <class Value>
std::unique_ptr<Value[], AlignedDelete> allocate(std::int64_t n) {
    const std::size_t bytes = static_cast<std::size_t>(std::max<std::int64_t>(n, 1)) * sizeof(Value);
    return std::unique_ptr<Value[], AlignedDelete>(
        static_cast<Value*>(::operator new(bytes, std::align_val_t{kAlignment})));
}

using FloatBuffer = std::unique_ptr<float[], AlignedDelete>;
using ByteBuffer = std::unique_ptr<std::byte[], AlignedDelete>;

}  // namespace fedlearn
