// The reported half of a step, over threads: losses of members on the text of their groups.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "isa.h"
#include "memory.h"
#include "rnn/kernels.h"

namespace fedlearn {

// An RNN over the flat weight vector. With n gates and s state vectors of its cell, the tensors are in this order:
// embedding [V,nH]; for each layer [input weights [nH,H], above the first], recurrent weights [nH,H], bias [1,nH] and, of
// cells that have it, the hidden bias [1,H]; head weights [V,H]; head bias [1,V]; initial state [1,s*layers*H], the first
// vectors of all layers before the second ones.
struct Rnn {
    Cell cell;
    std::int64_t vocab;
    std::int64_t hidden;
    std::int64_t layers;
    std::span<const Tensor> tensors;
    std::span<const float> scales;   // relative scale of each tensor's noise
    std::span<const float> weights;  // [n_parameters]
    bool is_int8;                    // evaluate low-rank members in int8
    const Isa* isa;                  // whose kernels run it
    std::int64_t reset_token;        // whoever reads it does so from a state of zeros; -1: there is none
};

inline std::int64_t state_vectors_of(const Rnn& rnn) { return rnn.cell.state_vectors * rnn.layers; }

struct Trials {
    Key key;
    std::uint64_t first_member;
    std::int64_t group_size;
    std::int64_t n_groups;
    std::int64_t batch_size;         // sequences a group is evaluated on
    std::int64_t context;            // tokens that only warm up the state
    std::int64_t scored;             // tokens that are predicted
    const std::uint16_t* tokens;     // [n_groups][batch_size][context + scored + 1]
    const std::uint8_t* is_cold;     // [n_groups] 1: starts at the initial state, without context
    float sigma;
    bool is_antithetic;              // members 2k and 2k + 1 have opposite noise
};

class PackedWeights;

// Groups that are warmed up and evaluated together: memory grows with a block, not with the population.
constexpr std::int64_t kBlockGroups = 512;

constexpr std::int64_t kContextRows = 48;  // the most that context_rows gives

// Texts that one call of the kernel reads side by side: as many as fill its tiles, but fewer where threads would be left
// without any. What is read of a text does not depend on its neighbours.
std::int64_t context_rows(std::int64_t n_texts, int n_threads);

// The state after each text's context under unperturbed weights, [texts][state vectors][padded H]; texts are the groups'
// sequences, one after the other. Cold groups get the initial state.
FloatBuffer warm_up(const PackedWeights& packed, const Trials& trials, int n_threads);

// losses [n_groups * group_size] <- mean nats per token of each member.
void member_losses(std::span<float> losses, const Rnn& rnn, const Trials& trials, int n_threads);

// perturbed [n_parameters] <- weights + sigma * noise of one member, one element after the other.
void perturb(std::vector<float>& perturbed, const Rnn& rnn, const Trials& trials, std::uint64_t member);

// The same with one perturbed copy of the weights a member and plain loops: what the fast path must agree with.
void member_losses_naive(std::span<float> losses, const Rnn& rnn, const Trials& trials);

// losses [n_rows] <- summed nats of unperturbed weights on each row of tokens [n_rows][n_tokens + 1], and, where
// log_probabilities is given, [n_rows][V] of what follows each row's last read token.
// state [n_rows][state vectors][H] is carried in and out.
void text_losses(float* losses, float* log_probabilities, float* state, const Rnn& rnn, const std::uint16_t* tokens,
                 std::int64_t token_stride, std::int64_t n_rows, std::int64_t n_tokens, int n_threads);

}  // namespace fedlearn
