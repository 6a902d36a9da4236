// Muon's steps of whole matrices: everybody takes them, with the same bits.
#pragma once

#include <cstdint>

#include "replicated/kernels.h"

namespace fedlearn {

// The longest side of a matrix, so that sums of its products stay below 2^31.
constexpr std::int64_t kMaxMuonSide = std::int64_t{1} << 17;

struct Matrices {
    std::int64_t number;  // one behind the other
    std::int64_t rows, columns;
};

// weights, momentum, estimate [number][rows][columns]: each matrix steps along the nearest orthogonal one of its momentum;
// large matrices are shared by rows between at most n_threads threads, 0: as many as there are processors.
void muon_step(float* weights, float* momentum, const std::int32_t* estimate, const Matrices& matrices,
               const MuonStep& step, const ReplicatedKernels& kernels, int n_threads);

}  // namespace fedlearn
