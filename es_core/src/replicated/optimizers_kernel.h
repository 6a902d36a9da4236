// Steps of the weights: only + - * / and square root in a fixed order, and no contraction.
#pragma once

#include <cstdint>

#include "replicated/kernels.h"

namespace {

using fedlearn::AdamStep;
using fedlearn::SgdStep;

void adam(float* __restrict weights, float* __restrict first_moment, float* __restrict second_moment,
          const std::int32_t* __restrict estimate, std::int64_t n, const AdamStep& step) {
    const auto gradient_scale = static_cast<float>(step.gradient_scale);
    const auto learning_rate = static_cast<float>(step.learning_rate);
    const auto beta1 = static_cast<float>(step.beta1), one_minus_beta1 = static_cast<float>(1.0 - step.beta1);
    const auto beta2 = static_cast<float>(step.beta2), one_minus_beta2 = static_cast<float>(1.0 - step.beta2);
    const auto epsilon = static_cast<float>(step.epsilon);
    const auto correction1 = static_cast<float>(step.correction1), correction2 = static_cast<float>(step.correction2);
    const auto kept = static_cast<float>(1.0 - step.decay);  // a product with 1 changes no bit
    for (std::int64_t i = 0; i < n; ++i) {
        const float gradient = static_cast<float>(estimate[i]) * gradient_scale;
        const float m = beta1 * first_moment[i] + one_minus_beta1 * gradient;
        const float v = beta2 * second_moment[i] + one_minus_beta2 * (gradient * gradient);
        first_moment[i] = m;
        second_moment[i] = v;
        weights[i] = kept * weights[i] - learning_rate * (m * correction1) / (__builtin_sqrtf(v * correction2) + epsilon);
    }
}

void sgd(float* __restrict weights, float* __restrict momentum_buffer, const std::int32_t* __restrict estimate,
         std::int64_t n, const SgdStep& step) {
    const auto gradient_scale = static_cast<float>(step.gradient_scale);
    const auto learning_rate = static_cast<float>(step.learning_rate);
    const auto momentum = static_cast<float>(step.momentum);
    const auto kept = static_cast<float>(1.0 - step.decay);
    for (std::int64_t i = 0; i < n; ++i) {
        const float velocity = momentum * momentum_buffer[i] + static_cast<float>(estimate[i]) * gradient_scale;
        momentum_buffer[i] = velocity;
        weights[i] = kept * weights[i] - learning_rate * velocity;
    }
}

void pull_towards(float* weights, const float* start, std::int64_t n, double share) {
    const auto kept = static_cast<float>(1.0 - share), taken = static_cast<float>(share);
    for (std::int64_t i = 0; i < n; ++i) weights[i] = kept * weights[i] + taken * start[i];
}

}  // namespace
