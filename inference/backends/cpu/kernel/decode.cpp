// midfill's CPU kernel: the whole forward pass of a Llama-family or hybrid model for a few new tokens, behind a plain C ABI.
//
// Decoding one token, verifying a few drafted ones, and the prefill of a keystroke read every weight of the model and the
// KV of every resident token, to do little arithmetic with each: they are bound by memory, and by the overhead of many
// small operations. Here the forward is one call. Weights are streamed once, in the order in which they lie in memory, and
// the threads meet five or six times per layer. Long prefills are cut into such calls.
//
// The rooms: model.h (what the caller hands over, and the layout of weights), blocks.h (GGUF's weights), packing.h,
// team.h (threads), decoder.h (buffers and the order of stages), and per instruction-set level, in level.h: vectors.h
// (SIMD), inputs.h (norms and quantized inputs), products.h (matrix products), attention.h, recurrence.h (layers with a
// state), stages.h (what a thread does in a stage).
//
// The same bits. Whatever the number of threads, of tokens and of sequences in the call, a number is computed by the same
// operations in the same order: a row's dot product runs over its columns one after another, attention over chunks that
// begin at multiples of CHUNK, a recurrence over tokens one after another. Only the thread that computes it changes. Between levels the bits differ.

#include <cmath>
#include <system_error>
#include <type_traits>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include "blocks.h"
#include "decoder.h"
#include "packing.h"

namespace midfill {

// The order of the levels is part of the C ABI.
#define LEVEL_PORTABLE 0
#define LEVEL_AVX2 1
#define LEVEL_AVX2_VNNI 2
#define LEVEL_AVX512 3
#define LEVEL_AVX512_BF16 4

#define LEVEL LEVEL_PORTABLE
namespace portable {
#include "level.h"
}
#if defined(__x86_64__)
#undef LEVEL
#define LEVEL LEVEL_AVX2
namespace avx2 {
#include "level.h"
}
#undef LEVEL
#define LEVEL LEVEL_AVX2_VNNI
namespace avx2_vnni {
#include "level.h"
}
#undef LEVEL
#define LEVEL LEVEL_AVX512
namespace avx512 {
#include "level.h"
}
#undef LEVEL
#define LEVEL LEVEL_AVX512_BF16
namespace avx512_bf16 {
#include "level.h"
}

constexpr Level LEVELS[] = {portable::work, avx2::work, avx2_vnni::work, avx512::work, avx512_bf16::work};

static bool runs_here(int level) {
    unsigned a = 0, b = 0, features = 0, d = 0;
    const bool f16c = __get_cpuid(1, &a, &b, &features, &d) && (features & bit_F16C);  // a name that old GCC do not know
    const bool avx2 = f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
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

static bool runs_here(int level) { return level == LEVEL_PORTABLE; }
#endif

}  // namespace midfill

using midfill::Choice;
using midfill::Decoder;
using midfill::Model;
using midfill::Sequence;

// The C ABI. The binding checks shapes, token ids and positions, and says what is wrong; nothing is checked here.
extern "C" {

#define EXPORT __attribute__((visibility("default")))

// Changes whenever a structure, a function or a layout here does.
EXPORT int midfill_kernel_version() { return 11; }

EXPORT int midfill_kernel_runs(int level) { return midfill::runs_here(level); }

// Null, and a decoder in `made`; or what went wrong. What `model` points to has to outlive the decoder.
EXPORT const char* midfill_kernel_create(const Model* model, int threads, int level, Decoder** made) {
    if (!midfill::runs_here(level)) return "this CPU does not have the instructions of that level";
    try {
        *made = new Decoder(*model, threads, midfill::LEVELS[level]);
        return nullptr;
    } catch (const std::bad_alloc&) {
        return "not enough memory";
    } catch (const std::system_error&) {
        return "the system gives no more threads";
    }
}

EXPORT void midfill_kernel_destroy(Decoder* decoder) { delete decoder; }

// Packs the numbers of a quantized type, a byte each, of rows [rows, columns] into whole units with `padded` columns.
EXPORT void midfill_kernel_pack(const uint8_t* numbers, int64_t rows, int64_t columns, int64_t padded, int type,
                                uint8_t* packed) {
    midfill::pack_numbers(numbers, rows, columns, padded, type, packed);
}

// Reads rows of a GGUF tensor, as `read_rows` says; `minima` is null for types without.
EXPORT void midfill_kernel_read(int format, const uint8_t* stored, const int64_t* sources, const int64_t* places,
                                int64_t count, int64_t columns, int type, uint8_t* numbers, uint16_t* scales,
                                uint16_t* minima) {
    midfill::read_rows(format, stored, sources, places, count, columns, type, numbers, scales, minima);
}

// Runs the new tokens of `count` sequences, `token_ids` being all of theirs: writes their KV, and logits [wanted, head.rows]
// and greedy choices [wanted] of those that are wanted, where they are not null.
EXPORT void midfill_kernel_forward(Decoder* decoder, const int32_t* token_ids, const Sequence* sequences, int count,
                                   float* logits, Choice* choices) {
    decoder->logits = logits ? logits : decoder->own_logits.get();
    decoder->choices = choices;
    decoder->run(token_ids, sequences, count);
}

}  // extern "C"
