// The functions that are compiled once per instruction set, as tables that dispatch.cpp chooses from.
#pragma once

#include <cstdint>

#include "noise.h"

namespace fedlearn {

// In double as they come: the kernels round them to float, so that this too happens under the update's guard.
struct AdamStep {
    double gradient_scale;  // integer estimate -> gradient
    double learning_rate;   // already multiplied by the tensor's relative scale
    double beta1, beta2;
    double epsilon;
    double correction1, correction2;  // 1 / (1 - beta^t)
    double decay = 0.0;               // share of the weights that is taken away before the step
};

struct SgdStep {
    double gradient_scale;
    double learning_rate;
    double momentum;
    double decay = 0.0;
};

// Members whose noise is regenerated together, so that one pass over a tile of the estimate serves them all.
struct MemberChunk {
    const std::uint64_t* members;            // [size]
    const std::int8_t* utilities;            // [size]
    const std::uint8_t* const* row_masks;    // [size] row mask of each member's group; nullptr without masks
    std::int64_t size;                       // a multiple of 4; padding has utility 0
};

constexpr std::int64_t kChunkMembers = 256;

// Replicated: the same bits on every machine.
struct ReplicatedKernels {
    // words [plan.n_words()] <- the random words of one member.
    void (*sign_words)(std::uint32_t* words, const Key& key, const NoisePlanView& plan, std::uint64_t member);
    // Bytes of scratch memory that accumulate_gradient needs.
    std::int64_t (*gradient_scratch_bytes)(const NoisePlanView& plan, const Tensor* tensors, std::int64_t n_tensors);
    // estimate [n_parameters] += sum over the chunk of utility * perturbation.
    void (*accumulate_gradient)(std::int32_t* estimate, const Key& key, const NoisePlanView& plan, const Tensor* tensors,
                                std::int64_t n_tensors, const MemberChunk& chunk, std::byte* scratch);
    void (*adam)(float* weights, float* first_moment, float* second_moment, const std::int32_t* estimate,
                 std::int64_t n, const AdamStep& step);
    void (*sgd)(float* weights, float* momentum_buffer, const std::int32_t* estimate, std::int64_t n,
                const SgdStep& step);
};

constexpr std::int64_t kByteMultiple = 64;  // rows of bytes are padded to the widest vector

// One layer's or the head's matrix, packed into panels of tile width: panel, input, column of the panel; in int8 panel,
// four inputs, column of the panel, input.
struct PackedMatrix {
    const float* panels;
    const std::int8_t* bytes;
    float scale;           // of the bytes, times the state's: turns a sum of byte products into a float
    std::int64_t outputs;  // padded to the vector width
    std::int64_t inputs;
};

constexpr int kMaxLayers = 16;

// Weights of the RNN, packed for the kernel. V vocabulary, H hidden units. The last `tail` columns of the head, too few
// for a vector of their own, are dot products; the others are padded to whole vectors.
struct PackedRnn {
    std::int64_t vocab, hidden, layers, tail;
    std::int64_t padded_columns, padded_hidden;
    bool is_int8;
    const float* embedding;              // [V][padded H], bias of layer 0 added
    PackedMatrix input[kMaxLayers];      // layers above the first
    PackedMatrix recurrent[kMaxLayers];
    const float* bias[kMaxLayers];       // [padded H]; unused for layer 0
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
    std::int64_t bias[kMaxLayers];
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

// Rows that run through the network side by side: members on one text, or unperturbed weights on many texts.
struct RnnRows {
    std::int64_t n_rows;
    std::int64_t n_tokens;             // tokens to read
    const std::uint16_t* tokens;       // row i reads tokens[i * token_stride + t]; targets come one later
    std::int64_t token_stride;         // 0: all rows read the same text
    float* state;                      // [layers][n_rows][padded H], in, and with float weights out
    const RnnNoise* noise;             // nullptr: unperturbed
    const float* factors;              // [n_rows][noise->row_stride]
    const SignRows* signs;             // nullptr: activations are not perturbed
    float* losses;                     // [n_rows] summed nats, added to; nullptr: not wanted
    float* token_losses;               // [n_tokens][n_rows] nats; nullptr: not wanted
    float* log_probabilities;          // [n_rows][V] after the last token; nullptr: not wanted
};

// The left factors of outer products: value i of a row stands at row * row_stride + i * column_stride.
struct LeftRows {
    const float* values;
    std::int64_t row_stride;
    std::int64_t column_stride;

