// The decoder: a model, its buffers and threads, and the order of stages in a call.
//
// A decoder serves one call at a time, from any thread; the caller serializes calls.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "model.h"
#include "team.h"

namespace midfill {

struct Release {
    template <typename T>
    void operator()(T* place) const { ::operator delete[](place, std::align_val_t{LINE}); }
};

template <typename T>
using Buffer = std::unique_ptr<T[], Release>;

// A buffer that takes no physical memory before it is written, with slack at its end for whole vectors.
template <typename T>
Buffer<T> buffer(size_t count) {
    return Buffer<T>(static_cast<T*>(::operator new[](count * sizeof(T) + LINE, std::align_val_t{LINE})));
}

enum Stage { QKV, ATTENTION, ATTENTION_OUT, GATE_UP, DOWN, STAGES };  // of a layer
enum LastStage { HEAD, CHOICE };                                      // after all layers

inline int chunks_of(int tokens) { return (tokens + CHUNK - 1) / CHUNK; }

// Scratch memory of one thread.
struct Scratch {
    Buffer<float> rows, scales, sums, scores;
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

inline Decoder::Decoder(const Model& m, int threads, Level level)
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
        scratch.push_back({buffer<float>(wide), buffer<float>(wide / GROUP), buffer<float>(wide / GROUP),
                           buffer<float>(std::max(queries * CHUNK, (size_t)chunks)), buffer<int32_t>(wide),
                           buffer<int32_t>(wide / GROUP), buffer<int32_t>(queries * m.head_dim),
                           buffer<int32_t>((size_t)TILES * MAX_LANES * m.head_dim)});
    // the padding is multiplied with zeros, so it must not be NaN
    std::fill_n(residual.get(), (size_t)MAX_TOKENS * m.head.columns, 0.0f);
    std::fill_n(activated.get(), (size_t)MAX_TOKENS * layers[0].down.columns, 0.0f);
}

inline float as_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// A float16 that is finite: its exponent is too small by 112 where float32 reads it.
inline float float16(uint16_t half) {
    return as_float((uint32_t)(half & 0x7fff) << 13) * 0x1p112f * (half & 0x8000 ? -1.0f : 1.0f);
}

// The int4 number of a column in its word of eight.
inline int nibble(uint32_t word, int column) { return word >> (column % 4 * 8 + column % 8 / 4 * 4) & 15; }

// The first `count` numbers of one row, which lies in the unit that the row belongs to.
inline void read_row(const Matrix& matrix, int row, int count, float* to) {
    const bool quantized = is_quantized(matrix.type);
    const int lane = row % UNIT, groups = matrix.columns / GROUP, per_group = matrix.type == INT4 ? 2 : 1;
    const int per_word = is_int4(matrix.type) ? 8 : matrix.type == INT8 ? 4 : matrix.type == FLOAT32 ? 1 : 2;
    const uint32_t* const words = (const uint32_t*)matrix.weights + (size_t)(row / UNIT) * (matrix.columns / per_word) * UNIT + lane;
    const uint16_t* const scales = quantized ? matrix.scales + (size_t)(row / UNIT) * groups * per_group * UNIT + lane : nullptr;
    for (int i = 0; i < count; ++i) {
        const uint32_t word = words[(size_t)(i / per_word) * UNIT];
        const uint16_t* const scale = quantized ? scales + (size_t)(i / GROUP) * per_group * UNIT : nullptr;
        switch (matrix.type) {
            case INT4: to[i] = (float)nibble(word, i) * float16(scale[0]) + float16(scale[UNIT]); break;
            case CENTRED_INT4: to[i] = (float)(nibble(word, i) - 8) * float16(scale[0]); break;
            case INT8: to[i] = (float)((int)(word >> i % 4 * 8 & 255) - 128) * float16(scale[0]); break;
            case FLOAT32: to[i] = as_float(word); break;
            default: to[i] = as_float(i % 2 ? word & 0xffff0000u : word << 16);  // pairs of bfloat16
        }
    }
}

inline void Decoder::run(const int32_t* token_ids, const Sequence* called, int count) {
    sequences = called;
    tokens = wanted = first_chunks[0] = 0;
    for (int index = 0; index < count; ++index) {
        const Sequence& sequence = sequences[index];
        first_tokens[index] = tokens;
        first_chunks[index + 1] = first_chunks[index] + chunks_of(sequence.start + sequence.tokens);
        for (int t = 0; t < sequence.tokens; ++t, ++tokens) {
            positions[tokens] = sequence.start + t;
            read_row(model.embedding, token_ids[tokens], model.hidden, residual.get() + (size_t)tokens * model.head.columns);
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

}  // namespace midfill
