#include "replicated/coding.h"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace fedlearn {

namespace {

constexpr std::uint64_t kMagnitudeLimit = std::uint64_t{1} << 62;

// One row's numbers from so many bytes each, in two's complement.
template <int kBytes>
void widen(std::int32_t* numbers, const std::uint8_t* bytes, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
        std::uint32_t word = 0;
        for (int k = 0; k < kBytes; ++k) word |= std::uint32_t{bytes[i * kBytes + k]} << (8 * k);
        // Up to the high end and back, which brings the sign along.
        numbers[i] = static_cast<std::int32_t>(word << (32 - 8 * kBytes)) >> (32 - 8 * kBytes);
    }
}

template <int kBytes>
void narrow(std::uint8_t* bytes, const std::int64_t* numbers, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
        for (int k = 0; k < kBytes; ++k)
            bytes[i * kBytes + k] = static_cast<std::uint8_t>(static_cast<std::uint64_t>(numbers[i]) >> (8 * k));
}

// One rounded row's numbers.
void scale(std::int32_t* numbers, const std::uint8_t* bytes, std::int64_t count, int shift) {
    for (std::int64_t i = 0; i < count; ++i) numbers[i] = std::int32_t{static_cast<std::int8_t>(bytes[i])} << shift;
}

// One packed row's numbers.
void unpack(std::int32_t* numbers, const std::uint8_t* bytes, std::int64_t count, int code) {
    const auto step = static_cast<std::int32_t>(packed_step(code));
    for (std::int64_t i = 0; i < count; ++i) {
        const int half = i % 2 == 0 ? bytes[i / 2] & 15 : bytes[i / 2] >> 4;
        numbers[i] = ((half ^ 8) - 8) * step;  // the highest bit is the sign
    }
}

bool is_code(int code) {
    return code <= kMaxShift || (code >= kExact && code <= kExact + kMaxExactBytes) ||
           (code >= kPacked && code <= kMaxPacked);
}

std::int64_t row_bytes(int code, std::int64_t count) {
    if (code >= kPacked) return (count + 1) / 2;
    return code < kExact ? count : count * (code - kExact);
}

int rounded_code(std::uint64_t greatest) {
    const std::uint64_t doubled = 2 * std::min(greatest, kMagnitudeLimit);
    // 127.5 rounds to 128, so twice the greatest number must stay below 255, which has 8 bits.
    int shift = std::max(static_cast<int>(std::bit_width(doubled)) - 8, 0);
    if (shift < kMaxShift && doubled >= std::uint64_t{255} << shift) ++shift;
    return std::min(shift, kMaxShift);
}

int packed_code(std::uint64_t greatest) {
    int code = kPacked;
    while (code < kMaxPacked && static_cast<std::uint64_t>(kPackedLimit * packed_step(code)) < greatest) ++code;
    return code;
}

}  // namespace

std::int64_t coded_bytes(RowLengths lengths, RowCodes codes) {
    std::int64_t total = 0;
    for (std::size_t row = 0; row < codes.size(); ++row) {
        if (!is_code(codes[row])) return -1;
        total += row_bytes(codes[row], lengths[row]);
    }
    return total;
}

void decode_rows(std::span<std::int32_t> numbers, std::span<const std::uint8_t> bytes, RowLengths lengths,
                 RowCodes codes) {
    std::int32_t* out = numbers.data();
    const std::uint8_t* in = bytes.data();
    for (std::size_t row = 0; row < codes.size(); ++row) {
        const std::int64_t count = lengths[row];
        const int code = codes[row];
        switch (code) {
            case kExact: std::fill_n(out, count, 0); break;
            case kExact + 1: widen<1>(out, in, count); break;
            case kExact + 2: widen<2>(out, in, count); break;
            case kExact + 3: widen<3>(out, in, count); break;
            case kExact + 4: widen<4>(out, in, count); break;
            default: code >= kPacked ? unpack(out, in, count, code) : scale(out, in, count, code);
        }
        out += count;
        in += row_bytes(code, count);
    }
}

