// What the noise of members is credited with: discounted losses about their group's mean, less what is predicted of them.
#pragma once

#include "activations/item.h"

namespace fedlearn {

// scratch.credits [scored][rows] <- what the noise of one group's members is to be credited with, on a text of the block
// that is the item's `item_text`; uses up scratch.losses and scratch.carried.
Squares assign_credit(const Block& block, const MemberRun& run, std::int64_t first_row, std::int64_t text,
                      std::int64_t item_text, const SignRows& signs, ItemScratch& scratch);

}  // namespace fedlearn
