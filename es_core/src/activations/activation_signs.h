// Positions of the signs of a member's activations among its noise.
#pragma once

#include <cstdint>

#include "replicated/noise.h"
#include "rnn/evaluate.h"

namespace fedlearn {

// Tensors of rank 0: one a layer, then the logits, then the initial state. A token's signs begin at a whole noise word.
class ActivationSigns {
public:
    // Amplitudes are those of the noise on hidden units' inputs and on logits; 0 leaves the logits without signs.
    ActivationSigns(const Rnn& rnn, const Trials& trials, float hidden_amplitude, float logit_amplitude);

    NoisePlanView plan() const { return plan_.view(); }
    std::int64_t n_words() const { return plan_.view().n_words(); }
    std::int64_t initial_block() const { return initial_block_; }
    std::int64_t initial_sign(std::int64_t layer) const { return layer * rows_.hidden_pitch; }

    // The signs of rows whose words stand at `words`, from the first token of a sequence on.
    SignRows rows(const std::uint32_t* words, std::int64_t first_token) const;

private:
    NoisePlan plan_;
    std::int64_t initial_block_ = 0;
    SignRows rows_{};
};

}  // namespace fedlearn
