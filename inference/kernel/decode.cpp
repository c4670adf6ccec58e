// midfill's CPU kernel: the whole forward pass of a Llama-family model for a few new tokens, behind a plain C ABI.
//
// WHAT IT IS FOR. Decoding one token, verifying a few drafted ones, and the prefill of a keystroke read every weight
// of the model and the KV of every resident token, to do little arithmetic with each: they are bound by memory, and by
// the overhead of many small operations. Here the forward is one call. Weights are streamed once, in the order in which
// they lie in memory, and the threads meet five times per layer. Long prefills belong to torch.
//
// WEIGHTS. A matrix [rows, columns] is cut into groups of GROUP rows. A group is stored column by column: 32 bits
// of its first row, 32 bits of its second, and so on, that is one column of float32, a pair of bfloat16 or four of int8.
// A 512-bit vector therefore holds the same columns of GROUP rows, is multiplied by one spread input, and
// its lanes are the sums of GROUP rows: nothing is ever added across lanes. Two groups make a unit, the smallest
// piece of work. In `gate_up` a unit is GROUP rows of the gate and the same GROUP rows of up, so that SwiGLU happens
// where the unit is computed. Columns are padded with zeros to a multiple of BLOCK, rows to one of UNIT.
//   int8: stored plus 128, as unsigned numbers; to each BLOCK columns of a row belongs a bfloat16 scale, [group, block,
//   row]. Inputs are quantized to int8 with a scale to each BLOCK too, when they are needed.
//   narrow float32: float32 weights that lose nothing as bfloat16, as those of most published models, are stored so;
//   the arithmetic, to the bit, is that of float32.
//   bfloat16: inputs are rounded to bfloat16; sums are float32. Residuals, norms and attention are float32 always.
//
// KV. A call takes the new tokens of several sequences. Each has a workspace, the engine's own buffer, shared with torch
// and described by strides in numbers: K of a layer and KV head is [tokens, head_dim] in float32 or bfloat16, V lies
// `value_stride` behind it. Attention is split into chunks of CHUNK keys, each a partial softmax; the thread that has a
// chunk writes the new tokens' KV into it.
//
// THREADS. A forward is a sequence of stages, five to a layer; the caller opens one after another, and a team of
// persistent threads helps. A stage's units are shared out evenly, in contiguous runs, so that each thread reads one
// stream; who has finished takes from the others' shares. The caller waits for helpers that are at work, never for one
// that has not come: on a busy machine, where waking a thread can take milliseconds, it does all by itself. Helpers wait
// for the next stage by spinning for some microseconds, then asleep: an idle process uses no CPU. A handle serves one
// call at a time, from whichever thread; who calls sees to that.
//
// LEVELS. lanes.inc and forward.inc are compiled once per instruction-set level; the CPU is asked which to call.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace {

constexpr int GROUP = 16, UNIT = 2 * GROUP, BLOCK = 64, CHUNK = 64;
constexpr int MAX_TOKENS = 32, MAX_GROUP = 32;  // new tokens in a call; heads that share a KV head
constexpr int PREFETCH = 1024;                  // how far ahead weights are fetched, in 32-bit words

enum NumberType { FLOAT32, BFLOAT16, INT8, NARROW_FLOAT32 };

// ------------------------------------------------------------------------------------- what the caller hands over

struct Matrix {
    const void* weights;
    const uint16_t* scales;  // int8 only
    const float* bias;       // [rows] or null
    int32_t rows, columns;   // padded
};

struct LayerWeights {
    Matrix qkv, attention_out, gate_up, down;
    const float *attention_norm, *mlp_norm;  // [padded hidden]
    const float *q_norm, *k_norm;            // [head_dim] or null
};

struct Model {
    int32_t layers, hidden, heads, kv_heads, head_dim, vocabulary, positions;
    int32_t weight_type, embedding_type;
    float norm_epsilon, attention_scale;
    const void* embedding;  // [vocabulary, hidden], row by row, float32 or bfloat16
    const LayerWeights* layer_weights;
    const float* final_norm;
    Matrix head;
    const float *cosines, *sines;  // [positions, head_dim / 2]
};

