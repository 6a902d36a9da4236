// Chooses the kernels for this processor at the first call.
#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "dispatch.h"

#include "activations/kernels.h"
#include "processor.h"
#include "replicated/kernels.h"
#include "rnn/kernels.h"

namespace fedlearn {

#define FEDLEARN_DECLARE(isa)                        \
    extern const ReplicatedKernels replicated_##isa; \
    extern const RnnKernels rnn_##isa;               \
    extern const ActivationKernels activations_##isa;

#if defined(__x86_64__)
FEDLEARN_DECLARE(v4_vnni)
FEDLEARN_DECLARE(v4)
FEDLEARN_DECLARE(v3_vnni)
FEDLEARN_DECLARE(v3)
#elif defined(__aarch64__)
FEDLEARN_DECLARE(dot)
#endif
FEDLEARN_DECLARE(base)

namespace {

const Isa kIsas[] = {
#if defined(__x86_64__)
    {"v4-vnni", has_v4_vnni, &replicated_v4_vnni, &rnn_v4_vnni, &activations_v4_vnni},
    {"v4", has_v4, &replicated_v4, &rnn_v4, &activations_v4},
    {"v3-vnni", has_v3_vnni, &replicated_v3_vnni, &rnn_v3_vnni, &activations_v3_vnni},
    {"v3", has_v3, &replicated_v3, &rnn_v3, &activations_v3},
#elif defined(__aarch64__)
    {"dot", has_dot, &replicated_dot, &rnn_dot, &activations_dot},
#endif
    {"base", [] { return true; }, &replicated_base, &rnn_base, &activations_base},
};

const Isa& find_isa(std::string_view name) {
    std::string supported;
    for (const Isa& isa : kIsas) {
        if (!isa.is_supported()) continue;
        if (name == isa.name) return isa;
        supported += std::string(supported.empty() ? "" : ", ") + isa.name;
    }
    throw std::invalid_argument("FEDLEARN_ISA: expected one of " + supported + " on this processor, got " +
                                std::string(name));
}

const Isa& first_choice() {
    const char* wanted = std::getenv("FEDLEARN_ISA");
    if (wanted != nullptr && *wanted != '\0') return find_isa(wanted);
    for (const Isa& isa : kIsas)
        if (isa.is_supported()) return isa;
    throw std::logic_error("the base instruction set is always supported");
}

std::atomic<const Isa*>& chosen() {
    static std::atomic<const Isa*> isa{&first_choice()};
    return isa;
}

}  // namespace

std::span<const Isa> compiled_isas() { return kIsas; }

const Isa& current_isa() { return *chosen(); }

void select_isa(const char* name) { chosen() = &find_isa(name); }

}  // namespace fedlearn
