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
//   int5: as int4, with numbers from 0 to 31; before the words of each group stands one with their fifth bits: bit f of
//   byte b is that of column 4 * f + b. int6: numbers from 0 to 63, weight = (number - 32) * scale, and a scale for each
//   half of a group; before the words of a group stand two, one for each half, with two upper bits of each number: bits 2 f
//   and 2 f + 1 of byte b are those of column 4 * f + b of the half.
//   narrow float32: float32 weights that lose nothing as bfloat16 (those of most published models) are stored as
//   bfloat16; float16: those that lose nothing as float16, one column of the unit behind the other. The arithmetic of
//   both is that of float32, to the bit.
//   bfloat16: inputs are rounded to bfloat16; sums are float32. Residuals, norms and softmaxes are always float32.
#pragma once

#include <cstdint>

namespace midfill {

constexpr int HALF = 16, UNIT = 2 * HALF, BLOCK = 64, GROUP = 32, CHUNK = 256;
constexpr int MAX_TOKENS = 32, MAX_GROUP = 32;  // new tokens in a call; heads that share a KV head
constexpr int PREFETCH = 4096;                  // how far ahead weights are fetched, in bytes
constexpr int LINE = 64;                        // bytes of a cache line
constexpr int QKV_PARTS = 4;                    // most matrices that hold the rows of queries, keys and values, or of gates
constexpr int MOST_KEPT = 3;                    // of a convolution's inputs
constexpr int MAX_LANES = 16, TILES = 2;        // of a vector; of keys that are attended to at a time

// What a layer does before its MLP. A recurrent one has a state instead of KV.
//   SHORT_CONVOLUTION: `qkv` gives B, C and x [hidden each]; the output is C * the convolution of B * x over tokens.
//   GATED_DELTA: `qkv` gives queries, keys [key_heads * key_dim each], values, gates of the output [value_heads *
//   value_dim each], and for each value head a learning rate and a decay; queries, keys and values are convolved.
enum LayerKind { ATTENTION_LAYER, SHORT_CONVOLUTION, GATED_DELTA };

enum NumberType { FLOAT32, BFLOAT16, INT8, NARROW_FLOAT32, INT4, CENTRED_INT4, INT5, INT6, FLOAT16 };

constexpr bool has_minima(int type) { return type == INT4 || type == INT5; }
constexpr bool has_nibbles(int type) { return has_minima(type) || type == CENTRED_INT4 || type == INT6; }
constexpr bool is_quantized(int type) { return type == INT8 || has_nibbles(type); }

// Words of a group that hold the bits of its numbers beyond four, and scales of a group.
constexpr int upper_words(int type) { return type == INT6 ? 2 : type == INT5 ? 1 : 0; }
constexpr int scales_of_group(int type) { return type == INT6 ? 2 : 1; }

// 32-bit words that `columns` numbers of a row take.
constexpr int words_of(int type, int columns) {
    switch (type) {
        case FLOAT32: return columns;
        case INT8: return columns / 4;
        default: return has_nibbles(type) ? columns / GROUP * (GROUP / 8 + upper_words(type)) : columns / 2;
    }
}

struct Matrix {
    const void* weights;
    const uint16_t* scales;       // of quantized types only
    const float* bias;            // [rows] or null
    const Matrix* next;           // the rows that follow, of another type, or null; of `qkv` alone
    int32_t rows, columns, type;  // padded; a NumberType
};

inline int all_rows(const Matrix& matrix) { return matrix.rows + (matrix.next ? all_rows(*matrix.next) : 0); }

struct LayerWeights {
    Matrix qkv, attention_out, gate_up, down;
    const float *attention_norm, *attention_norm_bias;  // [padded hidden]; with a bias it is a LayerNorm, or null: RMS
    const float *mlp_norm, *mlp_norm_bias;              // the same
    const float *q_norm, *k_norm;            // [head_dim] or null
    const float* taps;                       // [kept + 1, channels]: a convolution's, the newest input's last
    const float *decay, *decay_bias;         // [value_heads]; a decay is e^(decay * softplus(its input + decay_bias))
    const float* delta_norm;                 // [value_dim]
    int64_t state;                           // where its state begins; of attention: the index of its KV
    int32_t kind;                            // a LayerKind
};

struct Model {
    int32_t layers, hidden, heads, kv_heads, head_dim, vocabulary, positions;
    int32_t rotary_dim;    // of a head's numbers, the first ones are turned to their position
    int32_t gated_output;  // whether each head's query is followed by the gate of the head's output
    int32_t kept;          // inputs before the newest one that a convolution takes
    int32_t key_heads, value_heads, key_dim, value_dim;  // of GATED_DELTA
    int32_t tiled_heads;   // whether value head i has the key head i % key_heads; otherwise neighbours share one
    int32_t window;        // how many tokens attention sees, the newest with them; 0: all
    int32_t gated_mlp;     // whether it is SwiGLU; otherwise `gate_up` is one matrix, and GELU by tanh what follows it
    float norm_epsilon, attention_scale, embedding_scale, residual_scale;  // of Architecture
    Matrix embedding;  // [vocabulary, hidden]; the head if the two are tied
    const LayerWeights* layer_weights;
    const float *final_norm, *final_norm_bias;
    Matrix head;
    const float *cosines, *sines;  // [positions, rotary_dim / 2]
};

// Consecutive new tokens of one sequence, and the workspace that holds its KV. The states of recurrent layers, one behind
// the other, are read from `before`, or are zero if it is null, and written to `after`, which may be the same memory: of
// each the `kept` inputs of its convolution, the oldest first, and for GATED_DELTA [value_heads, key_dim, value_dim].
struct Sequence {
    void* kv;
    int64_t layer_stride, value_stride, head_stride;  // in numbers; a head's tokens lie one behind another
    const float* before;
    float* after;
    int32_t kv_type;
    int32_t tokens, start, wanted;  // `start` is the first one's position; logits are wanted of the last ones
};

// The channels of a layer's convolution; each is a multiple of UNIT.
inline int channels_of(const Model& m, int kind) {
    if (kind == GATED_DELTA) return 2 * m.key_heads * m.key_dim + m.value_heads * m.value_dim;
    return kind == SHORT_CONVOLUTION ? m.hidden : 0;
}

// The most probable next token and the natural logarithm of its probability.
struct Choice {
    int32_t token_id;
    float logprob;
};

}  // namespace midfill
