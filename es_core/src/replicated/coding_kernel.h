// A row of a rounded sum: what it is measured by, and its bytes.
#pragma once

#include <cstdint>

namespace {

// The greatest number of a row without its sign; -2^63 has one, too.
std::uint64_t greatest_magnitude(const std::int64_t* numbers, std::int64_t count) {
    std::uint64_t greatest = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        const auto word = static_cast<std::uint64_t>(numbers[i]);
        const std::uint64_t magnitude = numbers[i] < 0 ? ~word + 1 : word;
        greatest = magnitude > greatest ? magnitude : greatest;
    }
    return greatest;
}

std::int64_t within(std::int64_t number, std::int64_t limit) {
    const std::int64_t above = number < -limit ? -limit : number;
    return above > limit ? limit : above;
}

// bytes <- numbers / 2^shift to the nearest, halves to even, beyond -127 to 127 cut.
void round_row(std::uint8_t* __restrict bytes, const std::int64_t* __restrict numbers, std::int64_t count, int shift) {
    constexpr std::int64_t kLimit = std::int64_t{1} << 40;
    const std::int64_t below_half = shift == 0 ? 0 : (std::int64_t{1} << (shift - 1)) - 1;
    const std::int64_t lowest_bit = shift == 0 ? 0 : 1;
    for (std::int64_t i = 0; i < count; ++i) {
        // Cut first, so that nothing overflows; what is beyond is beyond 127 after the shift, too.
        const std::int64_t number = within(numbers[i], kLimit);
        // A half goes up where the number below it is odd.
        const std::int64_t rounded = (number + below_half + ((number >> shift) & lowest_bit)) >> shift;
        bytes[i] = static_cast<std::uint8_t>(within(rounded, 127));
    }
}

// bytes <- (numbers + the highest `shift` bits of a random word each) / 2^shift, rounded down, beyond -127 to 127 cut: up
// or down without bias.
void round_row_randomly(std::uint8_t* __restrict bytes, const std::int64_t* __restrict numbers,
                        const std::uint32_t* __restrict words, std::int64_t count, int shift) {
    constexpr std::int64_t kLimit = std::int64_t{1} << 40;
    for (std::int64_t i = 0; i < count; ++i) {
        const auto raised_by = static_cast<std::int64_t>(std::uint64_t{words[i]} >> (32 - shift));
        bytes[i] = static_cast<std::uint8_t>(within((within(numbers[i], kLimit) + raised_by) >> shift, 127));
    }
}

// One number in four bits: floor(number / step + (random + 1/2) / 256), within -7 to 7. The division's operands are
// integers below 2^53, and its quotient is never closer to another integer than a double resolves.
std::int32_t in_four_bits(std::int64_t number, std::uint8_t random, std::int64_t step) {
    constexpr double kRoom = 8.0;  // makes the quotient positive, where its integer part is its floor
    const double by = 512.0 * static_cast<double>(step);
    const auto within_32_bits = static_cast<std::int32_t>(within(number, 2147483647));
    const double raised = 512.0 * within_32_bits + (2.0 * random + 1.0) * static_cast<double>(step) + kRoom * by;
    const double quotient = raised / by;
    // Beyond what fits the quotient may be anything.
    const auto found = static_cast<std::int32_t>(quotient < 0.0 ? 0.0 : quotient > 16.0 ? 16.0 : quotient) - 8;
    return found < -7 ? -7 : found > 7 ? 7 : found;
}

// bytes [(count + 1) / 2] <- the numbers in four bits each, the low half of a byte first.
void pack_row(std::uint8_t* __restrict bytes, const std::int64_t* __restrict numbers,
              const std::uint8_t* __restrict random, std::int64_t count, std::int64_t step) {
    const std::int64_t n_pairs = count / 2;
    for (std::int64_t i = 0; i < n_pairs; ++i) {
        const std::int32_t low = in_four_bits(numbers[2 * i], random[2 * i], step);
        const std::int32_t high = in_four_bits(numbers[2 * i + 1], random[2 * i + 1], step);
        bytes[i] = static_cast<std::uint8_t>((low & 15) | ((high & 15) << 4));
    }
    if (count % 2 != 0)
        bytes[n_pairs] = static_cast<std::uint8_t>(in_four_bits(numbers[count - 1], random[count - 1], step) & 15);
}

}  // namespace
