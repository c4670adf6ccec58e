// midfill's CPU kernel: the whole forward pass of a Llama-family model for a few new tokens, behind a plain C ABI.
//
// WHAT IT IS FOR. Decoding one token, verifying a few drafted ones, and the prefill of a keystroke read every weight
// of the model and the KV of every resident token, to do little arithmetic with each: they are bound by memory, and by
// the overhead of many small operations. Here the forward is one call. Weights are streamed once, in the order in which
// they lie in memory, and the threads meet five times per layer. Long prefills are cut into such calls.
//
// WEIGHTS. A matrix [rows, columns] is cut into units of UNIT rows, the smallest piece of work. A unit is stored column
// by column: 32 bits of its first row, 32 bits of its second, and so on, that is one column of float32, a pair of
// bfloat16 or four of int8. A vector therefore holds the same columns of several rows, is multiplied by one spread input,
// and its lanes are the sums of rows: nothing is ever added across lanes, and memory is read from front to back. In
// `gate_up` a unit is HALF rows of the gate and the same HALF rows of up, so that SwiGLU happens where the unit is
// computed. Columns are padded with zeros to a multiple of BLOCK, rows to one of UNIT.
//   int8: stored plus 128, as unsigned numbers; to each BLOCK columns of a row belongs a bfloat16 scale, [unit, block,
//   row]. Inputs are quantized to int8 with a scale to each BLOCK too, when they are needed.
//   narrow float32: float32 weights that lose nothing as bfloat16, as those of most published models, are stored so;
//   the arithmetic, to the bit, is that of float32.
//   bfloat16: inputs are rounded to bfloat16; sums are float32. Residuals, norms and softmaxes are float32 always.
//
// KV. A call takes the new tokens of several sequences. Each has a workspace, the engine's own buffer, shared with
// torch and described by strides in numbers: K of a layer and KV head is [tokens, head_dim] in float32 or bfloat16, V
// lies `value_stride` behind it. Attention is split into chunks of CHUNK keys, each a partial softmax; the thread that
// has a chunk writes the new tokens' KV into it. Keys are turned into columns tile by tile, LANES keys to a tile, so
// that here too lanes are never added up; two tiles at a time serve all queries of their KV head. Where the CPU
// multiplies pairs of bfloat16 and the KV is bfloat16, queries and the softmax's weights are rounded to bfloat16 as
// well.
//
// THREADS. A forward is a sequence of stages, five to a layer; the caller opens one after another, and a team of
// persistent threads helps. A stage's units are shared out evenly, in contiguous runs, so that each thread reads one
// stream; who has finished takes from the others' shares. The caller waits for helpers that are at work, never for one
// that has not come: on a busy machine, where waking a thread can take milliseconds, it does all by itself. Helpers
// wait for the next stage by spinning for some tens of microseconds, then asleep: an idle process uses no CPU. A
// decoder serves one call at a time, from whichever thread; who calls sees to that.
//
// THE SAME BITS. Whatever the number of threads, of tokens and of sequences in the call, a number is computed by the
// same operations in the same order: a row's dot product runs over its columns one after another, attention over chunks
// that begin at multiples of CHUNK. Only who computes it changes. Between levels the bits differ.
//
// LEVELS. The second half of this file is compiled once per instruction-set level: the file includes itself, with LEVEL
// saying which. The CPU is asked which one to call.

#ifndef LEVEL

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
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

constexpr int HALF = 16, UNIT = 2 * HALF, BLOCK = 64, CHUNK = 256;
constexpr int MAX_TOKENS = 32, MAX_GROUP = 32;  // new tokens in a call; heads that share a KV head
constexpr int PREFETCH = 4096;                  // how far ahead weights are fetched, in bytes
constexpr int LINE = 64;                        // bytes of a cache line
constexpr int MAX_LANES = 16, TILES = 2;        // of a vector; of keys that are attended to at a time

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
    struct alignas(LINE) Slot {
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
    uint32_t opened_ = 0;
    const std::unique_ptr<Slot[]> slots_;
    alignas(LINE) std::atomic<uint32_t> gate_{0};  // how many stages were opened, whether one is, helpers at work
    int stage_ = 0;                                // beside the gate: who sees it open has it
    alignas(LINE) std::atomic<int> sleepers_{0};
    std::atomic<bool> dismissed_{false};
    std::mutex mutex_;
    std::condition_variable opened_or_dismissed_;
    std::vector<std::thread> helpers_;
};

// -------------------------------------------------------------------------------------------------- the decoder

struct Release {
    template <typename T>
    void operator()(T* place) const { ::operator delete[](place, std::align_val_t{LINE}); }
};

template <typename T>
using Buffer = std::unique_ptr<T[], Release>;

// Takes no memory before it is written; some slack at its end for whole vectors.
template <typename T>
Buffer<T> buffer(size_t count) {
    return Buffer<T>(static_cast<T*>(::operator new[](count * sizeof(T) + LINE, std::align_val_t{LINE})));
}

enum Stage { QKV, ATTENTION, ATTENTION_OUT, GATE_UP, DOWN, STAGES };  // of a layer
enum LastStage { HEAD, CHOICE };                                      // after all layers

int chunks_of(int tokens) { return (tokens + CHUNK - 1) / CHUNK; }

// What one thread computes for itself.
struct Scratch {
    Buffer<float> rows, scales, scores;
    Buffer<int32_t> inputs, offsets, queries, tiles;
};

struct Decoder;
typedef void (*Level)(Decoder&, int thread, int stage);  // does a thread's part of a stage

struct Decoder {
    Decoder(const Model& model, int threads, Level level);

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
    Team team;                  // last: its threads see a whole decoder
};

