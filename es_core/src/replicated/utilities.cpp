#include "replicated/utilities.h"

#include <algorithm>
#include <cmath>

#include "replicated/float_guard.h"

namespace fedlearn {

void normalized_utilities(std::span<std::int8_t> utilities, std::span<const float> losses, std::int64_t group_size,
                          double scale, double resolution) {
    const FloatGuard guard;
    std::ranges::fill(utilities, std::int8_t{0});
    if (!(scale > 0.0)) return;
    const auto size = static_cast<std::size_t>(group_size);
    for (std::size_t first = 0; first < losses.size(); first += size) {
        const auto group = losses.subspan(first, size);
        double sum = 0.0;
        for (const float loss : group) sum += static_cast<double>(loss);
        if (!std::isfinite(sum)) continue;
        const double mean = sum / static_cast<double>(group_size);
        for (std::size_t i = 0; i < size; ++i) {
            const double utility = std::nearbyint(resolution * (mean - static_cast<double>(group[i])) / scale);
            utilities[first + i] = static_cast<std::int8_t>(std::clamp(utility, -127.0, 127.0));
        }
    }
}

}  // namespace fedlearn
