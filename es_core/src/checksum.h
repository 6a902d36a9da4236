// The CRC-32 of zlib, gzip and PNG, where this processor multiplies polynomials.
#pragma once

#include <cstdint>
#include <span>

namespace fedlearn {

// Whether `crc32` may be called; elsewhere zlib's is as good as any.
bool has_crc32();

// The checksum of what `crc` is the checksum of (0: nothing), followed by the bytes.
std::uint32_t crc32(std::span<const std::uint8_t> bytes, std::uint32_t crc);

}  // namespace fedlearn
