#include "replicated/muon.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "memory.h"
#include "replicated/float_guard.h"
#include "threads.h"

namespace fedlearn {

namespace {

// The factors of X, of X X^T X, and of the next odd power, in one iteration.
struct Polynomial {
    double linear, cubic, quintic;
};
constexpr Polynomial kPolynomials[] = {{8.0443, -21.581, 14.909}, {4.0664, -2.8612, 0.5184}, {3.9096, -2.8234, 0.525}};
constexpr float kLevels = 127.0f;     // the largest integer that matrices are rounded to
constexpr float kSmallest = 1e-30f;   // matrices of which no element is larger have no direction
constexpr std::int64_t kChunk = 64;   // rows that one thread takes at a time, a multiple of all lanes
constexpr double kPerThread = 1.6e7;  // products that are worth a thread

// What is rounded is this times itself.
float rounding_factor(float largest) { return largest > kSmallest ? kLevels / std::max(largest, kSmallest) : 0.0f; }

// Memory for one matrix after another, and who works on its rows.
class Orthogonaliser {
public:
    Orthogonaliser(const Matrices& matrices, const MuonKernels& kernels, int n_threads)
        : kernels_(kernels), work_(sides(matrices, kernels.lanes)) {
        const std::int64_t rows = work_.rows, columns = work_.columns, whole = kernels.whole_bytes;
        const std::int64_t whole_bytes = rows * columns * whole, square_bytes = rows * rows * whole, slack = kAlignment;
        floats_ = allocate<float>(rows * (columns + rows));
        integers_ = allocate<std::int32_t>(3 * rows);
        bytes_ = allocate<std::byte>(3 * whole_bytes + 2 * square_bytes + 2 * slack);
        work_.matrix = floats_.get();
        work_.square = floats_.get() + rows * columns;
        work_.matrix_sums = integers_.get();
        work_.square_sums = integers_.get() + rows;
        work_.squares = integers_.get() + 2 * rows;
        std::byte* next = bytes_.get();
        const auto take = [&next](std::int64_t n) { return std::exchange(next, next + n); };
        work_.matrix_rows = take(whole_bytes + slack);
        work_.square_rows = take(square_bytes + slack);
        work_.row_panels = reinterpret_cast<std::uint32_t*>(take(whole_bytes));
        work_.column_panels = reinterpret_cast<std::uint32_t*>(take(whole_bytes));
        work_.square_panels = reinterpret_cast<std::uint32_t*>(take(square_bytes));
        const double products = static_cast<double>(rows) * static_cast<double>(rows) * static_cast<double>(columns);
        const auto worth = static_cast<std::int64_t>(products / kPerThread);
        threads_ = thread_count(n_threads, std::min((rows + kChunk - 1) / kChunk, worth));
    }

    void step(float* weights, float* momentum, const std::int32_t* estimate, const MuonStep& step) {
        const auto over_given = [&](const auto& work) { return over(work_.given_rows, work); };
        const std::int32_t bits =
            over_given([&](std::int64_t row) { return kernels_.momentum(work_, momentum, estimate, step, row); });
        if (const float largest = std::bit_cast<float>(bits); std::isfinite(largest))
            iterate(largest);
        else
            std::fill_n(work_.matrix, work_.rows * work_.columns, std::numeric_limits<float>::quiet_NaN());
        over_given([&](std::int64_t row) { return kernels_.move(work_, weights, step, row), 0; });
    }

private:
    static OrthogonalWork sides(const Matrices& matrices, std::int64_t lanes) {
        const auto padded = [lanes](std::int64_t side) { return (side + lanes - 1) / lanes * lanes; };
        OrthogonalWork work{};
        work.given_rows = matrices.rows;
        work.given_columns = matrices.columns;
        work.is_tall = matrices.rows > matrices.columns;
        work.rows = padded(std::min(matrices.rows, matrices.columns));
        work.columns = padded(std::max(matrices.rows, matrices.columns));
        return work;
    }