void rounded_codes(std::span<std::uint8_t> codes, std::span<const std::int64_t> numbers, RowLengths lengths,
                   const ReplicatedKernels& kernels) {
    const std::int64_t* in = numbers.data();
    for (std::size_t row = 0; row < codes.size(); ++row) {
        codes[row] = static_cast<std::uint8_t>(rounded_code(kernels.greatest_magnitude(in, lengths[row])));
        in += lengths[row];
    }
}

void packed_codes(std::span<std::uint8_t> codes, std::span<const std::int64_t> numbers, RowLengths lengths,
                  const ReplicatedKernels& kernels) {
    const std::int64_t* in = numbers.data();
    for (std::size_t row = 0; row < codes.size(); ++row) {
        const std::uint64_t greatest = kernels.greatest_magnitude(in, lengths[row]);
        codes[row] = static_cast<std::uint8_t>(lengths[row] == 1 ? rounded_code(greatest) : packed_code(greatest));
        in += lengths[row];
    }
}

void pack_rows(std::span<std::uint8_t> bytes, std::span<const std::int64_t> numbers,
               std::span<const std::uint8_t> random, RowLengths lengths, RowCodes codes,
               const ReplicatedKernels& kernels) {
    std::uint8_t* out = bytes.data();
    std::size_t at = 0;
    for (std::size_t row = 0; row < codes.size(); ++row) {
        const std::int64_t count = lengths[row];
        const int code = codes[row];
        if (code >= kPacked)
            kernels.pack_row(out, &numbers[at], &random[at], count, packed_step(code));
        else
            kernels.round_row(out, &numbers[at], count, code);
        at += static_cast<std::size_t>(count);
        out += row_bytes(code, count);
    }
}

void round_rows(std::span<std::uint8_t> bytes, std::span<const std::int64_t> numbers,
                std::span<const std::uint32_t> words, RowLengths lengths, RowCodes codes,
                const ReplicatedKernels& kernels) {
    std::int64_t at = 0;
    for (std::size_t row = 0; row < codes.size(); ++row) {
        kernels.round_row_randomly(bytes.data() + at, numbers.data() + at, words.data() + at, lengths[row], codes[row]);
        at += lengths[row];
    }
}

bool exact_codes(std::span<std::uint8_t> codes, std::span<const std::int64_t> numbers, RowLengths lengths) {
    const std::int64_t* in = numbers.data();
    for (std::size_t row = 0; row < codes.size(); ++row) {
        std::uint64_t any = 0, magnitudes = 0;
        for (std::int64_t i = 0; i < lengths[row]; ++i) {
            // The bits of a number without its sign: -128 needs as many as 127, and -1 none but the sign.
            any |= static_cast<std::uint64_t>(in[i]);
            magnitudes |= static_cast<std::uint64_t>(in[i] < 0 ? ~in[i] : in[i]);
        }
        int n_bytes = any == 0 ? 0 : 1;
        while (n_bytes <= kMaxExactBytes && n_bytes > 0 && magnitudes >> (8 * n_bytes - 1) != 0) ++n_bytes;
        if (n_bytes > kMaxExactBytes) return false;
        codes[row] = static_cast<std::uint8_t>(kExact + n_bytes);
        in += lengths[row];
    }
    return true;
}

void encode_rows(std::span<std::uint8_t> bytes, std::span<const std::int64_t> numbers, RowLengths lengths,
                 RowCodes codes, const ReplicatedKernels& kernels) {
    std::uint8_t* out = bytes.data();
    const std::int64_t* in = numbers.data();
    for (std::size_t row = 0; row < codes.size(); ++row) {
        const std::int64_t count = lengths[row];
        const int code = codes[row];
        switch (code) {
            case kExact: break;
            case kExact + 1: narrow<1>(out, in, count); break;
            case kExact + 2: narrow<2>(out, in, count); break;
            case kExact + 3: narrow<3>(out, in, count); break;
            case kExact + 4: narrow<4>(out, in, count); break;
            default: kernels.round_row(out, in, count, code);
        }
        in += count;
        out += row_bytes(code, count);
    }
}

}  // namespace fedlearn
