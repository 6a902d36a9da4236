// Losses of a group's members as small integers.
#pragma once

#include <cstdint>
#include <span>

namespace fedlearn {

// utilities [n] <- clip(round(resolution * (group mean - loss) / scale)), groups with a non-finite loss all zero,
// and all groups where the scale is zero.
void normalized_utilities(std::span<std::int8_t> utilities, std::span<const float> losses, std::int64_t group_size,
                          double scale, double resolution);

}  // namespace fedlearn
