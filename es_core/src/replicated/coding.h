// Integers of a sum of gradient estimates as bytes, row by row; a code a row says how to read them.
//
// A code up to kMaxShift is that of a rounded row: a byte a number, which counts `byte << code`. kExact and above: so
// many bytes a number as the code exceeds kExact, the lowest first, in two's complement. kPacked and above: a packed row,
// four bits a number in two's complement, the low half of a byte first; each counts packed_step(code).
#pragma once

#include <cstdint>
#include <span>

#include "replicated/kernels.h"

namespace fedlearn {

constexpr int kMaxShift = 24;
constexpr int kExact = 128;
constexpr int kMaxExactBytes = 4;
constexpr int kPacked = 136;
constexpr int kMaxPacked = 239;
constexpr int kPackedLimit = 7;  // the greatest number in four bits, as far from zero as the least

using RowLengths = std::span<const std::int64_t>;
using RowCodes = std::span<const std::uint8_t>;

// What one of a packed row's numbers counts: 4 to 7 times a power of two, up to 7 x 2^25.
constexpr std::int64_t packed_step(int code) { return std::int64_t{4 + (code - kPacked) % 4} << (code - kPacked) / 4; }

// Bytes that rows of these codes take; -1 where one of them is no code.
std::int64_t coded_bytes(RowLengths lengths, RowCodes codes);

// numbers <- what the bytes stand for.
void decode_rows(std::span<std::int32_t> numbers, std::span<const std::uint8_t> bytes, RowLengths lengths,
                 RowCodes codes);

// The least shift of each row with which its greatest number rounds to at most 127, or kMaxShift.
void rounded_codes(std::span<std::uint8_t> codes, std::span<const std::int64_t> numbers, RowLengths lengths,
                   const ReplicatedKernels& kernels);

// The code of each row for as many bytes as its greatest number needs; false if that is more than kMaxExactBytes.
bool exact_codes(std::span<std::uint8_t> codes, std::span<const std::int64_t> numbers, RowLengths lengths);

// The code of each row for four bits a number, of the least step with which its greatest fits; a row of one number would
// save nothing, and has the code of rounded_codes.
void packed_codes(std::span<std::uint8_t> codes, std::span<const std::int64_t> numbers, RowLengths lengths,
                  const ReplicatedKernels& kernels);

// bytes <- the numbers by these codes, packed ones rounded up or down by a random byte each, without bias; others as in
// encode_rows.
void pack_rows(std::span<std::uint8_t> bytes, std::span<const std::int64_t> numbers,
               std::span<const std::uint8_t> random, RowLengths lengths, RowCodes codes,
               const ReplicatedKernels& kernels);

// bytes <- the numbers by these codes of rounded rows, each rounded up or down by a random word, without bias.
void round_rows(std::span<std::uint8_t> bytes, std::span<const std::int64_t> numbers,
                std::span<const std::uint32_t> words, RowLengths lengths, RowCodes codes,
                const ReplicatedKernels& kernels);

// bytes <- the numbers by these codes; a rounded row's to the nearest, halves to even, beyond -127 to 127 cut.
void encode_rows(std::span<std::uint8_t> bytes, std::span<const std::int64_t> numbers, RowLengths lengths,
                 RowCodes codes, const ReplicatedKernels& kernels);

}  // namespace fedlearn
