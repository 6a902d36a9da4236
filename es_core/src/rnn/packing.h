// What the kernels read: weights packed into panels, and each member's noise as rows of factors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory.h"
#include "rnn/evaluate.h"

namespace fedlearn {

// Bias of a padding column of the head: its exponential is zero beside any real logit.
inline constexpr float kNeverCounts = -1e30f;

// Indices into the tensor table, in the order that Rnn documents.
struct TensorIndex {
    std::size_t embedding = 0;
    std::size_t input[kMaxLayers] = {};
    std::size_t recurrent[kMaxLayers] = {};
    std::size_t bias[kMaxLayers] = {};
    std::size_t hidden_bias[kMaxLayers] = {};
    std::size_t head, head_bias, initial_state;

    explicit TensorIndex(const Rnn& rnn) {
        std::size_t next = 1;
        for (std::int64_t layer = 0; layer < rnn.layers; ++layer) {
            if (layer > 0) input[layer] = next++;
            recurrent[layer] = next++;
            bias[layer] = next++;
            if (rnn.cell.has_hidden_bias) hidden_bias[layer] = next++;
        }
        head = next++;
        head_bias = next++;
        initial_state = next;
    }
};

// The weights, packed for the kernel, with the memory they live in.
class PackedWeights {
public:
    // `weights` [n_parameters] may be another vector than the network's own, e.g. a perturbed copy.
    PackedWeights(const Rnn& rnn, const float* weights, bool is_int8);

    const PackedRnn& view() const { return view_; }
    const RnnKernels& kernels() const { return kernels_; }
    const float* initial_state() const { return initial_state_; }  // [state vectors][H]

private:
    float* take(std::int64_t n) { return memory_.emplace_back(allocate<float>(n)).get(); }
    float* pad_rows(const float* rows, std::int64_t n_rows, std::int64_t length);
    PackedMatrix pack_layer(const float* matrix, float* start, float scale);
    PackedMatrix pack_matrix(const float* matrix, std::int64_t outputs, std::int64_t inputs, float* start, float scale);

    const RnnKernels& kernels_;
    PackedRnn view_;
    const float* initial_state_;
    std::vector<FloatBuffer> memory_;
};

// Positions of a member's factors in its row of floats, which is filled from the noise words.
class FactorRows {
public:
    FactorRows(const Rnn& rnn, float sigma);

    const RnnNoise& view() const { return view_; }
    std::int64_t initial_state() const { return initial_state_; }
    std::int64_t n_words() const { return plan_.view().n_words(); }

    // row [row_stride] <- the factors of one member; words [n_words] is scratch memory.
    void fill(float* row, std::uint32_t* words, const Key& key, const NoiseSource& source) const;

private:
    enum class Form { kSigns, kBits };
    // What the factor does: multiplies what goes into a matrix, or is added to what comes out. Negated noise negates
    // only what is added.
    enum class Role { kInput, kOutput };

    struct Entry {
        std::int64_t tensor;
        std::int64_t factor;
        std::int64_t offset;
        float amplitude;
        Form form;
        Role role;
        std::int64_t gates;  // pieces that each begin at a whole vector
    };

    std::int64_t add(std::size_t tensor, std::int64_t factor, float amplitude, Form form, Role role,
                     std::int64_t gates);
    std::int64_t padded_gate(const Entry& entry) const;

    const Isa& isa_;
    NoisePlan plan_;
    RnnNoise view_;
    std::int64_t initial_state_ = 0;
    std::vector<Entry> entries_;
};

}  // namespace fedlearn
