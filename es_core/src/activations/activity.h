// Activity perturbation: gradients from noise on activations instead of weights.
//
// Every member adds sigma times a sign to each unit's input of every token, independently. A perturbation is credited
// with the discounted loss from its token on, less its group's mean, so that the credited signs of a group estimate the
// gradient at the unperturbed network's activations. The gradient of a weight matrix is then the sum of outer products
// of these with the matrix's unperturbed inputs. Source: Ren et al., "Scaling Forward Gradient With Local Losses",
// arXiv 2210.03310, for feed-forward networks.
#pragma once

#include <cstdint>
#include <span>

#include "rnn/evaluate.h"

namespace fedlearn {

struct ActivationNoise {
    float sigma;               // of hidden units' inputs
    float logit_sigma;         // of the logits; 0: they are not perturbed, and the head's gradient has a closed form
    float discount;            // of a loss with each token that it comes later than the perturbation
    float correction;          // weight of what trials say beyond the control variates; 1 without any bias of theirs

    bool perturbs_logits() const { return logit_sigma > 0.0f; }
};

// A gradient as integers: partial sums of any groups, from anywhere, add up exactly.
constexpr double kEstimateUnit = 1 << 18;

// What memory grows with in place of the population.
constexpr std::int64_t kTracedGroups = 256;  // whose states are kept together
constexpr std::int64_t kItemGroups = 16;     // whose outer products are summed as floats, then rounded
constexpr std::int64_t kRunRows = 64;        // members side by side in one product: small groups share it

// losses [n_groups * group_size] <- mean nats per token of each member; estimate [n_parameters] <- kEstimateUnit times
// the sum over groups of each group's estimate of the gradient of the mean loss, in the tensors' relative scales.
// Groups with a loss that is not finite count zero. There are control variates where the tensor table has their matrices.
// Gives what they left of the variance of discounted losses about their group's mean, as a share of what it was: 1 without
// any, and where there was none.
double activation_gradient(std::span<float> losses, std::span<std::int32_t> estimate, const Rnn& rnn,
                         const Trials& trials, const ActivationNoise& noise, int n_threads);

// estimate [n_parameters] <- the head's part alone, from the residual of the unperturbed network's probabilities: exact
// but for rounding, and the same sum over groups; zero elsewhere.
void head_gradient(std::span<std::int32_t> estimate, const Rnn& rnn, const Trials& trials, int n_threads);

}  // namespace fedlearn
