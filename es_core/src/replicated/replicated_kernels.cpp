// The replicated kernels of one instruction set, with one result on all of them: noise, estimate and its rounding are
// integers, and the optimizers are compiled without contraction (-ffp-contract=off).
#include "replicated/coding_kernel.h"
#include "replicated/dropout_kernel.h"
#include "replicated/estimate_kernel.h"
#include "replicated/member_signs_kernel.h"
#include "replicated/muon_kernel.h"
#include "replicated/optimizers_kernel.h"
#include "replicated/sign_words_kernel.h"

#define FEDLEARN_JOIN_(a, b) a##b
#define FEDLEARN_JOIN(a, b) FEDLEARN_JOIN_(a, b)

namespace fedlearn {
extern const ReplicatedKernels FEDLEARN_JOIN(replicated_, FEDLEARN_ISA);
const ReplicatedKernels FEDLEARN_JOIN(replicated_, FEDLEARN_ISA) = {
    sign_words, member_signs, dropout_mask, gradient_scratch_bytes, accumulate_gradient,
    adam, sgd, kMuonKernels, pull_towards, greatest_magnitude, round_row, round_row_randomly,
    pack_row};
}  // namespace fedlearn
