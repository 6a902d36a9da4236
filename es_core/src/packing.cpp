#include "packing.h"

#include <algorithm>
#include <cmath>

namespace fedlearn {

namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// The scale of a matrix's bytes: the greatest weight becomes 127, and a state of 1 is 127 steps.
float byte_scale(const float* matrix, std::int64_t n) {
    float greatest = 0.0f;
    for (std::int64_t i = 0; i < n; ++i) greatest = std::max(greatest, std::abs(matrix[i]));
    return greatest / (127.0f * 127.0f);
}

}  // namespace

PackedWeights::PackedWeights(const Rnn& rnn, const float* weights, bool is_int8) : view_{} {
    const ReportedKernels& kernels = *current_isa().reported;
    const TensorIndex index(rnn.layers);
    const auto at = [&](std::size_t tensor) { return weights + rnn.tensors[tensor].offset; };
    const std::int64_t hidden = rnn.hidden, matrix_size = hidden * hidden;
    view_.vocab = rnn.vocab;
    view_.hidden = hidden;
    view_.layers = rnn.layers;
    view_.is_int8 = is_int8;
    view_.tail = is_int8 ? 0 : kernels.tail_of(rnn.vocab);
    view_.padded_columns = round_up(rnn.vocab - view_.tail, kernels.lanes);
    view_.padded_hidden = round_up(hidden, kernels.lanes);
    for (std::int64_t layer = 0; layer < rnn.layers; ++layer) {
        float* bias = pad_rows(at(index.bias[layer]), 1, hidden);
        float scale = byte_scale(at(index.recurrent[layer]), matrix_size);
        if (layer > 0) {
            // Both matrices are summed as integers, and so have one scale.
            scale = std::max(scale, byte_scale(at(index.input[layer]), matrix_size));
            view_.input[layer] = pack_matrix(at(index.input[layer]), hidden, hidden, bias, scale);
        }
        view_.recurrent[layer] = pack_matrix(at(index.recurrent[layer]), hidden, hidden, bias, scale);
        view_.bias[layer] = bias;
    }
    float* embedding = pad_rows(at(index.embedding), rnn.vocab, hidden);
    for (std::int64_t i = 0; i < rnn.vocab * view_.padded_hidden; ++i)
        embedding[i] += view_.bias[0][i % view_.padded_hidden];
    view_.embedding = embedding;
    const std::int64_t columns = rnn.vocab - view_.tail;
    float* head_bias = take(view_.padded_columns + view_.tail);
    std::fill_n(head_bias, view_.padded_columns, kNeverCounts);
    std::copy_n(at(index.head_bias), columns, head_bias);
    std::copy_n(at(index.head_bias) + columns, view_.tail, head_bias + view_.padded_columns);
    view_.head = pack_matrix(at(index.head), columns, hidden, head_bias, byte_scale(at(index.head), columns * hidden));
    view_.head_bias = head_bias;
    view_.head_tail = pad_rows(at(index.head) + columns * hidden, view_.tail, hidden);
    initial_state_ = at(index.initial_state);
}

PackedMatrix PackedWeights::pack_matrix(const float* matrix, std::int64_t outputs, std::int64_t inputs, float* start,
                                        float scale) {
    const ReportedKernels& kernels = *current_isa().reported;
    const std::int64_t padded_outputs = round_up(outputs, kernels.lanes);
    if (view_.is_int8) {
        auto* bytes = reinterpret_cast<std::int8_t*>(take(padded_outputs * round_up(inputs, 4) / 4));
        kernels.pack_bytes(bytes, start, matrix, outputs, inputs, scale);
        return {nullptr, bytes, scale, padded_outputs, inputs};
    }
    float* panels = take(padded_outputs * inputs);
    kernels.pack(panels, matrix, outputs, inputs);
    return {panels, nullptr, 1.0f, padded_outputs, inputs};
}

