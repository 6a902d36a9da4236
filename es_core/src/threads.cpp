#include "threads.h"

#include <fstream>
#include <string>

#if defined(__linux__)
#include <sched.h>
#endif

namespace fedlearn {

namespace {

// Processors' worth of time that the control group grants (cgroup v2 cpu.max), rounded up; a large number without a limit.
int control_group_processors() {
    std::ifstream file("/sys/fs/cgroup/cpu.max");
    std::string quota;
    double period = 0.0;
    if (!(file >> quota >> period) || quota == "max" || period <= 0.0) return 1 << 20;
    return std::max(1, static_cast<int>((std::stod(quota) + period - 1.0) / period));
}

int affinity_processors() {
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
    return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace

int usable_processors() { return std::min(affinity_processors(), control_group_processors()); }

}  // namespace fedlearn
