// Attention: rotary embedding, the new tokens' KV, and partial softmaxes over chunks of keys.
//
// Each sequence has a workspace: the engine's buffer, shared with torch, described by strides in numbers. K of a layer
// and KV head is [tokens, head_dim] in float32 or bfloat16; V lies `value_stride` behind it. Attention is split into
// chunks of CHUNK keys, each a partial softmax. The thread that computes a chunk also writes the new tokens' KV into it.
// Keys are transposed in tiles of LANES keys, so that no sum crosses lanes; two tiles at a time serve all queries of
// their KV head. If the CPU multiplies pairs of bfloat16 and the KV is bfloat16, queries and softmax weights are rounded
// to bfloat16 as well.

// One head of q or k: normalized if the model does so, rotated to its position (RoPE), times `scale`.
FN void turn_head(const Model& m, const float* from, const float* norm, int position, float scale, float* to) {
    const int half = m.rotary_dim / 2;
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
    for (int i = m.rotary_dim; i < m.head_dim; i += LANES)
        store(to + i, (norm ? load(from + i) * factor * load(norm + i) : load(from + i)) * scale);
}

// The numbers from one head's query to the next one's.
inline int query_step(const Model& m) { return m.gated_output ? 2 * m.head_dim : m.head_dim; }

// The operands of attention: a lane is a float32, stored as such or WIDENED from bfloat16, or a pair of bfloat16.
enum Lane { PLAIN, WIDENED, PAIR };

template <int LANE>
IN Ints load_kv(const void* kv, int64_t place) {
    if constexpr (LANE == PLAIN) return load_ints((const float*)kv + place);
    if constexpr (LANE == WIDENED) return (Ints)widen((const uint16_t*)kv + place);
    return load_ints((const uint16_t*)kv + place);
}

// The first position that a token sees.
inline int first_visible(const Model& m, int position) { return m.window ? std::max(position + 1 - m.window, 0) : 0; }

// One KV head of one sequence in a layer, and the queries of the new tokens that attend to it, from the heads that
// share it, in the order [tokens, group].
struct Attended {
    const Sequence& sequence;
    const LayerWeights& layer;
    int64_t base;  // where its keys begin
    int kv_head, group, first_token, queries;
};

