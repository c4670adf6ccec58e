// A team of persistent threads that divide the units of one stage after another among themselves.
//
// A forward is a sequence of stages, five or six per layer; the caller opens them one by one. The units of a stage are divided
// evenly into contiguous runs, so that each thread reads one stream; a thread that has finished steals from the others'
// runs. The caller waits for helpers that are at work, never for one that has not started: on a busy machine, where
// waking a thread can take milliseconds, the caller does all the work itself. Helpers wait for the next stage by
// spinning for some tens of microseconds and then sleep, so that an idle process uses no CPU.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "model.h"

namespace midfill {

struct Share {
    int begin, end;
};

inline void pause() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// The caller and its helpers, which work on one stage at a time.
class Team {
public:
    // `work` is called with `argument`, the thread's number (the caller's is 0) and the stage.
    Team(int threads, void (*work)(void*, int, int), void* argument)
        : threads_(threads), work_(work), argument_(argument), slots_(new Slot[threads]) {
        try {
            for (int thread = 1; thread < threads; ++thread) helpers_.emplace_back([this, thread] { help(thread); });
        } catch (...) {
            dismiss();
            throw;
        }
    }

    ~Team() { dismiss(); }

    // Runs all units of a stage. Each stage sees the writes of the stages before it.
    void run(int stage, int units) {
        stage_ = stage;
        for (int thread = 0; thread < threads_; ++thread) {
            slots_[thread].next.store(units * thread / threads_, std::memory_order_relaxed);
            slots_[thread].end = units * (thread + 1) / threads_;
        }
        gate_.store((++opened_ << STAGE_SHIFT) | OPEN);
        if (sleepers_.load() > 0) wake();
        work_(argument_, 0, stage);
        gate_.fetch_and(~OPEN, std::memory_order_acq_rel);
        for (int spin = 0; gate_.load(std::memory_order_acquire) & HELPERS; ++spin)
            spin < SPINS ? pause() : std::this_thread::yield();  // a helper was preempted, maybe by this thread
    }

    // Takes a run of units, from the thread's own share first; false if none are left.
    bool take(int thread, Share& run) {
        for (int i = 0; i < threads_; ++i) {
            Slot& slot = slots_[(thread + i) % threads_];
            int begin = slot.next.load(std::memory_order_relaxed);
            while (begin < slot.end) {
                const int end = begin + (slot.end - begin + 1) / 2;
                if (!slot.next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
                run = {begin, end};
                return true;
            }
        }
        return false;
    }

private:
    struct alignas(LINE) Slot {
        std::atomic<int> next{0};
        int end = 0;
    };

    static constexpr int SPINS = 4000;  // about ten to a hundred microseconds, depending on `pause`
    static constexpr uint32_t HELPERS = 0xfff, OPEN = 0x1000, STAGE_SHIFT = 13;

    void help(int thread) {
        for (uint32_t helped = 0;;) {
            uint32_t gate = await_opening(helped);
            if (dismissed_.load()) return;
            // No thread enters a closed stage, so none reads what the next stage writes.
            if (!gate_.compare_exchange_strong(gate, gate + 1, std::memory_order_acquire)) continue;
            work_(argument_, thread, stage_);
            gate_.fetch_sub(1, std::memory_order_release);
            helped = gate >> STAGE_SHIFT;
        }
    }

    // A sleeper counts itself before its last look at the gate, and a stage opens before it counts the sleepers. In the
    // single order that both see, either the sleeper finds the stage open, or the caller finds the sleeper.
    uint32_t await_opening(uint32_t helped) {
        uint32_t gate = 0;
        const auto ready = [&] {
            gate = gate_.load();
            return ((gate & OPEN) && gate >> STAGE_SHIFT != helped) || dismissed_.load();
        };
        for (int spin = 0; spin < SPINS; ++spin) {
            if (ready()) return gate;
            pause();
        }
        std::unique_lock<std::mutex> lock(mutex_);
        sleepers_.fetch_add(1);
        opened_or_dismissed_.wait(lock, ready);
        sleepers_.fetch_sub(1);
        return gate;
    }

    void wake() {
        { const std::lock_guard<std::mutex> lock(mutex_); }  // a thread that is about to sleep is asleep now
        opened_or_dismissed_.notify_all();
    }

    void dismiss() {
        dismissed_.store(true);
        wake();
        for (std::thread& helper : helpers_) helper.join();
        helpers_.clear();
    }

    const int threads_;
    void (*const work_)(void*, int, int);
    void* const argument_;
    uint32_t opened_ = 0;
    const std::unique_ptr<Slot[]> slots_;
    alignas(LINE) std::atomic<uint32_t> gate_{0};  // number of opened stages, whether one is open, helpers at work
    int stage_ = 0;                                // beside the gate: a thread that sees the gate open also sees this
    alignas(LINE) std::atomic<int> sleepers_{0};
    std::atomic<bool> dismissed_{false};
    std::mutex mutex_;
    std::condition_variable opened_or_dismissed_;
    std::vector<std::thread> helpers_;
};

}  // namespace midfill