Decoder::Decoder(const Model& m, int threads, Level level)
    : model(m),
      layers(m.layer_weights, m.layer_weights + m.layers),
      chunks(chunks_of(m.positions)),
      level(level),
      residual(buffer<float>((size_t)MAX_TOKENS * m.head.columns)),
      qkv(buffer<float>((size_t)MAX_TOKENS * layers[0].qkv.rows)),
      activated(buffer<float>((size_t)MAX_TOKENS * layers[0].down.columns)),
      own_logits(buffer<float>((size_t)MAX_TOKENS * m.head.rows)),
      largest(buffer<float>((size_t)MAX_TOKENS * m.heads * chunks)),
      sums(buffer<float>((size_t)MAX_TOKENS * m.heads * chunks)),
      sums_of_values(buffer<float>((size_t)MAX_TOKENS * m.heads * chunks * m.head_dim)),
      team(threads, [](void* self, int thread, int stage) {
          Decoder& decoder = *static_cast<Decoder*>(self);
          decoder.level(decoder, thread, stage);
      }, this) {
    const size_t widest = std::max({m.head.columns, layers[0].attention_out.columns, layers[0].down.columns});
    const size_t queries = (size_t)MAX_TOKENS * (m.heads / m.kv_heads), wide = MAX_TOKENS * widest;
    for (int thread = 0; thread < threads; ++thread)
        scratch.push_back({buffer<float>(wide), buffer<float>(wide / BLOCK),
                           buffer<float>(std::max(queries * CHUNK, (size_t)chunks)), buffer<int32_t>(wide),
                           buffer<int32_t>(wide / BLOCK), buffer<int32_t>(queries * m.head_dim),
                           buffer<int32_t>((size_t)TILES * MAX_LANES * m.head_dim)});
    // what pads the columns is multiplied with zeros, so it has to be a number
    std::fill_n(residual.get(), (size_t)MAX_TOKENS * m.head.columns, 0.0f);
    std::fill_n(activated.get(), (size_t)MAX_TOKENS * layers[0].down.columns, 0.0f);
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
#include "decode.cpp"
}
#if defined(__x86_64__)
#undef LEVEL
#define LEVEL LEVEL_AVX2
namespace avx2 {
#include "decode.cpp"
}
#undef LEVEL
#define LEVEL LEVEL_AVX2_VNNI
namespace avx2_vnni {
#include "decode.cpp"
}
#undef LEVEL
#define LEVEL LEVEL_AVX512
namespace avx512 {
#include "decode.cpp"
}
#undef LEVEL
#define LEVEL LEVEL_AVX512_BF16
namespace avx512_bf16 {
#include "decode.cpp"
}

constexpr Level LEVELS[] = {portable::work, avx2::work, avx2_vnni::work, avx512::work, avx512_bf16::work};

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
constexpr Level LEVELS[] = {portable::work};

bool runs_here(int level) { return level == LEVEL_PORTABLE; }
#endif

}  // namespace

// ------------------------------------------------------------------------------------------------------ the C ABI

// The caller checks shapes, token ids and positions: the binding does, with errors that people can read.
extern "C" {

#define EXPORT __attribute__((visibility("default")))

// Changes whenever a structure, a function or a layout here does.
EXPORT int midfill_kernel_version() { return 5; }

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

#else  // LEVEL: the rest is included once per level, inside a namespace

// ---------------------------------------------------------------------------------------------------- its vectors

// Every function carries its level's target attribute, so that one library runs on any CPU.
#undef TARGET
#undef FN
#undef IN
#if LEVEL == LEVEL_AVX512_BF16
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,avx2,fma")))
#elif LEVEL == LEVEL_AVX512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")))
#elif LEVEL == LEVEL_AVX2_VNNI
#define TARGET __attribute__((target("avx2,fma,avxvnni")))
#elif LEVEL == LEVEL_AVX2
#define TARGET __attribute__((target("avx2,fma")))
#else
#define TARGET
#endif
#define FN static TARGET
#define IN static TARGET inline __attribute__((always_inline))

// There are registers for so many sums: 32 with AVX-512, otherwise 16. A dot product goes on in SPLITS sums in turn where
// one token alone would leave the CPU waiting for the addition before.
#if LEVEL >= LEVEL_AVX512
constexpr int LANES = 16, SPLITS = 2, TOKENS_AT_ONCE = 4, QUERIES_AT_ONCE = 6;
#elif LEVEL >= LEVEL_AVX2
constexpr int LANES = 8, SPLITS = 1, TOKENS_AT_ONCE = 4, QUERIES_AT_ONCE = 3;
#else
constexpr int LANES = 4, SPLITS = 1, TOKENS_AT_ONCE = 1, QUERIES_AT_ONCE = 2;
#endif
constexpr int VECTORS = UNIT / LANES;  // to a column of a unit

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));
typedef int8_t Bytes __attribute__((vector_size(LANES)));
typedef float FloatsAnywhere __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t IntsAnywhere __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint16_t HalvesAnywhere __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
typedef int8_t BytesAnywhere __attribute__((vector_size(LANES), aligned(1), may_alias));

IN Floats load(const float* from) { return *(const FloatsAnywhere*)from; }
IN Ints load_ints(const void* from) { return *(const IntsAnywhere*)from; }
IN void store(float* to, Floats x) { *(FloatsAnywhere*)to = x; }
IN void store_ints(void* to, Ints x) { *(IntsAnywhere*)to = x; }
IN Floats spread(float x) { return Floats{} + x; }
IN Ints spread(int32_t x) { return Ints{} + x; }
IN Floats larger(Floats a, Floats b) { return a > b ? a : b; }

// What will soon be read of weights, so many vectors of a column of a unit, is fetched.
template <int COUNT>
IN void fetch(const int32_t* place) {
    for (int line = 0; line < COUNT * LANES * 4; line += LINE) __builtin_prefetch((const char*)place + PREFETCH + line);
}

// bfloat16 numbers as float32.
IN Floats widen(const uint16_t* from) {
    return (Floats)(__builtin_convertvector(*(const HalvesAnywhere*)from, Words) << 16);
}

