// Prints what becomes of work items and exceptions on several threads, a `name: value` line each.
#include "threads.h"

#include <barrier>
#include <cstdio>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using fedlearn::parallel_for;

// Items that were done exactly once, of 1000 on three threads.
int items_done_once() {
    std::vector<std::atomic<int>> done(1000);
    parallel_for(1000, 3, [&](int, std::int64_t item) { ++done[static_cast<std::size_t>(item)]; });
    return static_cast<int>(std::ranges::count_if(done, [](const auto& n) { return n == 1; }));
}

// What the caller catches when one of two threads throws; both are at work when it does.
std::string caught_from(int thrower) {
    std::barrier both(2);
    try {
        parallel_for(2, 2, [&](int thread, std::int64_t) {
            both.arrive_and_wait();
            if (thread == thrower) throw std::runtime_error("thread " + std::to_string(thread));
        });
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "nothing";
}

// Whether one thread's failure ends the work of another, which would take hours.
bool ends_after_a_failure() {
    constexpr std::int64_t kHours = std::int64_t{1} << 42;
    std::barrier both(2);
    std::atomic<bool> has_begun[2]{};
    try {
        parallel_for(kHours, 2, [&](int thread, std::int64_t) {
            if (has_begun[thread].exchange(true)) return;
            both.arrive_and_wait();
            if (thread == 1) throw std::runtime_error("thread 1");
        });
    } catch (const std::runtime_error&) {
        return true;
    }
    return false;
}

// Whether threads are numbered from 0 on: they index their own memory.
bool has_numbered_threads() {
    std::barrier all(3);
    std::vector<std::atomic<int>> seen(3);
    parallel_for(3, 3, [&](int thread, std::int64_t) {
        all.arrive_and_wait();
        ++seen.at(static_cast<std::size_t>(thread));
    });
    return std::ranges::all_of(seen, [](const auto& n) { return n == 1; });
}

}  // namespace

int main() {
    std::printf("done once: %d\n", items_done_once());
    std::printf("caught from the caller's thread: %s\n", caught_from(0).c_str());
    std::printf("caught from another thread: %s\n", caught_from(1).c_str());
    std::printf("ends after a failure: %d\n", ends_after_a_failure());
    std::printf("threads are numbered: %d\n", has_numbered_threads());
    return 0;
}
