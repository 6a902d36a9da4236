// The instruction set in use.
#pragma once

#include <span>

#include "isa.h"

namespace fedlearn {

// Instruction sets compiled into this build, best first.
std::span<const Isa> compiled_isas();

// The instruction set in use: the best that this processor has, or the one chosen by FEDLEARN_ISA or select_isa.
// Another thread may choose another at any time.
const Isa& current_isa();

// Raises std::invalid_argument with the supported names when `name` is not one of them.
void select_isa(const char* name);

}  // namespace fedlearn