float* PackedWeights::pad_rows(const float* rows, std::int64_t n_rows, std::int64_t length) {
    const std::int64_t padded = round_up(length, current_isa().reported->lanes);
    float* out = take(n_rows * padded);
    std::fill_n(out, n_rows * padded, 0.0f);
    for (std::int64_t row = 0; row < n_rows; ++row) std::copy_n(rows + row * length, length, out + row * padded);
    return out;
}

FactorRows::FactorRows(const Rnn& rnn, float sigma) : plan_(make_noise_plan(rnn.tensors)), view_{} {
    const TensorIndex index(rnn.layers);
    view_.rank = rnn.tensors[index.embedding].rank;
    const auto amplitude = [&](std::size_t tensor) { return sigma * rnn.scales[tensor]; };
    const auto root = static_cast<float>(std::sqrt(static_cast<double>(std::max<std::int64_t>(view_.rank, 1))));
    const auto add_vector = [&](std::size_t tensor) {
        return add(tensor, 0, amplitude(tensor), Form::kSigns, Role::kOutput);
    };
    // Factor 2k runs over rows and 2k + 1 over columns; a matrix reads its columns, the embedding its rows.
    // What multiplies a byte state is bytes too; the embedding is picked, not multiplied.
    const auto add_matrix = [&](std::size_t tensor, bool reads_rows) {
        MatrixNoise noise{};
        const Form into = rnn.is_int8 && !reads_rows ? Form::kBits : Form::kSigns;
        for (std::int64_t k = 0; k < view_.rank; ++k) {
            noise.into[k] = add(tensor, reads_rows ? 2 * k : 2 * k + 1, 1.0f, into, Role::kInput);
            noise.out[k] = add(tensor, reads_rows ? 2 * k + 1 : 2 * k, amplitude(tensor) / root, Form::kSigns,
                                Role::kOutput);
        }
        return noise;
    };
    view_.embedding = add_matrix(index.embedding, true);
    for (std::int64_t layer = 0; layer < rnn.layers; ++layer) {
        if (layer > 0) view_.input[layer] = add_matrix(index.input[layer], false);
        view_.recurrent[layer] = add_matrix(index.recurrent[layer], false);
        view_.bias[layer] = add_vector(index.bias[layer]);
    }
    view_.head = add_matrix(index.head, false);
    view_.head_bias = add_vector(index.head_bias);
    initial_state_ = add_vector(index.initial_state);
    // An odd number of cache lines: rows of one tile fall into different sets of the cache.
    view_.row_stride = round_up(view_.row_stride, 32) + 16;
}

void FactorRows::fill(float* row, std::uint32_t* words, const Key& key, const NoiseSource& source) const {
    const NoisePlanView plan = plan_.view();
    const ReportedKernels& kernels = *current_isa().reported;
    current_isa().replicated->sign_words(words, key, plan, source.member);
    for (const Entry& entry : entries_) {
        const Factor& factor = plan.factor(entry.tensor, entry.factor);
        float* values = row + entry.offset;
        if (entry.form == Form::kBits) {
            kernels.expand_bits(reinterpret_cast<std::uint8_t*>(values), words, plan.n_blocks, factor.first_block,
                                factor.length);
        } else {
            const bool is_negated = source.is_negated && entry.role == Role::kOutput;
            kernels.expand_signs(values, words, plan.n_blocks, factor.first_block, 0, factor.length,
                                 is_negated ? -entry.amplitude : entry.amplitude);
        }
    }
}

std::int64_t FactorRows::add(std::size_t tensor, std::int64_t factor, float amplitude, Form form, Role role) {
    const std::int64_t offset = view_.row_stride;
    const auto number = static_cast<std::int64_t>(tensor);
    const std::int64_t length = plan_.view().factor(number, factor).length;
    entries_.push_back({number, factor, offset, amplitude, form, role});
    view_.row_stride +=
        form == Form::kBits ? round_up(length, kByteMultiple) / 4 : round_up(length, kBlockMultiple);
    return offset;
}

}  // namespace fedlearn
