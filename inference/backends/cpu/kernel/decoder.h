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

enum Stage { QKV, CONVOLUTION, MIXING, MIXED_OUT, GATE_UP, DOWN, STAGES };  // of a layer; MIXING is of tokens, by attention
enum LastStage { HEAD, CHOICE };                                            // after all layers

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
    void clear_padding(const LayerWeights& layer);

    const Model model;
    const std::vector<LayerWeights> layers;
    const int chunks;  // that `positions` tokens fill
    const Level level;
    // shared by the threads, [tokens, ...]
    Buffer<float> residual, qkv, mixed, activated, own_logits;
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

// The largest of a number of every layer.
template <typename F>
size_t widest_of(const std::vector<LayerWeights>& layers, F number) {
    int widest = 0;
    for (const LayerWeights& layer : layers) widest = std::max(widest, number(layer));
    return widest;
}

inline size_t mixed_columns(const std::vector<LayerWeights>& layers) {
    return widest_of(layers, [](const LayerWeights& layer) { return layer.attention_out.columns; });
}

inline Decoder::Decoder(const Model& m, int threads, Level level)
    : model(m),
      layers(m.layer_weights, m.layer_weights + m.layers),
      chunks(chunks_of(m.positions)),
      level(level),
      residual(buffer<float>((size_t)MAX_TOKENS * m.head.columns)),
      qkv(buffer<float>(MAX_TOKENS * widest_of(layers, [](const LayerWeights& layer) { return all_rows(layer.qkv); }))),
      mixed(buffer<float>(MAX_TOKENS * mixed_columns(layers))),
      activated(buffer<float>((size_t)MAX_TOKENS * layers[0].down.columns)),
      own_logits(buffer<float>((size_t)MAX_TOKENS * m.head.rows)),
      largest(buffer<float>((size_t)MAX_TOKENS * m.heads * chunks)),
      sums(buffer<float>((size_t)MAX_TOKENS * m.heads * chunks)),
      sums_of_values(buffer<float>((size_t)MAX_TOKENS * m.heads * chunks * m.head_dim)),
      team(threads, [](void* self, int thread, int stage) {
          Decoder& decoder = *static_cast<Decoder*>(self);
          decoder.level(decoder, thread, stage);
      }, this) {
    const size_t widest = std::max({(size_t)m.head.columns, mixed_columns(layers), (size_t)layers[0].down.columns});
    const size_t queries = (size_t)MAX_TOKENS * (m.heads / m.kv_heads), wide = MAX_TOKENS * widest;
    const size_t query_and_key = 2 * (size_t)m.key_dim;  // of `recur`
    for (int thread = 0; thread < threads; ++thread)
        scratch.push_back({buffer<float>(std::max(wide, query_and_key)), buffer<float>(wide / GROUP), buffer<float>(wide / GROUP),
                           buffer<float>(std::max(queries * CHUNK, (size_t)chunks)), buffer<int32_t>(wide),
                           buffer<int32_t>(QKV_PARTS * 2 * wide / GROUP), buffer<int32_t>(queries * m.head_dim),
                           buffer<int32_t>((size_t)TILES * MAX_LANES * m.head_dim)});
    // the padding is multiplied with zeros, so it must not be NaN
    std::fill_n(residual.get(), (size_t)MAX_TOKENS * m.head.columns, 0.0f);
    std::fill_n(mixed.get(), MAX_TOKENS * mixed_columns(layers), 0.0f);
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

// The number of a column, from the words of its row, which lie UNIT apart.
inline int number(int type, const uint32_t* words, int column) {
    if (type == INT8) return (int)(words[(size_t)(column / 4) * UNIT] >> column % 4 * 8 & 255);
    const int upper = upper_words(type), within = column % GROUP, byte = column % 4 * 8;
    const uint32_t* const group = words + (size_t)(column / GROUP) * (GROUP / 8 + upper) * UNIT;
    const int low = (int)(group[(size_t)(upper + within / 8) * UNIT] >> (byte + within % 8 / 4 * 4) & 15);
    switch (type) {
        case INT5: return low | (int)(group[0] >> (byte + within / 4) & 1) << 4;
        case INT6: return low | (int)(group[within / 16 * UNIT] >> (byte + within % 16 / 4 * 2) & 3) << 4;
        default: return low;
    }
}

// The first `count` numbers of one row, which lies in the unit that the row belongs to.
inline void read_row(const Matrix& matrix, int row, int count, float* to) {
    const int lane = row % UNIT, unit = row / UNIT, type = matrix.type, per_group = scales_of_group(type);
    const uint32_t* const words = (const uint32_t*)matrix.weights + (size_t)unit * words_of(type, matrix.columns) * UNIT + lane;
    const uint16_t* const halves = (const uint16_t*)matrix.weights + (size_t)unit * matrix.columns * UNIT + lane;
    const int centre = type == INT8 ? 128 : type == INT6 ? 32 : type == CENTRED_INT4 ? 8 : 0;
    const size_t step = has_minima(type) ? 2 * UNIT : UNIT;  // from one scale to the next
    const size_t scales_of_unit = (size_t)(matrix.columns / GROUP) * per_group * step;
    const uint16_t* const scales = is_quantized(type) ? matrix.scales + unit * scales_of_unit + lane : nullptr;
    for (int i = 0; i < count; ++i) {
        if (is_quantized(type)) {
            const uint16_t* const scale = scales + i / (GROUP / per_group) * step;
            const float centred = (float)(number(type, words, i) - centre) * float16(scale[0]);
            to[i] = has_minima(type) ? centred + float16(scale[UNIT]) : centred;
        } else if (type == FLOAT16) to[i] = float16(halves[(size_t)i * UNIT]);
        else if (type == FLOAT32) to[i] = as_float(words[(size_t)i * UNIT]);
        else to[i] = as_float(i % 2 ? words[(size_t)(i / 2) * UNIT] & 0xffff0000u : words[(size_t)(i / 2) * UNIT] << 16);
    }
}

// Zeros what lies in `mixed` behind the columns of a recurrent layer, and may be of a layer of another width.
inline void Decoder::clear_padding(const LayerWeights& layer) {
    const int used = layer.kind == GATED_DELTA ? model.value_heads * model.value_dim : model.hidden;
    const size_t columns = layer.attention_out.columns;
    for (int t = 0; t < tokens; ++t) std::fill(&mixed[t * columns + used], &mixed[(t + 1) * columns], 0.0f);
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
            float* const row = residual.get() + (size_t)tokens * model.head.columns;
            read_row(model.embedding, token_ids[tokens], model.hidden, row);
            for (int i = 0; i < model.hidden; ++i) row[i] *= model.embedding_scale;
            if (t >= sequence.tokens - sequence.wanted) wanted_tokens[wanted++] = tokens;
        }
    }
    for (int layer = 0; layer < model.layers; ++layer) {
        const LayerWeights& weights = layers[layer];
        const int mixing = weights.kind == ATTENTION_LAYER ? model.kv_heads * first_chunks[count]
                           : weights.kind == GATED_DELTA   ? model.value_heads * count
                                                           : 0;
        const int units[STAGES] = {all_rows(weights.qkv) / UNIT, count * channels_of(model, weights.kind) / UNIT, mixing,
                                   weights.attention_out.rows / UNIT, weights.gate_up.rows / UNIT,
                                   weights.down.rows / UNIT};
        if (weights.kind != ATTENTION_LAYER) clear_padding(weights);
        for (int stage = 0; stage < STAGES; ++stage)
            if (units[stage] > 0) team.run(layer * STAGES + stage, units[stage]);
    }
    if (wanted > 0) team.run(model.layers * STAGES + HEAD, model.head.rows / UNIT);
    if (wanted > 0 && choices) team.run(model.layers * STAGES + CHOICE, wanted);
}

}  // namespace midfill
