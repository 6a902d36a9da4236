// Steps of the weights: everybody takes them, with the same bits.
#pragma once

#include <cstdint>

#include "replicated/kernels.h"

namespace fedlearn {

// Optimizer steps over n parameters, under a guard that sets round-to-nearest and keeps subnormal numbers.
void adam_step(float* weights, float* first_moment, float* second_moment, const std::int32_t* estimate, std::int64_t n,
               const AdamStep& step, const ReplicatedKernels& kernels);
void sgd_step(float* weights, float* momentum_buffer, const std::int32_t* estimate, std::int64_t n,
              const SgdStep& step, const ReplicatedKernels& kernels);

// Weight decay towards `start` [n], under the same guard: weights [n] <- (1 - share) * weights + share * start.
void pull_towards(float* weights, const float* start, std::int64_t n, double share,
                  const ReplicatedKernels& kernels);

}  // namespace fedlearn
