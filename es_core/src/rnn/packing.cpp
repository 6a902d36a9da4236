#include "rnn/packing.h"

#include <algorithm>
#include <cmath>

#include "isa.h"
#include "replicated/kernels.h"

namespace fedlearn {

namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// The scale of a matrix's bytes: the greatest weight becomes 127, and a state of 1 is 127 steps.
float byte_scale(const float* matrix, std::int64_t n) {
    float greatest = 0.0f;
    for (std::int64_t i = 0; i < n; ++i) greatest = std::max(greatest, std::abs(matrix[i]));
    return greatest / (127.0f * 127.0f);
}

// values [n_pieces][padded] <- pieces of `length` that stand without gaps; zero beyond each.
void spread(float* values, std::int64_t length, std::int64_t padded, std::int64_t n_pieces) {
    for (std::int64_t i = n_pieces - 1; i >= 0; --i) {
        std::copy_backward(values + i * length, values + (i + 1) * length, values + i * padded + length);
        std::fill_n(values + i * padded + length, padded - length, 0.0f);
    }
}

}  // namespace

PackedWeights::PackedWeights(const Rnn& rnn, const float* weights, bool is_int8)
    : kernels_(*rnn.isa->rnn), view_{} {
    const TensorIndex index(rnn);
    const auto at = [&](std::size_t tensor) { return weights + rnn.tensors[tensor].offset; };
    const std::int64_t hidden = rnn.hidden, gates = rnn.cell.gates, matrix_size = gates * hidden * hidden;
    view_.cell = rnn.cell;
    view_.vocab = rnn.vocab;
    view_.hidden = hidden;
    view_.layers = rnn.layers;
    view_.state_vectors = state_vectors_of(rnn);
    view_.is_int8 = is_int8;
    view_.reset_token = rnn.reset_token;
    view_.tail = is_int8 ? 0 : kernels_.tail_of(rnn.vocab);
    view_.padded_columns = round_up(rnn.vocab - view_.tail, kernels_.lanes);
    view_.padded_hidden = round_up(hidden, kernels_.lanes);
    for (std::int64_t layer = 0; layer < rnn.layers; ++layer) {
        float* bias = pad_rows(at(index.bias[layer]), gates, hidden);
        float scale = byte_scale(at(index.recurrent[layer]), matrix_size);
        if (layer > 0) {
            // Both matrices are summed as integers, and so have one scale.
            scale = std::max(scale, byte_scale(at(index.input[layer]), matrix_size));
            view_.input[layer] = pack_layer(at(index.input[layer]), bias, scale);
        }
        view_.recurrent[layer] = pack_layer(at(index.recurrent[layer]), bias, scale);
        view_.bias[layer] = bias;
        if (rnn.cell.has_hidden_bias) view_.hidden_bias[layer] = pad_rows(at(index.hidden_bias[layer]), 1, hidden);
    }
    float* embedding = pad_rows(at(index.embedding), rnn.vocab * gates, hidden);
    const std::int64_t row_length = gates * view_.padded_hidden;
    for (std::int64_t i = 0; i < rnn.vocab * row_length; ++i) embedding[i] += view_.bias[0][i % row_length];
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

PackedMatrix PackedWeights::pack_layer(const float* matrix, float* start, float scale) {
    const std::int64_t gates = view_.cell.gates;
    if (gates == 1) return pack_matrix(matrix, view_.hidden, view_.hidden, start, scale);
    float* panels = take(gates * view_.padded_hidden * view_.hidden);
    kernels_.pack_gates(panels, matrix, gates, view_.hidden, view_.hidden);
    return {panels, nullptr, 1.0f, view_.padded_hidden, view_.hidden};
}

PackedMatrix PackedWeights::pack_matrix(const float* matrix, std::int64_t outputs, std::int64_t inputs, float* start,
                                        float scale) {
    const std::int64_t padded_outputs = round_up(outputs, kernels_.lanes);
    if (view_.is_int8) {
        auto* bytes = reinterpret_cast<std::int8_t*>(take(padded_outputs * round_up(inputs, 4) / 4));
        kernels_.pack_bytes(bytes, start, matrix, outputs, inputs, scale);
        return {nullptr, bytes, scale, padded_outputs, inputs};
    }
    float* panels = take(padded_outputs * inputs);
    kernels_.pack(panels, matrix, outputs, inputs);
    return {panels, nullptr, 1.0f, padded_outputs, inputs};
}

float* PackedWeights::pad_rows(const float* rows, std::int64_t n_rows, std::int64_t length) {
    const std::int64_t padded = round_up(length, kernels_.lanes);
    float* out = take(n_rows * padded);
    std::fill_n(out, n_rows * padded, 0.0f);
    for (std::int64_t row = 0; row < n_rows; ++row) std::copy_n(rows + row * length, length, out + row * padded);
    return out;
}

FactorRows::FactorRows(const Rnn& rnn, float sigma)
    : isa_(*rnn.isa), plan_(make_noise_plan(rnn.tensors)), view_{} {
    const TensorIndex index(rnn);
    view_.rank = rnn.tensors[index.embedding].rank;
    const auto amplitude = [&](std::size_t tensor) { return sigma * rnn.scales[tensor]; };
    const auto root = static_cast<float>(std::sqrt(static_cast<double>(std::max<std::int64_t>(view_.rank, 1))));
    const std::int64_t gates = rnn.cell.gates;
    const auto add_vector = [&](std::size_t tensor, std::int64_t pieces) {
        return add(tensor, 0, amplitude(tensor), Form::kSigns, Role::kOutput, pieces);
    };
    // Factor 2k runs over rows and 2k + 1 over columns; a matrix reads its columns, the embedding its rows.
    // What multiplies a byte state is bytes too; the embedding is picked, not multiplied.
    const auto add_matrix = [&](std::size_t tensor, bool reads_rows, std::int64_t pieces) {
        MatrixNoise noise{};
        const Form into = rnn.is_int8 && !reads_rows ? Form::kBits : Form::kSigns;
        for (std::int64_t k = 0; k < view_.rank; ++k) {
            noise.into[k] = add(tensor, reads_rows ? 2 * k : 2 * k + 1, 1.0f, into, Role::kInput, 1);
            noise.out[k] = add(tensor, reads_rows ? 2 * k + 1 : 2 * k, amplitude(tensor) / root, Form::kSigns,
                               Role::kOutput, pieces);
        }
        return noise;
    };
    view_.embedding = add_matrix(index.embedding, true, gates);
    for (std::int64_t layer = 0; layer < rnn.layers; ++layer) {
        if (layer > 0) view_.input[layer] = add_matrix(index.input[layer], false, gates);
        view_.recurrent[layer] = add_matrix(index.recurrent[layer], false, gates);
        view_.bias[layer] = add_vector(index.bias[layer], gates);
        if (rnn.cell.has_hidden_bias) view_.hidden_bias[layer] = add_vector(index.hidden_bias[layer], 1);
    }
    view_.head = add_matrix(index.head, false, 1);
    view_.head_bias = add_vector(index.head_bias, 1);
    initial_state_ = add_vector(index.initial_state, 1);
    // An odd number of cache lines: rows of one tile fall into different sets of the cache.
    view_.row_stride = round_up(view_.row_stride, 32) + 16;
}

void FactorRows::fill(float* row, std::uint32_t* words, const Key& key, const NoiseSource& source) const {
    const NoisePlanView plan = plan_.view();
    const RnnKernels& kernels = *isa_.rnn;
    isa_.replicated->sign_words(words, key, plan, source.member);
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
            if (entry.gates > 1) spread(values, factor.length / entry.gates, padded_gate(entry), entry.gates);
        }
    }
}

std::int64_t FactorRows::add(std::size_t tensor, std::int64_t factor, float amplitude, Form form, Role role,
                             std::int64_t gates) {
    const std::int64_t offset = view_.row_stride;
    const auto number = static_cast<std::int64_t>(tensor);
    entries_.push_back({number, factor, offset, amplitude, form, role, gates});
    view_.row_stride += form == Form::kBits ? round_up(plan_.view().factor(number, factor).length, kByteMultiple) / 4
                                            : round_up(gates * padded_gate(entries_.back()), kBlockMultiple);
    return offset;
}

std::int64_t FactorRows::padded_gate(const Entry& entry) const {
    return round_up(plan_.view().factor(entry.tensor, entry.factor).length / entry.gates, isa_.rnn->lanes);
}

}  // namespace fedlearn