    // The greatest of what work(first row of a block) gives, for all blocks of as many rows as there are lanes.
    template <class Work>
    std::int32_t over(std::int64_t n_rows, const Work& work) {
        return over_chunks(n_rows, [&](std::int64_t first, std::int64_t last) {
            std::int32_t greatest = 0;
            for (std::int64_t row = first; row < last; row += kernels_.lanes) greatest = std::max(greatest, work(row));
            return greatest;
        });
    }

    template <class Work>
    std::int32_t over_chunks(std::int64_t n_rows, const Work& work) {
        std::atomic<std::int32_t> greatest{0};
        parallel_for((n_rows + kChunk - 1) / kChunk, threads_, [&](int, std::int64_t chunk) {
            const FloatGuard guard;
            const std::int32_t found = work(chunk * kChunk, std::min((chunk + 1) * kChunk, n_rows));
            std::int32_t before = greatest;
            while (before < found && !greatest.compare_exchange_weak(before, found)) {
            }
        });
        return greatest;
    }

    // Newton and Schulz's iteration. The matrix is `unit` times what it is rounded to.
    void iterate(float largest) {
        double unit = 0.0;
        for (const Polynomial& polynomial : kPolynomials) {
            const float factor = rounding_factor(largest);
            const auto greatest_square = static_cast<float>(
                over(work_.rows, [&](std::int64_t row) { return kernels_.round(work_, factor, row); }));
            unit = &polynomial == kPolynomials ? 1.0 / std::max(norm(), 1.0) : static_cast<double>(largest) / kLevels;
            largest = improve(polynomial, greatest_square, unit);
        }
    }

    // Takes one iteration; gives the greatest magnitude of the new matrix.
    float improve(const Polynomial& polynomial, float greatest_square, double unit) {
        // No element of X X^T is greater than the greatest of its diagonal.
        const float factor = rounding_factor(greatest_square);
        const double of_square = static_cast<double>(greatest_square) / kLevels * (unit * unit);
        over_chunks(work_.rows, [&](std::int64_t first, std::int64_t last) {
            return kernels_.square(work_, factor, first, last), 0;
        });
        over(work_.rows, [&](std::int64_t row) { return kernels_.pack_square(work_, row), 0; });
        const auto cubic = static_cast<float>(polynomial.cubic * of_square);
        const auto quintic = static_cast<float>(polynomial.quintic * of_square * of_square);
        const auto of_factor = std::bit_cast<float>(over_chunks(work_.rows, [&](std::int64_t first, std::int64_t last) {
            return kernels_.polynomial(work_, cubic, quintic, first, last);
        }));
        const auto linear = static_cast<float>(polynomial.linear * unit);
        const auto scale = static_cast<float>(static_cast<double>(of_factor) / kLevels * unit);
        return std::bit_cast<float>(over_chunks(work_.rows, [&](std::int64_t first, std::int64_t last) {
            return kernels_.product(work_, rounding_factor(of_factor), linear, scale, first, last);
        }));
    }

    double norm() const {
        std::int64_t squares = 0;
        for (std::int64_t row = 0; row < work_.rows; ++row) squares += work_.squares[row];
        return std::sqrt(static_cast<double>(squares));
    }

    const MuonKernels& kernels_;
    OrthogonalWork work_;
    FloatBuffer floats_;
    std::unique_ptr<std::int32_t[], AlignedDelete> integers_;
    ByteBuffer bytes_;
    int threads_ = 1;
};

}  // namespace

void muon_step(float* weights, float* momentum, const std::int32_t* estimate, const Matrices& matrices,
               const MuonStep& step, const ReplicatedKernels& kernels, int n_threads) {
    const FloatGuard guard;
    Orthogonaliser orthogonaliser(matrices, kernels.muon, n_threads);
    const std::int64_t size = matrices.rows * matrices.columns;
    for (std::int64_t i = 0; i < matrices.number; ++i)
        orthogonaliser.step(weights + i * size, momentum + i * size, estimate + i * size, step);
}

}  // namespace fedlearn