    [[gnu::always_inline]] float at(std::int64_t row, std::int64_t i) const {
        return values[row * row_stride + i * column_stride];
    }
};

// Reported: computed by one machine and sent, so the last digits may differ between machines.
struct ReportedKernels {
    std::int64_t lanes;                // floats a vector
    std::int64_t (*tail_of)(std::int64_t vocab);
    // Packs matrix [outputs][inputs] into `panels` [round_up(outputs, lanes) * inputs].
    void (*pack)(float* panels, const float* matrix, std::int64_t outputs, std::int64_t inputs);
    // The same in bytes, [round_up(outputs, lanes) * round_up(inputs, 4)]; adds to start [outputs] what takes back the
    // offset of the states' bytes.
    void (*pack_bytes)(std::int8_t* panels, float* start, const float* matrix, std::int64_t outputs,
                       std::int64_t inputs, float scale);
    // values [n rounded up to lanes] <- amplitude * sign, n signs of a factor of a member's words; the first is a
    // multiple of the lanes.
    void (*expand_signs)(float* values, const std::uint32_t* words, std::int64_t n_blocks, std::int64_t first_block,
                         std::int64_t first_sign, std::int64_t n, float amplitude);
    // bytes [n rounded up to kByteMultiple] <- 0 for the sign +1, 1 for -1.
    void (*expand_bits)(std::uint8_t* bytes, const std::uint32_t* words, std::int64_t n_blocks,
                        std::int64_t first_block, std::int64_t n);
    // sums [n rounded up to lanes] <- sum over rows of coefficients[row] * sign, n signs of a factor from first_sign on.
    void (*sum_signs)(float* sums, const float* coefficients, const SignRows& signs, std::int64_t n_rows,
                      std::int64_t first_block, std::int64_t first_sign, std::int64_t n);
    // results [n_rows] += dot product of values [n rounded up to lanes, zero beyond n] with each row's signs.
    void (*add_sign_dots)(float* results, const float* values, const SignRows& signs, std::int64_t n_rows,
                          std::int64_t first_block, std::int64_t first_sign, std::int64_t n);
    // sums [n_left][sums_stride] += sum over rows of the outer product of left [n_left] and right [sums_stride], which
    // is a multiple of the lanes.
    void (*add_outer)(float* sums, std::int64_t sums_stride, const LeftRows& left, std::int64_t n_left,
                      const float* right, std::int64_t right_stride, std::int64_t n_rows);
    // totals [n] += factor * sums [n rounded up to lanes], to the nearest integer of 32 bits; what is no number counts 0.
    void (*add_rounded)(std::int64_t* totals, const float* sums, float factor, std::int64_t n);
    std::int64_t (*rnn_scratch_bytes)(const PackedRnn& rnn, std::int64_t n_rows);
    void (*rnn_run)(const PackedRnn& rnn, const RnnRows& rows, std::byte* scratch);
};

struct Isa {
    const char* name;
    bool (*is_supported)();
    const ReplicatedKernels* replicated;
    const ReportedKernels* reported;
};

// Instruction sets compiled into this build, best first.
std::span<const Isa> compiled_isas();

// The instruction set in use: the best that this processor has, or the one chosen by FEDLEARN_ISA or select_isa.
const Isa& current_isa();

// Raises std::invalid_argument with the supported names when `name` is not one of them.
void select_isa(const char* name);

}  // namespace fedlearn