// Consecutive new tokens of one sequence, and the workspace that holds its KV.
struct Sequence {
    void* kv;
    int64_t layer_stride, value_stride, head_stride;  // in numbers; a head's tokens lie one behind another
    int32_t kv_type;
    int32_t tokens, start, wanted;  // `start` is the first one's position; logits are wanted of the last ones
};

// The most probable next token and the natural logarithm of its probability.
struct Choice {
    int32_t token_id;
    float logprob;
};

// ------------------------------------------------------------------------------------------------------ the team

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

// The caller and its helpers, who work on one stage at a time.
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

    // All units of a stage. What was written in a stage is seen in the next.
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
            spin < SPINS ? pause() : std::this_thread::yield();  // a helper at work has lost its core, maybe to us
    }

    // A run of units that nobody has, the thread's own first; false where there are none left.
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
    struct alignas(64) Slot {
        std::atomic<int> next{0};
        int end = 0;
    };

    static constexpr int SPINS = 4000;  // some ten to a hundred microseconds, as long as `pause` takes
    static constexpr uint32_t HELPERS = 0xfff, OPEN = 0x1000, STAGE_SHIFT = 13;

    void help(int thread) {
        for (uint32_t helped = 0;;) {
            uint32_t gate = await_opening(helped);
            if (dismissed_.load()) return;
            // Nobody enters a stage that has been closed, so nobody reads what the next one writes.
            if (!gate_.compare_exchange_strong(gate, gate + 1, std::memory_order_acquire)) continue;
            work_(argument_, thread, stage_);
            gate_.fetch_sub(1, std::memory_order_release);
            helped = gate >> STAGE_SHIFT;
        }
    }

    // A sleeper counts itself before it looks for the last time, and a stage opens before sleepers are counted: in the
    // one order that both see, either it finds the stage open or it is found.
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
        { const std::lock_guard<std::mutex> lock(mutex_); }  // whoever is about to sleep sleeps now
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
    int stage_ = 0;
    uint32_t opened_ = 0;
    const std::unique_ptr<Slot[]> slots_;
    alignas(64) std::atomic<uint32_t> gate_{0};  // how many stages were opened, whether one is, helpers at work
    alignas(64) std::atomic<int> sleepers_{0};
    std::atomic<bool> dismissed_{false};
    std::mutex mutex_;
    std::condition_variable opened_or_dismissed_;
    std::vector<std::thread> helpers_;
};

// -------------------------------------------------------------------------------------------------- the decoder

template <typename T>
using Buffer = std::unique_ptr<T[], void (*)(void*)>;

// Zeros that take no memory before they are touched, aligned for the widest vectors. Some slack for whole vectors.
template <typename T>
Buffer<T> zeros(size_t count) {
    struct Aligned {
        static void release(void* place) {
            if (place) std::free(static_cast<void**>(place)[-1]);
        }
    };
    void* const raw = std::calloc(count * sizeof(T) + 192, 1);
    if (!raw) throw std::bad_alloc();
    void** const place = reinterpret_cast<void**>((reinterpret_cast<uintptr_t>(raw) + 127) & ~uintptr_t{63});
    place[-1] = raw;
    return {reinterpret_cast<T*>(place), &Aligned::release};
}

enum Stage { QKV, ATTENTION, ATTENTION_OUT, GATE_UP, DOWN, STAGES };  // of a layer
enum LastStage { HEAD, CHOICE };                                      // after all layers

int chunks_of(int tokens) { return (tokens + CHUNK - 1) / CHUNK; }

// What one thread computes for itself.
struct Scratch {
    Buffer<float> rows, queries, scores, keys, scales;
    Buffer<uint32_t> inputs;
    Buffer<int32_t> offsets;
};

struct Decoder;

// What a level has to offer.
typedef void (*Level)(Decoder&, int thread, int stage);

struct Decoder {
    Decoder(const Model& model, int threads, const Level& level);

    void run(const int32_t* token_ids, const Sequence* called, int count);

