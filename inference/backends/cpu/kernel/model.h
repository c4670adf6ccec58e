// The structures that the caller passes to the kernel, mirrored by library.py. Their layout is part of the C ABI.
//
// Weights. A matrix [rows, columns] is cut into units of UNIT rows, the smallest piece of work. A unit is stored column
// by column: 32 bits of its first row, 32 bits of its second, and so on: one column of float32, a pair of bfloat16, four
// of int8 or eight of int4. A vector therefore holds the same columns of several rows, is multiplied by one broadcast
// input, and each lane sums one row: the kernel never adds across lanes, and reads memory from front to back. In
// `gate_up` a unit is HALF rows of the gate and the same HALF rows of up, so that SwiGLU happens where the unit is
// computed. Columns are padded with zeros to a multiple of BLOCK, rows to one of UNIT. Each matrix has a type of its own,
// as in a GGUF file.
//   int8, int4: each GROUP columns of a row share a float16 scale, as in GGUF files. int8 numbers are stored plus 128, as
//   unsigned numbers; scales are [unit, group, row]. int4 numbers are 0 to 15 and have a float16 minimum per group as well
//   (weight = number * scale + minimum); the low halves of a word's four bytes are its first four columns, the high
//   halves the next four; scales and minima are [unit, group, 2, row]. Inputs are quantized to int8 with a scale per
//   GROUP columns when they are needed.
//   centred int4: int4 whose minima are all -8 times the scales, as GGUF's Q4_0 has them, stored without the minima:
//   weight = (number - 8) * scale.
//   narrow float32: float32 weights that lose nothing as bfloat16 (those of most published models) are stored as
//   bfloat16; the arithmetic, to the bit, is that of float32.
//   bfloat16: inputs are rounded to bfloat16; sums are float32. Residuals, norms and softmaxes are always float32.
#pragma once

#include <cstdint>

namespace midfill {

constexpr int HALF = 16, UNIT = 2 * HALF, BLOCK = 64, GROUP = 32, CHUNK = 256;
constexpr int MAX_TOKENS = 32, MAX_GROUP = 32;  // new tokens in a call; heads that share a KV head
constexpr int PREFETCH = 4096;                  // how far ahead weights are fetched, in bytes
constexpr int LINE = 64;                        // bytes of a cache line
constexpr int MAX_LANES = 16, TILES = 2;        // of a vector; of keys that are attended to at a time

enum NumberType { FLOAT32, BFLOAT16, INT8, NARROW_FLOAT32, INT4, CENTRED_INT4 };

constexpr bool is_int4(int type) { return type == INT4 || type == CENTRED_INT4; }
constexpr bool is_quantized(int type) { return type == INT8 || is_int4(type); }

struct Matrix {
    const void* weights;
    const uint16_t* scales;       // of quantized types only
    const float* bias;            // [rows] or null
    int32_t rows, columns, type;  // padded; a NumberType
};

struct LayerWeights {
    Matrix qkv, attention_out, gate_up, down;
    const float *attention_norm, *mlp_norm;  // [padded hidden]
    const float *q_norm, *k_norm;            // [head_dim] or null
};

struct Model {
    int32_t layers, hidden, heads, kv_heads, head_dim, vocabulary, positions;
    float norm_epsilon, attention_scale;
    Matrix embedding;  // [vocabulary, hidden]; the head if the two are tied
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

}  // namespace midfill