// x rounded to bfloat16, to even; NaN stays NaN.
IN Floats to_bf16(Floats x) {
    const Words bits = (Words)x;
    const Floats near = (Floats)((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
    return x == x ? near : x;
}

IN void store_bf16(void* to, Floats x) {
#if LEVEL == LEVEL_AVX512_BF16
    _mm256_storeu_si256((__m256i*)to, (__m256i)_mm512_cvtneps_pbh(x));  // what is denormal becomes zero
#else
    *(HalvesAnywhere*)to = __builtin_convertvector((Words)to_bf16(x) >> 16, Halves);
#endif
}

// a * b + c
IN Floats fused(Floats a, Floats b, Floats c) {
#if LEVEL >= LEVEL_AVX512
    return _mm512_fmadd_ps(a, b, c);
#elif LEVEL >= LEVEL_AVX2
    return _mm256_fmadd_ps(a, b, c);
#elif defined(__ARM_NEON)
    return (Floats)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

// sum + a * the float32 at b; with PAIRS, sum + the products of each lane's pair of bfloat16 with the pair at b.
constexpr bool HAS_PAIRS = LEVEL == LEVEL_AVX512_BF16;
template <bool PAIRS>
IN Floats multiplied(Floats sum, Ints a, const int32_t* b) {
#if LEVEL == LEVEL_AVX512_BF16
    if constexpr (PAIRS) return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)spread(*b));
#endif
    return fused((Floats)a, (Floats)spread(*b), sum);
}

// sum + the products of a lane's four weights, stored plus 128, with four inputs, less 128 times the inputs where
// `sum` began with that (Input::offsets): the instructions multiply unsigned numbers by signed ones.
constexpr bool OFFSET_IN_SUM = LEVEL >= LEVEL_AVX2_VNNI;
IN Ints multiplied_int8(Ints sum, Ints weights, int32_t inputs) {
#if LEVEL >= LEVEL_AVX512
    return (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)weights, (__m512i)spread(inputs));
#elif LEVEL == LEVEL_AVX2_VNNI
    return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)weights, (__m256i)spread(inputs));
#elif LEVEL == LEVEL_AVX2
    const __m256i plain = (__m256i)(weights ^ (int32_t)0x80808080);  // signs moved over, so that pairs fit 16 bits
    const __m256i products = _mm256_maddubs_epi16(
        _mm256_abs_epi8(plain), _mm256_sign_epi8((__m256i)spread(inputs), plain));
    return sum + (Ints)_mm256_madd_epi16(products, _mm256_set1_epi16(1));
#else
    const Ints plain = weights ^ (int32_t)0x80808080;
    for (int byte = 0; byte < 32; byte += 8)
        sum += ((Ints)((Words)plain << (24 - byte)) >> 24) * ((int32_t)((uint32_t)inputs << (24 - byte)) >> 24);
    return sum;
#endif
}

IN float sum_lanes(Floats x) {
#if LEVEL >= LEVEL_AVX512
    return _mm512_reduce_add_ps(x);
#elif LEVEL >= LEVEL_AVX2
    const __m128 four = _mm256_castps256_ps128(x) + _mm256_extractf128_ps(x, 1);
    return (four[0] + four[2]) + (four[1] + four[3]);
#else
    return (x[0] + x[2]) + (x[1] + x[3]);
#endif
}

IN float largest_lane(Floats x) {
#if LEVEL >= LEVEL_AVX512
    return _mm512_reduce_max_ps(x);
#elif LEVEL >= LEVEL_AVX2
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    return std::max(std::max(four[0], four[2]), std::max(four[1], four[3]));
#else
    return std::max(std::max(x[0], x[2]), std::max(x[1], x[3]));
#endif
}

// LANES rows of LANES words become columns.
IN void transpose(Ints* rows) {
#if LEVEL >= LEVEL_AVX512
    __m512i fours[16];  // [4 * i + column % 4]: that column of rows 4 * i to 4 * i + 3, in the 128 bits that it is from
    for (int i = 0; i < 16; i += 4) {
        const __m512i a = (__m512i)rows[i], b = (__m512i)rows[i + 1], c = (__m512i)rows[i + 2], d = (__m512i)rows[i + 3];
        const __m512i ab = _mm512_unpacklo_epi32(a, b), cd = _mm512_unpacklo_epi32(c, d);
        const __m512i ab_high = _mm512_unpackhi_epi32(a, b), cd_high = _mm512_unpackhi_epi32(c, d);
        fours[i] = _mm512_unpacklo_epi64(ab, cd), fours[i + 1] = _mm512_unpackhi_epi64(ab, cd);
        fours[i + 2] = _mm512_unpacklo_epi64(ab_high, cd_high), fours[i + 3] = _mm512_unpackhi_epi64(ab_high, cd_high);
    }
    for (int i = 0; i < 4; ++i) {
        const __m512i even_low = _mm512_shuffle_i32x4(fours[i], fours[4 + i], 0x88);
        const __m512i even_high = _mm512_shuffle_i32x4(fours[8 + i], fours[12 + i], 0x88);
        const __m512i odd_low = _mm512_shuffle_i32x4(fours[i], fours[4 + i], 0xdd);
        const __m512i odd_high = _mm512_shuffle_i32x4(fours[8 + i], fours[12 + i], 0xdd);
        rows[i] = (Ints)_mm512_shuffle_i32x4(even_low, even_high, 0x88);
        rows[4 + i] = (Ints)_mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
        rows[8 + i] = (Ints)_mm512_shuffle_i32x4(even_low, even_high, 0xdd);
        rows[12 + i] = (Ints)_mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
    }
#elif LEVEL >= LEVEL_AVX2
    __m256i fours[8];
    for (int i = 0; i < 8; i += 4) {
        const __m256i a = (__m256i)rows[i], b = (__m256i)rows[i + 1], c = (__m256i)rows[i + 2], d = (__m256i)rows[i + 3];
        const __m256i ab = _mm256_unpacklo_epi32(a, b), cd = _mm256_unpacklo_epi32(c, d);
        const __m256i ab_high = _mm256_unpackhi_epi32(a, b), cd_high = _mm256_unpackhi_epi32(c, d);
        fours[i] = _mm256_unpacklo_epi64(ab, cd), fours[i + 1] = _mm256_unpackhi_epi64(ab, cd);
        fours[i + 2] = _mm256_unpacklo_epi64(ab_high, cd_high), fours[i + 3] = _mm256_unpackhi_epi64(ab_high, cd_high);
    }
    for (int i = 0; i < 4; ++i) {
        rows[i] = (Ints)_mm256_permute2x128_si256(fours[i], fours[4 + i], 0x20);
        rows[4 + i] = (Ints)_mm256_permute2x128_si256(fours[i], fours[4 + i], 0x31);
    }
#else
    for (int i = 1; i < LANES; ++i)
        for (int j = 0; j < i; ++j) {
            const int32_t word = rows[i][j];
            rows[i][j] = rows[j][i], rows[j][i] = word;
        }
#endif
}

