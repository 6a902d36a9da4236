// The naive twin: one perturbed copy of the weights a member, and plain loops.
#include <algorithm>
#include <cmath>
#include <vector>

#include "rnn/evaluate.h"
#include "rnn/packing.h"

namespace fedlearn {

namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// One unit's state vectors, from before a token to after it, by what each gate sums of what is read and of the state.
void advance(double* state, const Cell& cell, const double* inputs, const double* recurrent) {
    switch (cell.kind) {
        case CellKind::kTanh: state[0] = std::tanh(inputs[0] + recurrent[0]); break;
        case CellKind::kGru: {
            const double reset = sigmoid(inputs[0] + recurrent[0]), update = sigmoid(inputs[1] + recurrent[1]);
            const double fresh = std::tanh(inputs[2] + reset * recurrent[2]);
            state[0] = (1.0 - update) * fresh + update * state[0];
            break;
        }
        case CellKind::kLstm: {
            const double input = sigmoid(inputs[0] + recurrent[0]), forget = sigmoid(inputs[1] + recurrent[1]);
            const double fresh = std::tanh(inputs[2] + recurrent[2]), output = sigmoid(inputs[3] + recurrent[3]);
            state[1] = forget * state[1] + input * fresh;
            state[0] = output * std::tanh(state[1]);
            break;
        }
    }
}

}  // namespace

void perturb(std::vector<float>& perturbed, const Rnn& rnn, const Trials& trials, std::uint64_t member) {
    const NoiseSource source = noise_source(member, trials.is_antithetic);
    for (std::size_t t = 0; t < rnn.tensors.size(); ++t) {
        const Tensor& tensor = rnn.tensors[t];
        const std::int64_t n = tensor.rows * tensor.columns;
        std::vector<float> noise(static_cast<std::size_t>(n), 0.0f);
        const auto signs_of = [&](std::int64_t factor, std::int64_t length) {
            std::vector<std::int8_t> values(static_cast<std::size_t>(length));
            fill_signs(values, trials.key, source.member, static_cast<std::uint32_t>(t), static_cast<std::uint32_t>(factor), 0);
            return values;
        };
        if (tensor.rank == 0) {
            std::ranges::copy(signs_of(0, n), noise.begin());
        }
        for (std::int64_t k = 0; k < tensor.rank; ++k) {
            const auto a = signs_of(2 * k, tensor.rows), b = signs_of(2 * k + 1, tensor.columns);
            for (std::size_t i = 0; i < noise.size(); ++i)
                noise[i] += static_cast<float>(a[i / b.size()] * b[i % b.size()]);
        }
        const auto root = static_cast<float>(std::sqrt(static_cast<double>(std::max<std::int64_t>(tensor.rank, 1))));
        const float amplitude = (source.is_negated ? -trials.sigma : trials.sigma) * rnn.scales[t] / root;
        for (std::size_t i = 0; i < noise.size(); ++i) {
            const std::size_t at = static_cast<std::size_t>(tensor.offset) + i;
            perturbed[at] = rnn.weights[at] + amplitude * noise[i];
        }
    }
}

void member_losses_naive(std::span<float> losses, const Rnn& rnn, const Trials& trials) {
    const TensorIndex index(rnn);
    const auto hidden = static_cast<std::size_t>(rnn.hidden), vocab = static_cast<std::size_t>(rnn.vocab);
    const auto gates = static_cast<std::size_t>(rnn.cell.gates), layers = static_cast<std::size_t>(rnn.layers);
    const auto state_vectors = static_cast<std::size_t>(rnn.cell.state_vectors), n_rows = gates * hidden;
    std::vector<double> state(state_vectors * layers * hidden);
    // Reads one token with the given weights and gives the logits.
    const auto read = [&](const float* weights, std::uint16_t token) {
        if (token == rnn.reset_token) std::ranges::fill(state, 0.0);
        const auto at = [&](std::size_t tensor) { return weights + rnn.tensors[tensor].offset; };
        std::vector<double> below(hidden);
        for (std::size_t layer = 0; layer < layers; ++layer) {
            const std::vector<double> before = state;
            const double* h = before.data() + layer * hidden;
            // What token or layer below and the state before add to a row of the matrices.
            const auto inputs = [&](std::size_t row) {
                double sum = static_cast<double>(at(index.bias[layer])[row]);
                if (layer == 0) return sum + static_cast<double>(at(index.embedding)[token * n_rows + row]);
                for (std::size_t j = 0; j < hidden; ++j)
                    sum += static_cast<double>(at(index.input[layer])[row * hidden + j]) * below[j];
                return sum;
            };
            const auto recurrent = [&](std::size_t row) {
                double sum = 0.0;
                for (std::size_t j = 0; j < hidden; ++j)
                    sum += static_cast<double>(at(index.recurrent[layer])[row * hidden + j]) * h[j];
                return sum;
            };
            for (std::size_t i = 0; i < hidden; ++i) {
                std::vector<double> of_inputs(gates), of_state(gates), unit(state_vectors);
                for (std::size_t gate = 0; gate < gates; ++gate) {
                    of_inputs[gate] = inputs(gate * hidden + i);
                    of_state[gate] = recurrent(gate * hidden + i);
                }
                if (rnn.cell.has_hidden_bias) of_state.back() += static_cast<double>(at(index.hidden_bias[layer])[i]);
                for (std::size_t v = 0; v < state_vectors; ++v) unit[v] = before[(v * layers + layer) * hidden + i];
                advance(unit.data(), rnn.cell, of_inputs.data(), of_state.data());
                for (std::size_t v = 0; v < state_vectors; ++v) state[(v * layers + layer) * hidden + i] = unit[v];
            }
            below.assign(state.data() + layer * hidden, state.data() + (layer + 1) * hidden);
        }
        std::vector<double> logits(vocab);
        for (std::size_t v = 0; v < vocab; ++v) {
            logits[v] = static_cast<double>(at(index.head_bias)[v]);
            for (std::size_t j = 0; j < hidden; ++j)
                logits[v] += static_cast<double>(at(index.head)[v * hidden + j]) * below[j];
        }
        return logits;
    };
    const auto begin = [&](const float* weights) {
        const float* initial = weights + rnn.tensors[index.initial_state].offset;
        std::copy_n(initial, state.size(), state.begin());
    };
    std::vector<float> perturbed(rnn.weights.size());
    for (std::size_t i = 0; i < losses.size(); ++i) {
        const auto group = static_cast<std::int64_t>(i) / trials.group_size;
        perturb(perturbed, rnn, trials, trials.first_member + i);
        double loss = 0.0;
        for (std::int64_t sequence = 0; sequence < trials.batch_size; ++sequence) {
            const std::uint16_t* text = trials.tokens + (group * trials.batch_size + sequence) *
                                                            (trials.context + trials.scored + 1);
            begin(trials.is_cold[group] != 0 ? perturbed.data() : rnn.weights.data());
            for (std::int64_t t = 0; t < trials.context && trials.is_cold[group] == 0; ++t)
                read(rnn.weights.data(), text[t]);
            for (std::int64_t t = trials.context; t < trials.context + trials.scored; ++t) {
                const std::vector<double> logits = read(perturbed.data(), text[t]);
                const double greatest = std::ranges::max(logits);
                double sum = 0.0;
                for (const double logit : logits) sum += std::exp(logit - greatest);
                loss += greatest + std::log(sum) - logits[text[t + 1]];
            }
        }
        losses[i] = static_cast<float>(loss);
    }
    const auto n_scored = static_cast<float>(trials.batch_size * trials.scored);
    for (float& loss : losses) loss /= n_scored;
}

}  // namespace fedlearn
