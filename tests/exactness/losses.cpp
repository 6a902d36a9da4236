// Prints the losses of an RNN's members by the kernels of one instruction set: losses base|dots
//
// Lines `float32`, `int8` and `naive`, each with a number a member. `dots` is the smallest set that has dot products of
// bytes; it is taken whether this processor says that it has it or not, for an emulated instruction may stand in for one.
#include <cstdio>
#include <string_view>
#include <vector>

#include "isa.h"
#include "replicated/kernels.h"
#include "rnn/evaluate.h"

#if defined(__x86_64__)
#define FEDLEARN_DOTS(table) table##_v3_vnni
#else
#define FEDLEARN_DOTS(table) table##_dot
#endif

namespace fedlearn {
extern const ReplicatedKernels replicated_base, FEDLEARN_DOTS(replicated);
extern const RnnKernels rnn_base, FEDLEARN_DOTS(rnn);
}  // namespace fedlearn

namespace {

using namespace fedlearn;

constexpr std::int64_t kVocab = 67, kHidden = 45, kLayers = 2, kRank = 2, kMembers = 16, kContext = 5, kScored = 12;

std::vector<Tensor> table() {
    std::vector<Tensor> tensors;
    std::int64_t offset = 0;
    const auto add = [&](std::int64_t rows, std::int64_t columns, std::int64_t rank) {
        tensors.push_back({offset, rows, columns, rank, -1, std::ssize(tensors)});
        offset += rows * columns;
    };
    add(kVocab, kHidden, kRank);
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
        if (layer > 0) add(kHidden, kHidden, kRank);
        add(kHidden, kHidden, kRank);
        add(1, kHidden, 0);
    }
    add(kVocab, kHidden, kRank);
    add(1, kVocab, 0);
    add(1, kLayers * kHidden, 0);
    return tensors;
}

void print(const char* name, const std::vector<float>& losses) {
    std::printf("%s:", name);
    for (const float loss : losses) std::printf(" %.7f", static_cast<double>(loss));
    std::printf("\n");
}

}  // namespace

int main(int count, char** arguments) {
    const bool has_dots = count == 2 && std::string_view(arguments[1]) == "dots";
    const Isa isa{"", nullptr, has_dots ? &FEDLEARN_DOTS(replicated) : &replicated_base,
                  has_dots ? &FEDLEARN_DOTS(rnn) : &rnn_base, nullptr};

    const std::vector<Tensor> tensors = table();
    const std::vector<float> scales(tensors.size(), 1.0f);
    std::vector<std::uint32_t> words(static_cast<std::size_t>(tensors.back().offset + tensors.back().columns));
    fill_random_words(words, make_key(1, 2, Domain::kWindows), 0);
    std::vector<float> weights;  // between -0.4 and 0.4: units are neither linear nor saturated
    for (const std::uint32_t word : words) weights.push_back(static_cast<float>(word >> 8) * 0x1p-24f * 0.8f - 0.4f);
    std::vector<std::uint16_t> tokens(2 * (kContext + kScored + 1));
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint16_t>(words[i] % kVocab);
    const std::vector<std::uint8_t> is_cold{0, 1};

    Rnn rnn{kTanh, kVocab, kHidden, kLayers, tensors, scales, weights, false, &isa};
    const Trials trials{make_key(3, 4, Domain::kNoise), 0, kMembers / 2, 2, 1, kContext, kScored, tokens.data(),
                        is_cold.data(), 0.02f, false};
    std::vector<float> losses(kMembers);
    member_losses(losses, rnn, trials, 1);
    print("float32", losses);
    rnn.is_int8 = true;
    member_losses(losses, rnn, trials, 1);
    print("int8", losses);
    member_losses_naive(losses, rnn, trials);
    print("naive", losses);
}
