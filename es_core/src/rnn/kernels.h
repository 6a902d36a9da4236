// What is compiled once per instruction set to run the RNN. Reported: computed by one machine and sent, so the last
// digits may differ between machines.
#pragma once

#include <cstddef>
#include <cstdint>

#include "replicated/noise.h"
#include "rnn/cells.h"

namespace fedlearn {

constexpr std::int64_t kByteMultiple = 64;  // rows of bytes are padded to the widest vector

// One layer's or the head's matrix, packed into panels of tile width: panel, input, column of the panel; in int8 panel,
// four inputs, column of the panel, input.
struct PackedMatrix {
    const float* panels;
    const std::int8_t* bytes;
    float scale;           // of the bytes, times the state's: turns a sum of byte products into a float
    std::int64_t outputs;  // padded to the vector width; of each gate
    std::int64_t inputs;
};

constexpr int kMaxLayers = 16;
constexpr std::int64_t kMaxSize = 65536;  // of the vocabulary and of a layer

// Weights of the RNN, packed for the kernel. V vocabulary, H hidden units. The last `tail` columns of the head, too few
// for a vector of their own, are dot products; the others are padded to whole vectors.
struct PackedRnn {
    Cell cell;
    std::int64_t vocab, hidden, layers, tail;
    std::int64_t state_vectors;          // of a row: the first ones of all layers, then their second ones
    std::int64_t padded_columns, padded_hidden;
    bool is_int8;
    std::int64_t reset_token;            // a row that reads it does so from states of zero; -1: there is none
    const float* embedding;              // [V][gates][padded H], bias of layer 0 added
    PackedMatrix input[kMaxLayers];      // layers above the first
    PackedMatrix recurrent[kMaxLayers];
    const float* bias[kMaxLayers];       // [gates][padded H]; unused for layer 0
    const float* hidden_bias[kMaxLayers];  // [padded H] only of cells that have it
    PackedMatrix head;
    const float* head_bias;              // [padded columns + tail]; padding so low that it never counts
    const float* head_tail;              // [tail][padded H]
};

// Offsets, in floats, of a row's noise factors within its factor row: `sigma * scale / sqrt(rank)` is folded into the
// output side. `into` multiplies what goes in (a dot product), `out` is added to what comes out.
struct MatrixNoise {
    std::int64_t into[kMaxRank];
    std::int64_t out[kMaxRank];
};

struct RnnNoise {
    std::int64_t rank;
    std::int64_t row_stride;           // floats a factor row
    MatrixNoise embedding;             // into: one sign a token
    MatrixNoise input[kMaxLayers];
    MatrixNoise recurrent[kMaxLayers];
    std::int64_t bias[kMaxLayers];         // out of a layer, as what the matrices add: [gates][padded H]
    std::int64_t hidden_bias[kMaxLayers];
    MatrixNoise head;
    std::int64_t head_bias;
};

// Noise on activations: signs of every row for each layer and token, straight from the row's noise words. Token t of a
// layer has the signs from `(first_token + t) * pitch` on.
struct SignRows {
    const std::uint32_t* words;        // [n_rows][4 * n_blocks]
    std::int64_t n_blocks;
    std::int64_t first_token;          // of these rows among the tokens that a member's noise covers
    std::int64_t hidden_block[kMaxLayers];
    std::int64_t hidden_pitch;
    float hidden_amplitude;
    std::int64_t logit_block;
    std::int64_t logit_pitch;
    float logit_amplitude;             // 0: the logits are not perturbed
};

// Dot products of each row's states before every token with vectors of its text, summed over layers.
struct StateProducts {
    const float* const* vectors;       // [n_rows] of the row's first token and layer, [padded H]
    std::int64_t token_stride, layer_stride;
    float* sums;                       // [n_tokens][n_rows]
};

// Rows that run through the network side by side: members on one text, or unperturbed weights on many texts.
struct RnnRows {
    std::int64_t n_rows;
    std::int64_t n_tokens;             // tokens to read
    const std::uint16_t* tokens;       // row i reads tokens[i * token_stride + t]; targets come one later
    std::int64_t token_stride;         // 0: all rows read the same text
    float* state;                      // [state vectors][n_rows][padded H], in, and with float weights out
    const RnnNoise* noise;             // nullptr: unperturbed
    const float* factors;              // [n_rows][noise->row_stride]
    const SignRows* signs;             // nullptr: activations are not perturbed
    float* losses;                     // [n_rows] summed nats, added to; nullptr: not wanted
    float* token_losses;               // [n_tokens][n_rows] nats; nullptr: not wanted
    float* log_probabilities;          // [n_rows][V] after the last token; nullptr: not wanted
    const StateProducts* products;     // nullptr: not wanted
};

struct RnnKernels {
    std::int64_t lanes;                // floats a vector
    std::int64_t (*tail_of)(std::int64_t vocab);
    // Packs matrix [outputs][inputs] into `panels` [round_up(outputs, lanes) * inputs].
    void (*pack)(float* panels, const float* matrix, std::int64_t outputs, std::int64_t inputs);
    // The same for a cell with gates, matrix [gates * outputs][inputs], as many times as large.
    void (*pack_gates)(float* panels, const float* matrix, std::int64_t gates, std::int64_t outputs,
                       std::int64_t inputs);
    // A matrix without gates in bytes, [round_up(outputs, lanes) * round_up(inputs, 4)]; adds to start [outputs] what
    // takes back the offset of the states' bytes.
    void (*pack_bytes)(std::int8_t* panels, float* start, const float* matrix, std::int64_t outputs,
                       std::int64_t inputs, float scale);
    // values [n rounded up to lanes] <- amplitude * sign, n signs of a factor of a member's words; the first is a
    // multiple of the lanes.
    void (*expand_signs)(float* values, const std::uint32_t* words, std::int64_t n_blocks, std::int64_t first_block,
                         std::int64_t first_sign, std::int64_t n, float amplitude);
    // bytes [n rounded up to kByteMultiple] <- 0 for the sign +1, 1 for -1.
    void (*expand_bits)(std::uint8_t* bytes, const std::uint32_t* words, std::int64_t n_blocks,
                        std::int64_t first_block, std::int64_t n);
    std::int64_t (*scratch_bytes)(const PackedRnn& rnn, std::int64_t n_rows);
    void (*run)(const PackedRnn& rnn, const RnnRows& rows, std::byte* scratch);
};

}  // namespace fedlearn