    const Model model;
    const std::vector<LayerWeights> layers;
    const int chunks;  // that `positions` tokens fill
    const Level level;
    // shared by the threads, [tokens, ...]
    Buffer<float> residual, qkv, activated, own_logits;
    Buffer<float> largest, sums, sums_of_values;  // partial softmaxes: [tokens, heads, chunks], the last with head_dim
    std::vector<Scratch> scratch;
    // the call
    const Sequence* sequences = nullptr;
    int first_tokens[MAX_TOKENS], first_chunks[MAX_TOKENS + 1];  // of the sequences
    int tokens = 0, positions[MAX_TOKENS];
    int wanted = 0, wanted_tokens[MAX_TOKENS];
    float* logits = nullptr;    // [wanted, head.rows]
    Choice* choices = nullptr;  // [wanted], or null
    Team team;  // last: its threads see a whole decoder
};

Decoder::Decoder(const Model& m, int threads, const Level& level)
    : model(m),
      layers(m.layer_weights, m.layer_weights + m.layers),
      chunks(chunks_of(m.positions)),
      level(level),
      residual(zeros<float>((size_t)MAX_TOKENS * m.head.columns)),
      qkv(zeros<float>((size_t)MAX_TOKENS * layers[0].qkv.rows)),
      activated(zeros<float>((size_t)MAX_TOKENS * layers[0].down.columns)),
      own_logits(zeros<float>((size_t)MAX_TOKENS * m.head.rows)),
      largest(zeros<float>((size_t)MAX_TOKENS * m.heads * chunks)),
      sums(zeros<float>((size_t)MAX_TOKENS * m.heads * chunks)),
      sums_of_values(zeros<float>((size_t)MAX_TOKENS * m.heads * chunks * m.head_dim)),
      team(threads, [](void* self, int thread, int stage) {
          Decoder& decoder = *static_cast<Decoder*>(self);
          decoder.level(decoder, thread, stage);
      }, this) {
    const size_t widest = std::max({m.head.columns, layers[0].attention_out.columns, layers[0].down.columns});
    const size_t queries = (size_t)MAX_TOKENS * (m.heads / m.kv_heads), wide = MAX_TOKENS * widest;
    for (int thread = 0; thread < threads; ++thread)
        scratch.push_back({zeros<float>(wide), zeros<float>(queries * m.head_dim),
                           zeros<float>(std::max(queries * CHUNK, (size_t)chunks)), zeros<float>(CHUNK * m.head_dim),
                           zeros<float>(wide / BLOCK), zeros<uint32_t>(wide), zeros<int32_t>(wide / BLOCK)});
}

void embed(const Model& m, int token_id, float* to) {
    const size_t row = (size_t)token_id * m.hidden;
    if (m.embedding_type == FLOAT32) {
        memcpy(to, (const float*)m.embedding + row, m.hidden * sizeof(float));
        return;
    }
    for (int i = 0; i < m.hidden; ++i) {
        const uint32_t bits = (uint32_t)((const uint16_t*)m.embedding)[row + i] << 16;
        memcpy(to + i, &bits, sizeof bits);
    }
}

void Decoder::run(const int32_t* token_ids, const Sequence* called, int count) {
    sequences = called;
    tokens = wanted = first_chunks[0] = 0;
    for (int index = 0; index < count; ++index) {
        const Sequence& sequence = sequences[index];
        first_tokens[index] = tokens;
        first_chunks[index + 1] = first_chunks[index] + chunks_of(sequence.start + sequence.tokens);
        for (int t = 0; t < sequence.tokens; ++t, ++tokens) {
            positions[tokens] = sequence.start + t;
            embed(model, token_ids[tokens], residual.get() + (size_t)tokens * model.head.columns);
            if (t >= sequence.tokens - sequence.wanted) wanted_tokens[wanted++] = tokens;
        }
    }
    for (int layer = 0; layer < model.layers; ++layer) {
        const LayerWeights& weights = layers[layer];
        const int units[STAGES] = {weights.qkv.rows / UNIT, model.kv_heads * first_chunks[count],
                                   weights.attention_out.rows / UNIT, weights.gate_up.rows / UNIT,
                                   weights.down.rows / UNIT};
        for (int stage = 0; stage < STAGES; ++stage) team.run(layer * STAGES + stage, units[stage]);
    }
    if (wanted > 0) team.run(model.layers * STAGES + HEAD, model.head.rows / UNIT);
    if (wanted > 0 && choices) team.run(model.layers * STAGES + CHOICE, wanted);
}