// The nearest whole number, even where there are two; for |x| < 2^22.
IN Floats rounded(Floats x) { return (x + 12582912.0f) - 12582912.0f; }

// e^x to about 2e-7 of its value (Cephes' polynomial); what would under- or overflow is clamped.
IN Floats exponential(Floats x) {
    x = x < -87.0f ? spread(-87.0f) : x;
    x = x > 88.0f ? spread(88.0f) : x;
    const Floats n = rounded(x * 1.44269504f);
    const Floats r = fused(n, spread(2.12194440e-4f), fused(n, spread(-0.693359375f), x));
    Floats y = spread(1.9875691500e-4f);
    for (const float coefficient :
         {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
        y = fused(y, r, spread(coefficient));
    y = fused(y, r * r, r) + 1.0f;
    return y * (Floats)((__builtin_convertvector(n, Ints) + 127) << 23);
}

// ---------------------------------------------------------------------------------------------- what rows multiply

// Inputs [tokens, columns] in the form that dot products want: float32; for bfloat16 weights the rounded inputs, as
// bfloat16 where the CPU multiplies those; for int8 weights int8, with a scale and an offset to each BLOCK columns.
struct Input {
    const void* data;
    const float* scales;     // [tokens, columns / BLOCK]
    const int32_t* offsets;  // [tokens, columns / BLOCK]: -128 times the sum of the inputs, where multiplied_int8 needs it
};

FN void quantize_block(const float* from, int8_t* to, float* scale, int32_t* offset) {
    Floats largest = {};
    for (int i = 0; i < BLOCK; i += LANES) {
        const Floats x = load(from + i);
        largest = larger(largest, x < 0.0f ? -x : x);
    }
    const float limit = largest_lane(largest), factor = limit > 0.0f ? 127.0f / limit : 0.0f;
    Ints sum = {};
    for (int i = 0; i < BLOCK; i += LANES) {
        const Ints whole = __builtin_convertvector(rounded(load(from + i) * factor), Ints);
        sum += whole;
        *(BytesAnywhere*)(to + i) = __builtin_convertvector(whole, Bytes);
    }
    int32_t total = 0;
    for (int lane = 0; lane < LANES; ++lane) total += sum[lane];
    *scale = limit / 127.0f;
    *offset = OFFSET_IN_SUM ? -128 * total : 0;
}

// from: [tokens, columns], the columns beyond the model's own being zero
FN Input prepare(const Decoder& d, Scratch& scratch, const float* from, int tokens, int columns) {
    const size_t count = (size_t)tokens * columns;
    int32_t* const to = scratch.inputs.get();
    switch (d.model.weight_type) {
        case INT8:
            for (size_t i = 0; i < count; i += BLOCK)
                quantize_block(from + i, (int8_t*)to + i, &scratch.scales[i / BLOCK], &scratch.offsets[i / BLOCK]);
            return {to, scratch.scales.get(), scratch.offsets.get()};
        case BFLOAT16:
            for (size_t i = 0; i < count; i += LANES) {
                if (HAS_PAIRS) store_bf16((uint16_t*)to + i, load(from + i));
                else store((float*)to + i, to_bf16(load(from + i)));
            }
            return {to, nullptr, nullptr};
        default: return {from, nullptr, nullptr};
    }
}

// The RMS norm of so many tokens' residuals; `tokens`: of which ones, where not all.
FN float inverse_root_mean_square(const float* x, int padded, int count, float epsilon) {
    Floats squares = {};
    for (int i = 0; i < padded; i += LANES) squares = fused(load(x + i), load(x + i), squares);
    return 1.0f / std::sqrt(sum_lanes(squares) / (float)count + epsilon);
}

FN Input normalized(const Decoder& d, Scratch& scratch, const float* weight, int count, const int* tokens = nullptr) {
    const int columns = d.model.head.columns;
    for (int t = 0; t < count; ++t) {
        const float* const x = d.residual.get() + (size_t)(tokens ? tokens[t] : t) * columns;
        float* const to = scratch.rows.get() + (size_t)t * columns;
        const float factor = inverse_root_mean_square(x, columns, d.model.hidden, d.model.norm_epsilon);
        for (int i = 0; i < columns; i += LANES) store(to + i, load(x + i) * factor * load(weight + i));
    }
    return prepare(d, scratch, scratch.rows.get(), count, columns);
}

// --------------------------------------------------------------------------------------------------- dot products

// The products of VECTORS_AT_ONCE of a unit's vectors of rows, from `first`, with TOKENS tokens, to tile [TOKENS, UNIT]:
// each weight is loaded once and used for every token, and the sums stay in registers.
template <int TOKENS, int VECTORS_AT_ONCE>
FN void dot_int8(const Matrix& matrix, int unit, int first, const Input& input, int token, float* tile) {
    const int steps = matrix.columns / 4, blocks = matrix.columns / BLOCK;
    const int32_t* place = (const int32_t*)matrix.weights + (size_t)unit * steps * UNIT + first * LANES;
    const uint16_t* const weight_scales = matrix.scales + (size_t)unit * blocks * UNIT + first * LANES;
    const int32_t* const inputs = (const int32_t*)input.data + (size_t)token * steps;
    Floats sums[VECTORS_AT_ONCE][TOKENS] = {};
    for (int block = 0; block < blocks; ++block) {
        Ints products[VECTORS_AT_ONCE][TOKENS];
        for (int v = 0; v < VECTORS_AT_ONCE; ++v)
            for (int t = 0; t < TOKENS; ++t) products[v][t] = spread(input.offsets[(token + t) * blocks + block]);
        for (int step = block * (BLOCK / 4); step < (block + 1) * (BLOCK / 4); ++step, place += UNIT) {
            fetch<VECTORS_AT_ONCE>(place);
            for (int v = 0; v < VECTORS_AT_ONCE; ++v)
                for (int t = 0; t < TOKENS; ++t)
                    products[v][t] = multiplied_int8(products[v][t], load_ints(place + v * LANES), inputs[t * steps + step]);
        }
        for (int v = 0; v < VECTORS_AT_ONCE; ++v) {
            const Floats scale = widen(weight_scales + block * UNIT + v * LANES);
            for (int t = 0; t < TOKENS; ++t)
                sums[v][t] = fused(__builtin_convertvector(products[v][t], Floats),
                                   scale * input.scales[(token + t) * blocks + block], sums[v][t]);
        }
    }
    for (int t = 0; t < TOKENS; ++t)
        for (int v = 0; v < VECTORS_AT_ONCE; ++v) store(tile + t * UNIT + (first + v) * LANES, sums[v][t]);
}

// The same for float32 and bfloat16.
template <int TYPE, int TOKENS, int VECTORS_AT_ONCE>
FN void dot_float(const Matrix& matrix, int unit, int first, const Input& input, int token, float* tile) {
    constexpr bool PAIRS = TYPE == BFLOAT16 && HAS_PAIRS, WIDE = TYPE == FLOAT32 || PAIRS;
    const int steps = PAIRS ? matrix.columns / 2 : matrix.columns;  // columns, or pairs that are multiplied at once
    const int32_t* place =
        (const int32_t*)matrix.weights + (size_t)unit * (WIDE ? steps : steps / 2) * UNIT + first * LANES;
    const int32_t* const inputs = (const int32_t*)input.data + (size_t)token * steps;
    Floats sums[SPLITS][VECTORS_AT_ONCE][TOKENS] = {};
    for (int step = 0; step < steps; step += 2, place += WIDE ? 2 * UNIT : UNIT) {
        fetch<VECTORS_AT_ONCE>(place);
        if (WIDE) fetch<VECTORS_AT_ONCE>(place + UNIT);
        for (int odd = 0; odd < 2; ++odd) {
            Ints column[VECTORS_AT_ONCE];
            for (int v = 0; v < VECTORS_AT_ONCE; ++v) {
                const Ints words = load_ints(place + (WIDE ? odd * UNIT : 0) + v * LANES);
                column[v] = WIDE ? words : odd ? words & (int32_t)0xffff0000 : (Ints)((Words)words << 16);
            }
            for (int t = 0; t < TOKENS; ++t)
                for (int v = 0; v < VECTORS_AT_ONCE; ++v) {
                    Floats& sum = sums[odd % SPLITS][v][t];
                    sum = multiplied<PAIRS>(sum, column[v], inputs + t * steps + step + odd);
                }
        }
    }
    for (int t = 0; t < TOKENS; ++t)
        for (int v = 0; v < VECTORS_AT_ONCE; ++v)
            store(tile + t * UNIT + (first + v) * LANES,
                  SPLITS == 1 ? sums[0][v][t] : sums[0][v][t] + sums[SPLITS - 1][v][t]);
}

// All of a unit's vectors at once, or two where more tokens would leave no registers for the sums.
template <int TYPE, int TOKENS = TOKENS_AT_ONCE>
FN void dot_unit(const Matrix& matrix, int unit, const Input& input, int token, int tokens, float* tile) {
    if (tokens < TOKENS) {
        if constexpr (TOKENS > 1) dot_unit<TYPE, TOKENS - 1>(matrix, unit, input, token, tokens, tile);
        return;
    }
    constexpr int AT_ONCE = TOKENS > 2 ? 2 : VECTORS;
    for (int first = 0; first < VECTORS; first += AT_ONCE) {
        if constexpr (TYPE == INT8) dot_int8<TOKENS, AT_ONCE>(matrix, unit, first, input, token, tile);
        else dot_float<TYPE, TOKENS, AT_ONCE>(matrix, unit, first, input, token, tile);
    }
}

enum Finish { STORE, ADD, GATE };

// A unit's results for one token to their place: stored, added, or the SwiGLU of its gate rows and its up rows.
FN void finish_unit(Finish finish, const float* tile, const float* bias, float* to, int unit) {
    Floats row[VECTORS];
    for (int v = 0; v < VECTORS; ++v) {
        row[v] = load(tile + v * LANES);
        if (bias) row[v] += load(bias + unit * UNIT + v * LANES);
    }
    if (finish == GATE) {
        for (int v = 0; v < VECTORS / 2; ++v)
            store(to + unit * HALF + v * LANES, row[v] / (exponential(-row[v]) + 1.0f) * row[VECTORS / 2 + v]);
        return;
    }
    for (int v = 0; v < VECTORS; ++v) {
        float* const place = to + unit * UNIT + v * LANES;
        store(place, finish == ADD ? load(place) + row[v] : row[v]);
    }
}

// Rows of matrix * input, to `to` [tokens, stride]: the units of `run`, and those that the thread gets after it.
FN void project(Decoder& d, int thread, Share run, const Matrix& matrix, const Input& input, int tokens, Finish finish,
                float* to, int64_t stride) {
    alignas(LINE) float tile[TOKENS_AT_ONCE * UNIT];
    do {
        for (int unit = run.begin; unit < run.end; ++unit)
            for (int token = 0; token < tokens; token += TOKENS_AT_ONCE) {
                const int count = std::min(TOKENS_AT_ONCE, tokens - token);
                switch (d.model.weight_type) {
                    case FLOAT32: dot_unit<FLOAT32>(matrix, unit, input, token, count, tile); break;
                    case BFLOAT16: dot_unit<BFLOAT16>(matrix, unit, input, token, count, tile); break;
                    case INT8: dot_unit<INT8>(matrix, unit, input, token, count, tile); break;
                    case NARROW_FLOAT32: dot_unit<NARROW_FLOAT32>(matrix, unit, input, token, count, tile); break;
                }
                for (int t = 0; t < count; ++t)
                    finish_unit(finish, tile + t * UNIT, matrix.bias, to + (token + t) * stride, unit);
            }
    } while (d.team.take(thread, run));
}

// ------------------------------------------------------------------------------------------------------ attention

// One head of q or k: normalized where the model does that, turned to its position, times `scale`.
FN void turn_head(const Model& m, const float* from, const float* norm, int position, float scale, float* to) {
    const int half = m.head_dim / 2;
    const float* const cosines = m.cosines + (size_t)position * half;
    const float* const sines = m.sines + (size_t)position * half;
    const float factor = norm ? inverse_root_mean_square(from, m.head_dim, m.head_dim, m.norm_epsilon) : 1.0f;
    for (int i = 0; i < half; i += LANES) {
        Floats low = load(from + i), high = load(from + half + i);
        if (norm) low = low * factor * load(norm + i), high = high * factor * load(norm + half + i);
        const Floats cosine = load(cosines + i), sine = load(sines + i);
        store(to + i, fused(low, cosine, -(high * sine)) * scale);
        store(to + half + i, fused(high, cosine, low * sine) * scale);
    }
}

// What attention multiplies: a lane is a float32, stored so or WIDENED from bfloat16, or a pair of bfloat16.
enum Lane { PLAIN, WIDENED, PAIR };

template <int LANE>
IN Ints load_kv(const void* kv, int64_t place) {
    if constexpr (LANE == PLAIN) return load_ints((const float*)kv + place);
    if constexpr (LANE == WIDENED) return (Ints)widen((const uint16_t*)kv + place);
    return load_ints((const uint16_t*)kv + place);
}

// One KV head of one sequence in a layer, and the queries of the new tokens that look at it: those of their heads that
// share it, in the order [tokens, group].
struct Attended {
    const Sequence& sequence;
    const LayerWeights& layer;
    int64_t base;  // where its keys begin
    int kv_head, group, first_token, queries;
};

// Writes the KV of the new tokens that fall into a chunk of keys. The thread that has the chunk does it, so nobody
// has to wait for anybody.
FN void append_kv(Decoder& d, Scratch& scratch, const Attended& a, int begin, int end) {
    const Model& m = d.model;
    for (int position = std::max(begin, a.sequence.start); position < end; ++position) {
        const int token = a.first_token + position - a.sequence.start;
        const float* const k = d.qkv.get() + (size_t)token * a.layer.qkv.rows + (m.heads + a.kv_head) * m.head_dim;
        float* const turned = (float*)scratch.tiles.get();
        turn_head(m, k, a.layer.k_norm, position, 1.0f, turned);
        const float* const rows[] = {turned, k + m.kv_heads * m.head_dim};
        int64_t place = a.base + (int64_t)position * m.head_dim;
        for (int i = 0; i < 2; ++i, place += a.sequence.value_stride)
            for (int column = 0; column < m.head_dim; column += LANES) {
                if (a.sequence.kv_type == FLOAT32) store((float*)a.sequence.kv + place + column, load(rows[i] + column));
                else store_bf16((uint16_t*)a.sequence.kv + place + column, load(rows[i] + column));
            }
    }
}

// Its queries, turned, to `scratch` [queries, lanes].
template <int D, int LANE>
FN void turn_queries(Decoder& d, Scratch& scratch, const Attended& a) {
    constexpr int WORDS = LANE == PAIR ? D / 2 : D;
    for (int query = 0; query < a.queries; ++query) {
        const int token = a.first_token + query / a.group, head = a.kv_head * a.group + query % a.group;
        const float* const q = d.qkv.get() + (size_t)token * a.layer.qkv.rows + head * D;
        int32_t* const to = scratch.queries.get() + query * WORDS;
        float* const turned = LANE == PAIR ? (float*)scratch.tiles.get() : (float*)to;
        turn_head(d.model, q, a.layer.q_norm, d.positions[token], d.model.attention_scale, turned);
        for (int i = 0; LANE == PAIR && i < D; i += LANES) store_bf16((uint16_t*)to + i, load(turned + i));
    }
}

// The products of QUERIES queries [QUERIES, WORDS] with TILES tiles of keys [WORDS, LANES]: what is loaded of a query
// serves all tiles, what is loaded of a tile all queries.
template <int WORDS, bool PAIRS, int QUERIES = QUERIES_AT_ONCE>
FN void dot_keys(int queries, const int32_t* q, const int32_t* tiles, float* scores) {
    if (queries < QUERIES) {
        if constexpr (QUERIES > 1) dot_keys<WORDS, PAIRS, QUERIES - 1>(queries, q, tiles, scores);
        return;
    }
    Floats sums[2][QUERIES][TILES] = {};
    for (int i = 0; i < WORDS; i += 2)
        for (int odd = 0; odd < 2; ++odd) {
            Ints keys[TILES];
            for (int tile = 0; tile < TILES; ++tile) keys[tile] = load_ints(tiles + (tile * WORDS + i + odd) * LANES);
            for (int query = 0; query < QUERIES; ++query)
                for (int tile = 0; tile < TILES; ++tile)
                    sums[odd][query][tile] =
                        multiplied<PAIRS>(sums[odd][query][tile], keys[tile], q + query * WORDS + i + odd);
        }
    for (int query = 0; query < QUERIES; ++query)
        for (int tile = 0; tile < TILES; ++tile)
            store(scores + query * CHUNK + tile * LANES, sums[0][query][tile] + sums[1][query][tile]);
}

// Scores of the first `count` of `keys` keys become e^(score - largest), rounded to bfloat16 and packed where PAIRS are
// multiplied; zero for the others.
template <bool PAIRS>
FN void soften(float* scores, int count, int keys, float* largest, float* sum) {
    const auto keep = [&](int key, Floats weights) TARGET {
        if constexpr (PAIRS) store_bf16((uint16_t*)scores + key, weights);  // never beyond what has been read
        else store(scores + key, weights);
    };
    const int whole = (count + LANES - 1) / LANES * LANES;
    for (int key = count; key < whole; ++key) scores[key] = -INFINITY;
    Floats most = spread(-INFINITY), total = {};
    for (int key = 0; key < whole; key += LANES) most = larger(load(scores + key), most);
    *largest = largest_lane(most);
    for (int key = 0; key < whole; key += LANES) {
        const Floats score = load(scores + key), weight = exponential(score - *largest);
        const Floats kept = score == -INFINITY ? Floats{} : weight;
        keep(key, kept);
        total += kept;
    }
    for (int key = whole; key < keys; key += LANES) keep(key, Floats{});
    *sum = sum_lanes(total);
}

// LANES numbers of a value and as many behind them; of pairs, the numbers of two keys' values, side by side.
template <int LANE>
IN void load_values(const void* kv, int64_t place, int64_t next, Ints* lanes) {
#if LEVEL == LEVEL_AVX512_BF16
    if constexpr (LANE == PAIR) {
        const __m512i one = (__m512i)load_kv<PAIR>(kv, place), other = (__m512i)load_kv<PAIR>(kv, next);
        lanes[0] = (Ints)_mm512_unpacklo_epi16(one, other), lanes[1] = (Ints)_mm512_unpackhi_epi16(one, other);
        return;
    }
#endif
    (void)next;
    lanes[0] = load_kv<LANE>(kv, place), lanes[1] = load_kv<LANE>(kv, place + LANES);
}

// Unpacking works within 128 bits: what it took apart is put together again.
template <int LANE>
IN void store_sums(float* to, Floats a, Floats b) {
#if LEVEL == LEVEL_AVX512_BF16
    if constexpr (LANE == PAIR) {
        const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
        const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
        store(to, _mm512_permutex2var_ps(a, low, b)), store(to + LANES, _mm512_permutex2var_ps(a, high, b));
        return;
    }
#endif
    store(to, a), store(to + LANES, b);
}

// So many keys' values are weighted for all queries before the next ones are: of float32, what fits a small L1 cache.
template <int LANE>
constexpr int KEYS_AT_ONCE = LANE == PAIR ? CHUNK : CHUNK / 4;

// The sums of the values of `count` keys at `place`, weighted with each of QUERIES rows of weights [CHUNK], to their
// places; with GOES_ON, added to those that are there.
template <int D, int LANE, bool GOES_ON, int QUERIES = QUERIES_AT_ONCE>
FN void sum_values(int queries, const int32_t* weights, const void* kv, int64_t place, int count, float* to,
                   const int64_t* places) {
    if (queries < QUERIES) {
        if constexpr (QUERIES > 1)
            sum_values<D, LANE, GOES_ON, QUERIES - 1>(queries, weights, kv, place, count, to, places);
        return;
    }
    constexpr int KEYS = LANE == PAIR ? 2 : 1, AT_ONCE = D % (4 * LANES) == 0 ? 4 : 2;  // vectors of a value
    for (int column = 0; column < D; column += AT_ONCE * LANES) {
        Floats sums[QUERIES][AT_ONCE] = {};
        if constexpr (GOES_ON)
            for (int query = 0; query < QUERIES; ++query)
                for (int v = 0; v < AT_ONCE; ++v) sums[query][v] = load(to + places[query] * D + column + v * LANES);
        for (int key = 0; key < count; key += KEYS) {
            const int64_t row = place + (int64_t)key * D + column, next = key + 1 < count ? row + D : row;
            Ints values[AT_ONCE];
            for (int v = 0; v < AT_ONCE; v += 2) load_values<LANE>(kv, row + v * LANES, next + v * LANES, values + v);
            for (int query = 0; query < QUERIES; ++query)
                for (int v = 0; v < AT_ONCE; ++v)
                    sums[query][v] =
                        multiplied<LANE == PAIR>(sums[query][v], values[v], weights + query * CHUNK + key / KEYS);
        }
        for (int query = 0; query < QUERIES; ++query)
            for (int v = 0; v < AT_ONCE; v += 2)
                store_sums<LANE>(to + places[query] * D + column + v * LANES, sums[query][v], sums[query][v + 1]);
    }
}

// Attention of the queries in `scratch` to the keys [begin, end) of a chunk; leaves a partial softmax: the largest score,
// the sum of the weights, and the weighted sum of the values.
template <int D, int LANE>
FN void attend_chunk(Decoder& d, Scratch& scratch, const Attended& a, int begin, int end) {
    constexpr int WORDS = LANE == PAIR ? D / 2 : D, PER_WORD = D / WORDS, BYTES = LANE == PLAIN ? 4 : 2;
    float* const scores = scratch.scores.get();
    int32_t* const tiles = scratch.tiles.get();
    const char* const keys = (const char*)a.sequence.kv + a.base * BYTES;
    for (int first = begin; first < end; first += TILES * LANES) {
        for (int byte = 0; byte < TILES * LANES * D * BYTES; byte += LINE) {  // values, and keys of a later tile
            const char* const line = keys + (int64_t)first * D * BYTES + byte;
            __builtin_prefetch(line + a.sequence.value_stride * BYTES);
            __builtin_prefetch(line + PREFETCH);
        }
        for (int tile = 0; tile < TILES; ++tile)
            for (int i = 0; i < WORDS; i += LANES) {
                Ints rows[LANES];
                for (int key = 0; key < LANES; ++key) {  // nothing beyond the keys is read
                    const int64_t row = a.base + (int64_t)std::min(first + tile * LANES + key, end - 1) * D;
                    rows[key] = load_kv<LANE>(a.sequence.kv, row + i * PER_WORD);
                }
                transpose(rows);
                for (int row = 0; row < LANES; ++row) store_ints(tiles + (tile * WORDS + i + row) * LANES, rows[row]);
            }
        for (int query = 0; query < a.queries; query += QUERIES_AT_ONCE)
            dot_keys<WORDS, LANE == PAIR>(std::min(QUERIES_AT_ONCE, a.queries - query),
                                          scratch.queries.get() + query * WORDS, tiles,
                                          scores + query * CHUNK + first - begin);
    }
    int64_t places[MAX_TOKENS * MAX_GROUP];
    for (int query = 0; query < a.queries; ++query) {
        const int token = a.first_token + query / a.group, head = a.kv_head * a.group + query % a.group;
        const int64_t place = places[query] = (int64_t)(token * d.model.heads + head) * d.chunks + begin / CHUNK;
        const int visible = std::max(std::min(end, d.positions[token] + 1) - begin, 0);
        soften<LANE == PAIR>(scores + query * CHUNK, visible, end - begin, &d.largest[place], &d.sums[place]);
    }
    for (int first = begin; first < end; first += KEYS_AT_ONCE<LANE>)
        for (int query = 0; query < a.queries; query += QUERIES_AT_ONCE) {
            const auto sum = first == begin ? sum_values<D, LANE, false> : sum_values<D, LANE, LANE != PAIR>;
            sum(std::min(QUERIES_AT_ONCE, a.queries - query), (const int32_t*)scores + query * CHUNK + first - begin,
                a.sequence.kv, a.base + a.sequence.value_stride + (int64_t)first * D,
                std::min(KEYS_AT_ONCE<LANE>, end - first), d.sums_of_values.get(), places + query);
        }
}

// Units are chunks of KV heads of sequences: those of `run`, and those that the thread gets after it.
template <int D>
FN void attend(Decoder& d, int thread, Share run, int layer_index) {
    const Model& m = d.model;
    Scratch& scratch = d.scratch[thread];
    int turned = -1;  // which queries are in `scratch`
    do {
        for (int unit = run.begin; unit < run.end; ++unit) {
            int index = 0;
            while (unit >= m.kv_heads * d.first_chunks[index + 1]) ++index;
            const Sequence& s = d.sequences[index];
            const int chunks = d.first_chunks[index + 1] - d.first_chunks[index];
            const int within = unit - m.kv_heads * d.first_chunks[index], head = within / chunks;
            const int chunk = within % chunks, begin = chunk * CHUNK, end = std::min(begin + CHUNK, s.start + s.tokens);
            const int64_t base = layer_index * s.layer_stride + head * s.head_stride;
            const int group = m.heads / m.kv_heads;
            const Attended a{s, d.layers[layer_index], base, head, group, d.first_tokens[index], s.tokens * group};
            const auto lanes = s.kv_type == FLOAT32 ? PLAIN : HAS_PAIRS ? PAIR : WIDENED;
            if (turned != unit - chunk) lanes == PAIR ? turn_queries<D, PAIR>(d, scratch, a) : turn_queries<D, PLAIN>(d, scratch, a);
            turned = unit - chunk;
            append_kv(d, scratch, a, begin, end);
            if (lanes == PLAIN) attend_chunk<D, PLAIN>(d, scratch, a, begin, end);
            else attend_chunk<D, HAS_PAIRS ? PAIR : WIDENED>(d, scratch, a, begin, end);
        }
    } while (d.team.take(thread, run));
}

FN void attend(Decoder& d, int thread, Share run, int layer_index) {
    switch (d.model.head_dim) {
        case 32: return attend<32>(d, thread, run, layer_index);
        case 64: return attend<64>(d, thread, run, layer_index);
        case 96: return attend<96>(d, thread, run, layer_index);
        case 128: return attend<128>(d, thread, run, layer_index);
    }
}

// The chunks' partial softmaxes made one, for all heads of all tokens.
FN Input merged(const Decoder& d, Scratch& scratch, int columns) {
    const Model& m = d.model;
    for (int t = 0; t < d.tokens; ++t) {
        const int used = d.positions[t] / CHUNK + 1;
        float* const row = scratch.rows.get() + (size_t)t * columns;
        for (int head = 0; head < m.heads; ++head) {
            const int64_t partial = (int64_t)(t * m.heads + head) * d.chunks;
            float largest = -INFINITY, total = 0.0f;
            for (int c = 0; c < used; ++c) largest = std::max(largest, d.largest[partial + c]);
            float* const weights = scratch.scores.get();
            for (int c = 0; c < used; c += LANES) store(weights + c, exponential(load(&d.largest[partial + c]) - largest));
            for (int c = 0; c < used; ++c) total += weights[c] * d.sums[partial + c];
            for (int i = 0; i < m.head_dim; i += LANES) {
                Floats sum = {};
                for (int c = 0; c < used; ++c)
                    sum = fused(spread(weights[c]), load(&d.sums_of_values[(partial + c) * m.head_dim + i]), sum);
                store(row + head * m.head_dim + i, sum / total);
            }
        }
        std::fill(row + m.heads * m.head_dim, row + columns, 0.0f);
    }
    return prepare(d, scratch, scratch.rows.get(), d.tokens, columns);
}

// The greedy choice among logits, the first of equals.
FN Choice choose(const float* logits, int count) {
    Floats most = spread(-INFINITY), total = {};
    const int whole = count - count % LANES;
    for (int i = 0; i < whole; i += LANES) most = larger(load(logits + i), most);
    float largest = largest_lane(most), sum = 0.0f;
    for (int i = whole; i < count; ++i) largest = std::max(largest, logits[i]);
    for (int i = 0; i < whole; i += LANES) total += exponential(load(logits + i) - largest);
    for (int i = whole; i < count; ++i) sum += std::exp(logits[i] - largest);
    const int32_t best = (int32_t)(std::find(logits, logits + count - 1, largest) - logits);
    return {best, -std::log(sum + sum_lanes(total))};
}

// ------------------------------------------------------------------------------------------------------ the forward

// What a thread does in a stage: take units, or leave where there are none; compute what they all need (norms,
// the merged attention, quantized inputs), which is cheaper for every thread than a stage of its own; compute them.
FN void work(Decoder& d, int thread, int stage) {
    Share run;
    if (!d.team.take(thread, run)) return;
    const Model& m = d.model;
    Scratch& scratch = d.scratch[thread];
    const int tokens = d.tokens, hidden = m.head.columns, index = stage / STAGES;
    if (stage == m.layers * STAGES + HEAD) {
        const Input x = normalized(d, scratch, m.final_norm, d.wanted, d.wanted_tokens);
        return project(d, thread, run, m.head, x, d.wanted, STORE, d.logits, m.head.rows);
    }
    if (stage == m.layers * STAGES + CHOICE) {
        do {
            for (int row = run.begin; row < run.end; ++row)
                d.choices[row] = choose(d.logits + (size_t)row * m.head.rows, m.vocabulary);
        } while (d.team.take(thread, run));
        return;
    }
    const LayerWeights& layer = d.layers[index];
    switch (stage % STAGES) {
        case QKV: {
            const Input x = normalized(d, scratch, layer.attention_norm, tokens);
            return project(d, thread, run, layer.qkv, x, tokens, STORE, d.qkv.get(), layer.qkv.rows);
        }
        case ATTENTION: return attend(d, thread, run, index);
        case ATTENTION_OUT: {
            const Input x = merged(d, scratch, layer.attention_out.columns);
            return project(d, thread, run, layer.attention_out, x, tokens, ADD, d.residual.get(), hidden);
        }
        case GATE_UP: {
            const Input x = normalized(d, scratch, layer.mlp_norm, tokens);
            return project(d, thread, run, layer.gate_up, x, tokens, GATE, d.activated.get(), layer.down.columns);
        }
        case DOWN: {
            const Input x = prepare(d, scratch, d.activated.get(), tokens, layer.down.columns);
            return project(d, thread, run, layer.down, x, tokens, ADD, d.residual.get(), hidden);
        }
    }
}

#endif  // LEVEL
