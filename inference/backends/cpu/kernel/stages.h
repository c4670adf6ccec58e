// The work of a thread in each stage of a forward.

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

// The work of a thread in a stage: it takes units, or returns if none are left; computes what they share (norms,
// the merged attention, quantized inputs), which is cheaper in every thread than in a stage of its own; computes them.
FN void work(Decoder& d, int thread, int stage) {
    Share run;
    if (!d.team.take(thread, run)) return;
    const Model& m = d.model;
    Scratch& scratch = d.scratch[thread];
    const int tokens = d.tokens, hidden = m.head.columns, index = stage / STAGES;
    if (stage == m.layers * STAGES + HEAD) {
        const Input x = normalized(d, scratch, m.final_norm, m.final_norm_bias, m.head, d.wanted, d.wanted_tokens);
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
            const Input x = normalized(d, scratch, layer.attention_norm, layer.attention_norm_bias, layer.qkv, tokens);
            return project(d, thread, run, layer.qkv, x, tokens, STORE, d.qkv.get(), all_rows(layer.qkv));
        }
        case CONVOLUTION: return convolve(d, thread, run, layer);
        case MIXING: return layer.kind == GATED_DELTA ? recur(d, thread, run, layer) : attend(d, thread, run, index);
        case MIXED_OUT: {
            const Input x = layer.kind == ATTENTION_LAYER ? merged(d, scratch, layer)
                                                          : prepare(scratch, d.mixed.get(), tokens, layer.attention_out);
            return project(d, thread, run, layer.attention_out, x, tokens, ADD, d.residual.get(), hidden);
        }
        case GATE_UP: {
            const Input x = normalized(d, scratch, layer.mlp_norm, layer.mlp_norm_bias, layer.gate_up, tokens);
            const Finish finish = m.gated_mlp ? GATE : GELU;
            return project(d, thread, run, layer.gate_up, x, tokens, finish, d.activated.get(), layer.down.columns);
        }
        case DOWN: {
            const Input x = prepare(scratch, d.activated.get(), tokens, layer.down);
            return project(d, thread, run, layer.down, x, tokens, ADD, d.residual.get(), hidden);
        }
    }
}
