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

}  // namespace