// ----------------------------------------------------------------------------------------------------- the levels

// The order of the levels is part of the C ABI.
#define LEVEL_PORTABLE 0
#define LEVEL_AVX2 1
#define LEVEL_AVX2_VNNI 2
#define LEVEL_AVX512 3
#define LEVEL_AVX512_BF16 4

#define LEVEL LEVEL_PORTABLE
namespace portable {
#include "lanes.inc"
#include "forward.inc"
}  // namespace portable
#if defined(__x86_64__)
#undef LEVEL
#define LEVEL LEVEL_AVX2
namespace avx2 {
#include "lanes.inc"
#include "forward.inc"
}  // namespace avx2
#undef LEVEL
#define LEVEL LEVEL_AVX2_VNNI
namespace avx2_vnni {
#include "lanes.inc"
#include "forward.inc"
}  // namespace avx2_vnni
#undef LEVEL
#define LEVEL LEVEL_AVX512
namespace avx512 {
#include "lanes.inc"
#include "forward.inc"
}  // namespace avx512
#undef LEVEL
#define LEVEL LEVEL_AVX512_BF16
namespace avx512_bf16 {
#include "lanes.inc"
#include "forward.inc"
}  // namespace avx512_bf16

constexpr Level LEVELS[] = {portable::LEVEL_HERE, avx2::LEVEL_HERE, avx2_vnni::LEVEL_HERE, avx512::LEVEL_HERE,
                            avx512_bf16::LEVEL_HERE};

bool runs_here(int level) {
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512vnni");
    switch (level) {
        case LEVEL_PORTABLE: return true;
        case LEVEL_AVX2: return avx2;
        case LEVEL_AVX2_VNNI: return avx2 && __builtin_cpu_supports("avxvnni");
        case LEVEL_AVX512: return avx2 && avx512;
        case LEVEL_AVX512_BF16: return avx2 && avx512 && __builtin_cpu_supports("avx512bf16");
        default: return false;
    }
}
#else
constexpr Level LEVELS[] = {portable::LEVEL_HERE};

bool runs_here(int level) { return level == LEVEL_PORTABLE; }
#endif

}  // namespace

// ------------------------------------------------------------------------------------------------------ the C ABI

// The caller checks shapes, token ids and positions: the binding does, with errors that people can read.
extern "C" {

#define EXPORT __attribute__((visibility("default")))

// Changes whenever a structure, a function or a layout here does.
EXPORT int midfill_kernel_version() { return 4; }

EXPORT int midfill_kernel_runs(int level) { return runs_here(level); }

// Null, and a decoder in `made`; or what went wrong. What `model` points to has to outlive the decoder.
EXPORT const char* midfill_kernel_create(const Model* model, int threads, int level, Decoder** made) {
    if (!runs_here(level)) return "this CPU does not have the instructions of that level";
    try {
        *made = new Decoder(*model, threads, LEVELS[level]);
        return nullptr;
    } catch (const std::bad_alloc&) {
        return "not enough memory";
    } catch (const std::system_error&) {
        return "the system gives no more threads";
    }
}

EXPORT void midfill_kernel_destroy(Decoder* decoder) { delete decoder; }

// Runs the new tokens of `count` sequences, `token_ids` being all of theirs: writes their KV, and logits [wanted, head.rows]
// and greedy choices [wanted] of those that are wanted, where they are not null.
EXPORT void midfill_kernel_forward(Decoder* decoder, const int32_t* token_ids, const Sequence* sequences, int count,
                                   float* logits, Choice* choices) {
    decoder->logits = logits ? logits : decoder->own_logits.get();
    decoder->choices = choices;
    decoder->run(token_ids, sequences, count);
}

}  // extern "C"
