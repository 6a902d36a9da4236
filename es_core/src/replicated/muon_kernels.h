// What Muon's steps are made of, compiled once per instruction set. One matrix is in work at a time.
#pragma once

#include <cstdint>

namespace fedlearn {

struct MuonStep {
    double gradient_scale;  // integer estimate -> gradient
    double rate;            // of this matrix
    double momentum;
    double decay;  // share of the weights that is taken away before the step
};

// A matrix at most as high as wide, padded with zeros to whole vectors, and what its products need.
struct OrthogonalWork {
    std::int64_t given_rows, given_columns;
    bool is_tall;                // the given one has more rows than columns; the matrix is its transpose
    std::int64_t rows, columns;  // padded
    float* matrix;               // [rows][columns]
    float* square;               // [rows][rows]
    void* matrix_rows;           // [rows][columns] small integers, as are all that follow
    void* square_rows;           // [rows][rows]
    std::int32_t* matrix_sums;   // [rows] of the rows
    std::int32_t* square_sums;
    std::int32_t* squares;         // [rows] sums of the squares of the matrix's rows
    std::uint32_t* row_panels;     // the matrix transposed, as right factor
    std::uint32_t* column_panels;  // the matrix as right factor
    std::uint32_t* square_panels;
};

// muon_kernel.h says what each does. Rows begin at a multiple of the lanes; of a number of magnitudes the greatest is given.
struct MuonKernels {
    std::int64_t lanes;        // rows that a call with no last row works on
    std::int64_t whole_bytes;  // of a small integer
    std::int32_t (*momentum)(const OrthogonalWork& work, float* momentum, const std::int32_t* estimate,
                             const MuonStep& step, std::int64_t first);
    std::int32_t (*round)(const OrthogonalWork& work, float factor, std::int64_t first);
    void (*square)(const OrthogonalWork& work, float factor, std::int64_t first, std::int64_t last);
    void (*pack_square)(const OrthogonalWork& work, std::int64_t first);
    std::int32_t (*polynomial)(const OrthogonalWork& work, float cubic, float quintic, std::int64_t first,
                               std::int64_t last);
    std::int32_t (*product)(const OrthogonalWork& work, float factor, float linear, float scale, std::int64_t first,
                            std::int64_t last);
    void (*move)(const OrthogonalWork& work, float* weights, const MuonStep& step, std::int64_t first);
};

}  // namespace fedlearn
