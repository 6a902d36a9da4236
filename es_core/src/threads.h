// Runs work items on a few threads; the caller's thread is one of them.
//
// Threads are started anew for each call, which takes some 45 microseconds: waking one that sleeps takes 25, and one that
// spins none, but where other programs want the processors too the spinning one is stopped, and all wait for it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace fedlearn {

// Processors this process may use: its affinity mask, and the control group's quota where there is one.
int usable_processors();

// Waits for its threads, as std::jthread would, which not every macOS has.
struct Joined {
    std::vector<std::thread> threads;

    ~Joined() {
        for (std::thread& thread : threads) thread.join();
    }
};

// Calls work(thread, item) for every item in [0, n_items), items handed out one by one; 0 threads means all processors.
// The first exception is thrown again once all threads have ended.
template <class Work>
void parallel_for(std::int64_t n_items, int n_threads, const Work& work) {
    std::atomic<std::int64_t> next{0};
    std::exception_ptr failure;
    std::atomic<bool> has_failed{false};
    const auto run = [&](int thread) {
        try {
            for (std::int64_t item = next++; item < n_items; item = next++) work(thread, item);
        } catch (...) {
            if (!has_failed.exchange(true)) failure = std::current_exception();
            next = n_items;
        }
    };
    {
        Joined others;
        for (int thread = 1; thread < n_threads; ++thread) others.threads.emplace_back(run, thread);
        run(0);
    }
    if (failure) std::rethrow_exception(failure);
}

// How many threads to start for n_items when the caller asked for `requested` (0: all processors).
inline int thread_count(int requested, std::int64_t n_items) {
    const std::int64_t wanted = requested > 0 ? requested : usable_processors();
    return static_cast<int>(std::clamp<std::int64_t>(n_items, 1, wanted));
}

}  // namespace fedlearn