// Writes the KV of the new tokens that fall into a chunk of keys. The thread that owns the chunk does this, so no
// thread waits for another.
FN void append_kv(Decoder& d, Scratch& scratch, const Attended& a, int begin, int end) {
    const Model& m = d.model;
    for (int position = std::max(begin, a.sequence.start); position < end; ++position) {
        const int token = a.first_token + position - a.sequence.start;
        const float* const k = d.qkv.get() + (size_t)token * all_rows(a.layer.qkv) + m.heads * query_step(m) + a.kv_head * m.head_dim;
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

// Writes its rotated queries to `scratch` [queries, lanes].
template <int D, int LANE>
FN void turn_queries(Decoder& d, Scratch& scratch, const Attended& a) {
    constexpr int WORDS = LANE == PAIR ? D / 2 : D;
    for (int query = 0; query < a.queries; ++query) {
        const int token = a.first_token + query / a.group, head = a.kv_head * a.group + query % a.group;
        const float* const q = d.qkv.get() + (size_t)token * all_rows(a.layer.qkv) + head * query_step(d.model);
        int32_t* const to = scratch.queries.get() + query * WORDS;
        float* const turned = LANE == PAIR ? (float*)scratch.tiles.get() : (float*)to;
        turn_head(d.model, q, a.layer.q_norm, d.positions[token], d.model.attention_scale, turned);
        for (int i = 0; LANE == PAIR && i < D; i += LANES) store_bf16((uint16_t*)to + i, load(turned + i));
    }
}

// The products of QUERIES queries [QUERIES, WORDS] with TILES tiles of keys [WORDS, LANES]: each loaded query word
// serves all tiles, each loaded tile word all queries.
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

// Turns the scores of the first `count` of `keys` keys into e^(score - largest), rounded to bfloat16 and
// packed if PAIRS are multiplied; zero for the others.
template <bool PAIRS>
FN void soften(float* scores, int count, int keys, float* largest, float* sum) {
    const auto keep = [&](int key, Floats weights) TARGET {
        if constexpr (PAIRS) store_bf16((uint16_t*)scores + key, weights);  // overwrites only scores that were read
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

// Undoes the unpacking, which works within 128 bits.
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

// Number of keys whose values are weighted for all queries before the next ones: as float32, they fit a small L1 cache.
template <int LANE>
constexpr int KEYS_AT_ONCE = LANE == PAIR ? CHUNK : CHUNK / 4;

// Writes the sums of the values of `count` keys at `place`, weighted with each of QUERIES rows of weights [CHUNK]; with
// GOES_ON it adds them to the sums that are already there.
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
        const int hidden = std::min(std::max(first_visible(d.model, d.positions[token]) - begin, 0), visible);
        std::fill_n(scores + query * CHUNK, hidden, -INFINITY);
        soften<LANE == PAIR>(scores + query * CHUNK, hidden < visible ? visible : 0, end - begin, &d.largest[place], &d.sums[place]);
    }
    for (int first = begin; first < end; first += KEYS_AT_ONCE<LANE>)
        for (int query = 0; query < a.queries; query += QUERIES_AT_ONCE) {
            const auto sum = first == begin ? sum_values<D, LANE, false> : sum_values<D, LANE, LANE != PAIR>;
            sum(std::min(QUERIES_AT_ONCE, a.queries - query), (const int32_t*)scores + query * CHUNK + first - begin,
                a.sequence.kv, a.base + a.sequence.value_stride + (int64_t)first * D,
                std::min(KEYS_AT_ONCE<LANE>, end - first), d.sums_of_values.get(), places + query);
        }
}

// Computes chunks of KV heads of sequences: those of `run`, and those that the thread takes after it.
template <int D>
FN void attend(Decoder& d, int thread, Share run, int layer_index) {
    const Model& m = d.model;
    Scratch& scratch = d.scratch[thread];
    int turned = -1;  // index of the queries in `scratch`
    do {
        for (int unit = run.begin; unit < run.end; ++unit) {
            int index = 0;
            while (unit >= m.kv_heads * d.first_chunks[index + 1]) ++index;
            const Sequence& s = d.sequences[index];
            const int chunks = d.first_chunks[index + 1] - d.first_chunks[index];
            const int within = unit - m.kv_heads * d.first_chunks[index], head = within / chunks;
            const int chunk = within % chunks, begin = chunk * CHUNK, end = std::min(begin + CHUNK, s.start + s.tokens);
            const int64_t base = d.layers[layer_index].state * s.layer_stride + head * s.head_stride;
            const int group = m.heads / m.kv_heads;
            const Attended a{s, d.layers[layer_index], base, head, group, d.first_tokens[index], s.tokens * group};
            const auto lanes = s.kv_type == FLOAT32 ? PLAIN : HAS_PAIRS ? PAIR : WIDENED;
            if (turned != unit - chunk) lanes == PAIR ? turn_queries<D, PAIR>(d, scratch, a) : turn_queries<D, PLAIN>(d, scratch, a);
            turned = unit - chunk;
            append_kv(d, scratch, a, begin, end);
            if (end <= first_visible(m, s.start)) continue;  // none of the tokens sees any of it
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
        case 256: return attend<256>(d, thread, run, layer_index);
    }
}

// Merges the chunks' partial softmaxes, for all heads of all tokens.
FN Input merged(const Decoder& d, Scratch& scratch, const LayerWeights& layer) {
    const Model& m = d.model;
    const Matrix& matrix = layer.attention_out;
    const int columns = matrix.columns;
    for (int t = 0; t < d.tokens; ++t) {
        const int first = first_visible(m, d.positions[t]) / CHUNK, used = d.positions[t] / CHUNK + 1;
        float* const row = scratch.rows.get() + (size_t)t * columns;
        for (int head = 0; head < m.heads; ++head) {
            const int64_t partial = (int64_t)(t * m.heads + head) * d.chunks;
            float largest = -INFINITY, total = 0.0f;
            for (int c = first; c < used; ++c) largest = std::max(largest, d.largest[partial + c]);
            float* const weights = scratch.scores.get();
            for (int c = first / LANES * LANES; c < used; c += LANES) store(weights + c, exponential(load(&d.largest[partial + c]) - largest));
            for (int c = first; c < used; ++c) total += weights[c] * d.sums[partial + c];
            const float* const gate = d.qkv.get() + (size_t)t * all_rows(layer.qkv) + head * query_step(m) + m.head_dim;
            for (int i = 0; i < m.head_dim; i += LANES) {
                Floats sum = {};
                for (int c = first; c < used; ++c)
                    sum = fused(spread(weights[c]), load(&d.sums_of_values[(partial + c) * m.head_dim + i]), sum);
                sum = sum / total;
                store(row + head * m.head_dim + i, m.gated_output ? sum / (exponential(-load(gate + i)) + 1.0f) : sum);
            }
        }
        std::fill(row + m.heads * m.head_dim, row + columns, 0.0f);
    }
    return prepare(scratch, scratch.rows.get(), d.tokens, matrix);
}
