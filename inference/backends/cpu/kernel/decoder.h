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

// One row of a quantized matrix, which lies in the unit that the row belongs to.
inline void dequantize(const Matrix& matrix, int row, int count, float* to) {
    const int lane = row % UNIT, groups = matrix.columns / GROUP, per_group = matrix.type == INT4 ? 2 : 1;
    const int per_word = matrix.type == INT4 ? 8 : 4, words = matrix.columns / per_word;
    const uint32_t* const numbers = (const uint32_t*)matrix.weights + (size_t)(row / UNIT) * words * UNIT + lane;
    const uint16_t* const scales = matrix.scales + (size_t)(row / UNIT) * groups * per_group * UNIT + lane;
    for (int i = 0; i < count; ++i) {
        const uint32_t word = numbers[(size_t)(i / per_word) * UNIT];
        const uint16_t* const scale = scales + (size_t)(i / GROUP) * per_group * UNIT;
        if (matrix.type == INT4)
            to[i] = (float)(word >> (i % 4 * 8 + i % 8 / 4 * 4) & 15) * float16(scale[0]) + float16(scale[UNIT]);
        else
            to[i] = (float)((int)(word >> i % 4 * 8 & 255) - 128) * float16(scale[0]);
    }
}

inline void embed(const Model& m, int token_id, float* to) {
    const size_t row = (size_t)token_id * m.hidden;
    switch (m.embedding.type) {
        case FLOAT32: memcpy(to, (const float*)m.embedding.weights + row, m.hidden * sizeof(float)); break;
        case BFLOAT16:
            for (int i = 0; i < m.hidden; ++i)
                to[i] = as_float((uint32_t)((const uint16_t*)m.embedding.weights)[row + i] << 16);
            break;
        default: dequantize(m.embedding, token_id, m.hidden, to);
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

}  // namespace midfill
