// The integer gradient estimate: signs of four members a byte each, multiplied by their utilities.
#pragma once

#include "carver.h"
#include "replicated/kernels.h"
#include "replicated/sign_words_kernel.h"
#include "vectors.h"

namespace {

using fedlearn::Factor;
using fedlearn::kBlockMultiple;
using fedlearn::kChunkMembers;
using fedlearn::MemberChunk;
using fedlearn::Tensor;

// The words of four members, and where one factor's bits begin in them.
struct FourMembers {
    const std::uint32_t* words[4];
    std::int64_t n_blocks;
    std::int64_t first_block;
};

// Bytes 0 or 1: byte q of lane j is the bit of member q at `offset` + j.
[[gnu::always_inline]] inline Words gather_bits(const FourMembers& four, std::int64_t offset) {
    const std::int64_t block = four.first_block + offset / 128;
    const std::int64_t word = (offset / 32) % 4;
    const Words lanes = lane_numbers() + static_cast<std::uint32_t>(offset % 32);
    Words bits{};
    for (int q = 0; q < 4; ++q)
        bits |= (((Words{} + four.words[q][word * four.n_blocks + block]) >> lanes) & 1u) << (8 * q);
    return bits;
}

// Byte q of lane j: 255 where row `row` + j of member q's group takes part, else 0.
[[gnu::always_inline]] inline Words gather_mask(const std::uint8_t* const masks[4], std::int64_t row) {
    Words mask{};
    for (int q = 0; q < 4; ++q)
        mask |= __builtin_convertvector(load<NarrowBytes>(masks[q] + row), Words) << (8 * q);
    return mask * 0xFFu;
}

// The same for elements that all lie in one row.
[[gnu::always_inline]] inline Words whole_row_mask(const std::uint8_t* const masks[4], std::int64_t row) {
    std::uint32_t mask = 0;
    for (int q = 0; q < 4; ++q) mask |= std::uint32_t{masks[q][row]} << (8 * q);
    return Words{} + mask * 0xFFu;
}

// bits ? -value : value, a byte each.
[[gnu::always_inline]] inline Words apply_signs(Words bits, Words values) {
    const Int8s minus = -reinterpret_cast<Int8s>(bits);
    return reinterpret_cast<Words>((reinterpret_cast<Int8s>(values) ^ minus) - minus);
}

std::uint32_t four_utilities(const MemberChunk& chunk, std::int64_t quad) {
    std::uint32_t packed;
    std::memcpy(&packed, chunk.utilities + 4 * quad, sizeof packed);
    return packed;
}

std::int64_t padded(std::int64_t length) { return round_up<std::int64_t>(length, kBlockMultiple); }

// estimate[row][column] += signed_sum[row] - 2 * sum over quads of bits * values, for a tile of `Rows` rows and `Vectors` vectors.
template <int Rows, int Vectors>
void product_tile(std::int32_t* estimate, std::int64_t stride, const std::uint32_t* values, std::int64_t values_stride,
                  const std::uint32_t* bits, std::int64_t bits_stride, const std::int32_t* signed_sum,
                  std::int64_t n_quads, std::int64_t n_columns) {
    Ints acc[Rows][Vectors] = {};
    for (std::int64_t quad = 0; quad < n_quads; ++quad) {
        Words column_bits[Vectors];
        for (int j = 0; j < Vectors; ++j) column_bits[j] = load<Words>(bits + quad * bits_stride + j * kLanes);
        for (int i = 0; i < Rows; ++i) {
            const Words value = Words{} + values[quad * values_stride + i];
            for (int j = 0; j < Vectors; ++j) acc[i][j] = dot4_bits(acc[i][j], column_bits[j], value);
        }
    }
    for (int i = 0; i < Rows; ++i) {
        std::int32_t* row = estimate + i * stride;
        for (int j = 0; j < Vectors; ++j) {
            const Ints sum = signed_sum[i] - 2 * acc[i][j];
            if ((j + 1) * kLanes <= n_columns) {
                store(row + j * kLanes, load<Ints>(row + j * kLanes) + sum);
            } else {
                for (std::int64_t lane = 0; j * kLanes + lane < n_columns; ++lane) row[j * kLanes + lane] += sum[lane];
            }
        }
    }
}

template <int Vectors>
void product_panel(std::int32_t* estimate, std::int64_t stride, const std::uint32_t* values, std::int64_t values_stride,
                   const std::uint32_t* bits, std::int64_t bits_stride, const std::int32_t* signed_sum,
                   std::int64_t n_quads, std::int64_t n_rows, std::int64_t n_columns) {
    constexpr int kRows = kRegisters == 16 ? 4 : 6;  // 16 registers leave room for temporaries
    std::int64_t row = 0;
    for (; row + kRows <= n_rows; row += kRows)
        product_tile<kRows, Vectors>(estimate + row * stride, stride, values + row, values_stride, bits, bits_stride,
                                     signed_sum + row, n_quads, n_columns);
    for (; row < n_rows; ++row)
        product_tile<1, Vectors>(estimate + row * stride, stride, values + row, values_stride, bits, bits_stride,
                                 signed_sum + row, n_quads, n_columns);
}

// Scratch memory; without an allocation, how much of it there must be.
struct Scratch {
    std::uint32_t* words;        // [kChunkMembers][n_words]
    std::uint32_t* values;       // [rank * quads][padded rows], four signed bytes each
    std::uint32_t* bits;         // [rank * quads][padded columns], four bytes 0 or 1 each
    std::int32_t* signed_sum;    // [padded rows]
    std::int64_t bytes;
};

Scratch carve(std::byte* memory, const NoisePlanView& plan, const Tensor* tensors, std::int64_t n_tensors) {
    std::int64_t rows = 0, value_words = 0, bit_words = 0;
    for (std::int64_t t = 0; t < n_tensors; ++t) {
        const Tensor& tensor = tensors[t];
        if (tensor.rank == 0) continue;
        const std::int64_t quads = tensor.rank * kChunkMembers / 4;
        rows = rows < padded(tensor.rows) ? padded(tensor.rows) : rows;
        value_words = value_words < quads * padded(tensor.rows) ? quads * padded(tensor.rows) : value_words;
        bit_words = bit_words < quads * padded(tensor.columns) ? quads * padded(tensor.columns) : bit_words;
    }
    Carver carver(memory);
    Scratch scratch{};
    scratch.words = carver.take<std::uint32_t>(kChunkMembers * plan.n_words());
    scratch.values = carver.take<std::uint32_t>(value_words);
    scratch.bits = carver.take<std::uint32_t>(bit_words);
    scratch.signed_sum = carver.take<std::int32_t>(rows);
    scratch.bytes = carver.bytes();
    return scratch;
}

std::int64_t gradient_scratch_bytes(const NoisePlanView& plan, const Tensor* tensors, std::int64_t n_tensors) {
    return carve(nullptr, plan, tensors, n_tensors).bytes;
}

FourMembers four_members(const Scratch& scratch, const NoisePlanView& plan, std::int64_t quad, std::int64_t first_block) {
    const std::uint32_t* words = scratch.words + 4 * quad * plan.n_words();
    return {{words, words + plan.n_words(), words + 2 * plan.n_words(), words + 3 * plan.n_words()},
            plan.n_blocks,
            first_block};
}

// The four row masks of a quad, from the first row of the tensor on; false when the tensor has none.
bool quad_masks(const std::uint8_t* (&masks)[4], const MemberChunk& chunk, const Tensor& tensor, std::int64_t quad) {
    if (tensor.mask_column < 0 || chunk.row_masks == nullptr) return false;
    for (int q = 0; q < 4; ++q) masks[q] = chunk.row_masks[4 * quad + q] + tensor.mask_column;
    return true;
}

void accumulate_low_rank(std::int32_t* estimate, const NoisePlanView& plan, const Tensor& tensor, std::int64_t t,
                         const MemberChunk& chunk, const Scratch& scratch) {
    const std::int64_t quads = chunk.size / 4;
    const std::int64_t value_stride = padded(tensor.rows), bits_stride = padded(tensor.columns);
    std::memset(scratch.signed_sum, 0, static_cast<std::size_t>(value_stride) * sizeof(std::int32_t));
    for (std::int64_t k = 0; k < tensor.rank; ++k) {
        const std::int64_t row_block = plan.factor(t, 2 * k).first_block;
        const std::int64_t column_block = plan.factor(t, 2 * k + 1).first_block;
        for (std::int64_t quad = 0; quad < quads; ++quad) {
            const Words utilities = Words{} + four_utilities(chunk, quad);
            const std::uint8_t* masks[4];
            const bool is_masked = quad_masks(masks, chunk, tensor, quad);
            std::uint32_t* values = scratch.values + (k * quads + quad) * value_stride;
            const FourMembers row_signs = four_members(scratch, plan, quad, row_block);
            for (std::int64_t row = 0; row < tensor.rows; row += kLanes) {
                Words value = apply_signs(gather_bits(row_signs, row), utilities);
                if (is_masked) value &= gather_mask(masks, row);
                store(values + row, value);
                const Ints sum = dot4_bits(load<Ints>(scratch.signed_sum + row), Words{} + 0x01010101u, value);
                store(scratch.signed_sum + row, sum);
            }
            std::uint32_t* bits = scratch.bits + (k * quads + quad) * bits_stride;
            const FourMembers column_signs = four_members(scratch, plan, quad, column_block);
            for (std::int64_t column = 0; column < tensor.columns; column += kLanes)
                store(bits + column, gather_bits(column_signs, column));
        }
    }
    const std::int64_t n_quads = tensor.rank * quads;
    for (std::int64_t column = 0; column < tensor.columns; column += kTileColumns) {
        const std::int64_t left = smaller<std::int64_t>(tensor.columns - column, kTileColumns);
        std::int32_t* out = estimate + tensor.offset + column;
        const std::uint32_t* bits = scratch.bits + column;
        if (left > kTileColumns - kLanes) {
            product_panel<kTileVectors>(out, tensor.columns, scratch.values, value_stride, bits, bits_stride,
                                        scratch.signed_sum, n_quads, tensor.rows, left);
        } else {
            for (std::int64_t c = 0; c < left; c += kLanes)
                product_panel<1>(out + c, tensor.columns, scratch.values, value_stride, bits + c, bits_stride,
                                 scratch.signed_sum, n_quads, tensor.rows, smaller<std::int64_t>(left - c, kLanes));
        }
    }
}

// A sign an element: sums over the chunk's members straight from the noise words.
void accumulate_full_rank(std::int32_t* estimate, const NoisePlanView& plan, const Tensor& tensor, std::int64_t t,
                          const MemberChunk& chunk, const Scratch& scratch) {
    const std::int64_t quads = chunk.size / 4;
    const std::int64_t first_block = plan.factor(t, 0).first_block;
    const std::int64_t n = tensor.rows * tensor.columns;
    for (std::int64_t first = 0; first < n; first += kLanes) {
        const std::int64_t first_row = first / tensor.columns;
        const std::int64_t last_row = (smaller<std::int64_t>(first + kLanes, n) - 1) / tensor.columns;
        Ints plus{}, minus{};
        for (std::int64_t quad = 0; quad < quads; ++quad) {
            Words utilities = Words{} + four_utilities(chunk, quad);
            const std::uint8_t* masks[4];
            if (quad_masks(masks, chunk, tensor, quad)) {
                Words mask = whole_row_mask(masks, first_row);
                for (int lane = 0; first_row != last_row && lane < kLanes && first + lane < n; ++lane)
                    mask[lane] = whole_row_mask(masks, (first + lane) / tensor.columns)[0];
                utilities &= mask;
            }
            plus = dot4_bits(plus, Words{} + 0x01010101u, utilities);
            minus = dot4_bits(minus, gather_bits(four_members(scratch, plan, quad, first_block), first), utilities);
        }
        const Ints sum = plus - 2 * minus;
        std::int32_t* out = estimate + tensor.offset + first;
        for (std::int64_t lane = 0; lane < kLanes && first + lane < n; ++lane) out[lane] += sum[lane];
    }
}

// Moves the bits of cut factors, of members whose words follow one another, to where they would stand if their first
// blocks began with them. Not inlined: whole models have no such factors, and shall have their loops to themselves.
[[gnu::noinline]] void move_to_front(std::uint32_t* words, const NoisePlanView& plan, std::int64_t n_members) {
    for (std::int64_t i = 0; i < n_members * plan.n_cut; ++i) {
        const Factor& factor = plan.cut[i % plan.n_cut];
        std::uint32_t* own = words + i / plan.n_cut * plan.n_words() + factor.first_block;
        const auto word = [&](std::int64_t number) -> std::uint32_t& {
            return own[number % 4 * plan.n_blocks + number / 4];
        };
        const std::int64_t n_words = (factor.skipped + factor.length + 31) / 32;
        for (std::int64_t from = factor.skipped / 32, to = 0; from < n_words; ++from, ++to) {
            const std::uint64_t next = from + 1 < n_words ? word(from + 1) : 0;
            word(to) = static_cast<std::uint32_t>((next << 32 | word(from)) >> factor.skipped % 32);
        }
    }
}

void accumulate_gradient(std::int32_t* estimate, const Key& key, const NoisePlanView& plan, const Tensor* tensors,
                         std::int64_t n_tensors, const MemberChunk& chunk, std::byte* memory) {
    const Scratch scratch = carve(memory, plan, tensors, n_tensors);
    for (std::int64_t i = 0; i < chunk.size; ++i)
        sign_words(scratch.words + i * plan.n_words(), key, plan, chunk.members[i]);
    move_to_front(scratch.words, plan, chunk.size);
    for (std::int64_t t = 0; t < n_tensors; ++t) {
        if (tensors[t].rank == 0) {
            accumulate_full_rank(estimate, plan, tensors[t], t, chunk, scratch);
        } else {
            accumulate_low_rank(estimate, plan, tensors[t], t, chunk, scratch);
        }
    }
}

}  // namespace
