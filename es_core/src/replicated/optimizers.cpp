#include "replicated/optimizers.h"

#include "replicated/float_guard.h"

namespace fedlearn {

void adam_step(float* weights, float* first_moment, float* second_moment, const std::int32_t* estimate, std::int64_t n,
               const AdamStep& step, const ReplicatedKernels& kernels) {
    const FloatGuard guard;
    kernels.adam(weights, first_moment, second_moment, estimate, n, step);
}

void sgd_step(float* weights, float* momentum_buffer, const std::int32_t* estimate, std::int64_t n,
              const SgdStep& step, const ReplicatedKernels& kernels) {
    const FloatGuard guard;
    kernels.sgd(weights, momentum_buffer, estimate, n, step);
}

void pull_towards(float* weights, const float* start, std::int64_t n, double share,
                  const ReplicatedKernels& kernels) {
    const FloatGuard guard;
    kernels.pull_towards(weights, start, n, share);
}

}  // namespace fedlearn
