// The kernels of one instruction set for gradients from noise on activations.
#include "activations/outer.h"
#include "activations/sign_sums.h"

#define FEDLEARN_JOIN_(a, b) a##b
#define FEDLEARN_JOIN(a, b) FEDLEARN_JOIN_(a, b)

namespace fedlearn {
extern const ActivationKernels FEDLEARN_JOIN(activations_, FEDLEARN_ISA);
const ActivationKernels FEDLEARN_JOIN(activations_, FEDLEARN_ISA) = {sum_signs, add_sign_dots, add_rows, add_outer,
                                                                           add_rounded};
}  // namespace fedlearn
