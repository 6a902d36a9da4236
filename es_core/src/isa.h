// An instruction set: tables of the functions that are compiled once for each. A call chooses one at its beginning and
// hands it down, for memory that one set packed means nothing to another.
#pragma once

namespace fedlearn {

struct ReplicatedKernels;
struct RnnKernels;
struct ActivationKernels;

struct Isa {
    const char* name;
    bool (*is_supported)();
    const ReplicatedKernels* replicated;
    const RnnKernels* rnn;
    const ActivationKernels* activations;
};

}  // namespace fedlearn
