// Layers with a state: causal convolutions over tokens, and the gated delta rule.
//
// A sequence's state is read where the caller says and written elsewhere, or in place; a thread owns some channels, or a
// head, of one sequence, and takes its tokens one after another, so that no bit depends on how they are cut into calls.

IN Floats silu(Floats x) { return x / (exponential(-x) + 1.0f); }

// LANES channels of one sequence through a convolution: `from` and `to` are of its first token, so many numbers from
// the next one's. The states hold the last inputs [kept, channels].
template <int KIND>
FN void convolve_lanes(const Decoder& d, const LayerWeights& layer, const Sequence& s, int first_token, int channel) {
    const Model& m = d.model;
    const int channels = channels_of(m, KIND), kept = m.kept;
    const size_t step = all_rows(layer.qkv);
    float* const row = d.qkv.get() + (size_t)first_token * step + channel;
    float* const out = d.mixed.get() + (size_t)first_token * layer.attention_out.columns + channel;
    Floats taps[MOST_KEPT + 1], inputs[MOST_KEPT + 1] = {};
    for (int i = 0; i <= kept; ++i) taps[i] = load(layer.taps + (size_t)i * channels + channel);
    for (int i = 0; s.before && i < kept; ++i) inputs[i] = load(s.before + layer.state + (size_t)i * channels + channel);
    for (int t = 0; t < s.tokens; ++t) {
        float* const x = row + t * step;
        inputs[kept] = KIND == SHORT_CONVOLUTION ? load(x) * load(x + 2 * channels) : load(x);
        Floats sum = inputs[0] * taps[0];
        for (int i = 1; i <= kept; ++i) sum = fused(inputs[i], taps[i], sum);
        if (KIND == SHORT_CONVOLUTION) store(out + (size_t)t * layer.attention_out.columns, load(x + channels) * sum);
        else store(x, silu(sum));
        for (int i = 0; i < kept; ++i) inputs[i] = inputs[i + 1];
    }
    for (int i = 0; i < kept; ++i) store(s.after + layer.state + (size_t)i * channels + channel, inputs[i]);
}

// Convolves units of channels of sequences: those of `run`, and those that the thread takes after it.
FN void convolve(Decoder& d, int thread, Share run, const LayerWeights& layer) {
    const int units = channels_of(d.model, layer.kind) / UNIT;  // of a sequence
    const auto convolve_lanes_of =
        layer.kind == GATED_DELTA ? convolve_lanes<GATED_DELTA> : convolve_lanes<SHORT_CONVOLUTION>;
    do {
        for (int unit = run.begin; unit < run.end; ++unit)
            for (int v = 0; v < VECTORS; ++v)
                convolve_lanes_of(d, layer, d.sequences[unit / units], d.first_tokens[unit / units],
                                  unit % units * UNIT + v * LANES);
    } while (d.team.take(thread, run));
}

// x of `count` numbers, scaled to the length `length`, to `to`.
FN void normalize_length(const float* x, int count, float length, float* to) {
    Floats squares = {};
    for (int i = 0; i < count; i += LANES) squares = fused(load(x + i), load(x + i), squares);
    const float factor = length / std::sqrt(sum_lanes(squares) + 1e-6f);
    for (int i = 0; i < count; i += LANES) store(to + i, load(x + i) * factor);
}

// One token of a head, for UNIT of its values: the state [key_dim, value_dim] decays, learns at this rate that `key` has
// the values `v`, and gives what it has for `query` to `out`. Reads the state `from`, and writes it `to`.
FN void step_values(const Model& m, const float* query, const float* key, const float* v, float decay, float rate,
                    const float* from, float* to, float* out) {
    Floats known[VECTORS] = {}, found[VECTORS] = {}, learnt[VECTORS];
    for (int i = 0; from && i < m.key_dim; ++i)
        for (int j = 0; j < VECTORS; ++j)
            known[j] = fused(load(from + (size_t)i * m.value_dim + j * LANES), spread(key[i]), known[j]);
    for (int j = 0; j < VECTORS; ++j) learnt[j] = (load(v + j * LANES) - known[j] * decay) * rate;
    for (int i = 0; i < m.key_dim; ++i) {
        const size_t row = (size_t)i * m.value_dim;
        for (int j = 0; j < VECTORS; ++j) {
            const Floats old = from ? load(from + row + j * LANES) * decay : Floats{};
            const Floats now = fused(learnt[j], spread(key[i]), old);
            store(to + row + j * LANES, now);
            found[j] = fused(now, spread(query[i]), found[j]);
        }
    }
    for (int j = 0; j < VECTORS; ++j) store(out + j * LANES, found[j]);
}

// The gated delta rule of one value head of one sequence; `queries` has room for a query and a key.
FN void recur_head(Decoder& d, const LayerWeights& layer, const Sequence& s, int first_token, int head, float* queries) {
    const Model& m = d.model;
    const int keys = m.key_heads * m.key_dim, values = m.value_heads * m.value_dim;
    const int key_head = m.tiled_heads ? head % m.key_heads : head / (m.value_heads / m.key_heads);
    const int64_t place = layer.state + (int64_t)m.kept * channels_of(m, GATED_DELTA) + (int64_t)head * m.key_dim * m.value_dim;
    float* const keyed = queries + m.key_dim;
    const float* from = s.before ? s.before + place : nullptr;
    float* const to = s.after + place;
    for (int t = 0; t < s.tokens; ++t, from = to) {
        const float* const x = d.qkv.get() + (size_t)(first_token + t) * all_rows(layer.qkv);
        normalize_length(x + key_head * m.key_dim, m.key_dim, 1.0f / std::sqrt((float)m.key_dim), queries);
        normalize_length(x + keys + key_head * m.key_dim, m.key_dim, 1.0f, keyed);
        const float* const gate = x + 2 * keys + values + head * m.value_dim;
        const float* const rates = x + 2 * keys + 2 * values;
        const float rate = 1.0f / (1.0f + std::exp(-rates[head]));
        const float slow = rates[m.value_heads + head] + layer.decay_bias[head];
        const float decay = std::exp(layer.decay[head] * (slow > 20.0f ? slow : std::log1p(std::exp(slow))));
        float* const out = d.mixed.get() + (size_t)(first_token + t) * layer.attention_out.columns + head * m.value_dim;
        for (int i = 0; i < m.value_dim; i += UNIT)
            step_values(m, queries, keyed, x + 2 * keys + head * m.value_dim + i, decay, rate, from ? from + i : nullptr,
                        to + i, out + i);
        const float factor = inverse_root_mean_square(out, m.value_dim, m.value_dim, m.norm_epsilon);
        for (int i = 0; i < m.value_dim; i += LANES)
            store(out + i, load(out + i) * factor * load(layer.delta_norm + i) * silu(load(gate + i)));
    }
}

// Computes value heads of sequences: those of `run`, and those that the thread takes after it.
FN void recur(Decoder& d, int thread, Share run, const LayerWeights& layer) {
    float* const queries = d.scratch[thread].rows.get();
    do {
        for (int unit = run.begin; unit < run.end; ++unit) {
            const int index = unit / d.model.value_heads;
            recur_head(d, layer, d.sequences[index], d.first_tokens[index], unit % d.model.value_heads, queries);
        }
    } while (d.team.take(thread, run));
}
