// Computes dot products of a unit's rows with the inputs of several tokens, and stores the results.

// The products of VECTORS_AT_ONCE of a unit's vectors of rows, from `first`, with TOKENS tokens, to tile [TOKENS, UNIT]:
// each weight is loaded once and used for every token, and the sums stay in registers.
template <int TYPE, int TOKENS, int VECTORS_AT_ONCE>
FN void dot_quantized(const Matrix& matrix, int unit, int first, const Input& input, int token, float* tile) {
    constexpr bool NIBBLES = TYPE == INT4;
    constexpr int STEPS = GROUP / 4;  // words of inputs in a group; a word of nibbles takes two
    const int groups = matrix.columns / GROUP, steps = matrix.columns / 4, scales_at_once = NIBBLES ? 2 * UNIT : UNIT;
    const int32_t* place =
        (const int32_t*)matrix.weights + (size_t)unit * (NIBBLES ? steps / 2 : steps) * UNIT + first * LANES;
    const uint16_t* scales = matrix.scales + (size_t)unit * groups * scales_at_once + first * LANES;
    const int32_t* const inputs = (const int32_t*)input.data + (size_t)token * steps;
    Floats sums[VECTORS_AT_ONCE][TOKENS] = {};
    for (int group = 0; group < groups; ++group, scales += scales_at_once) {
        Ints products[VECTORS_AT_ONCE][TOKENS];
        for (int v = 0; v < VECTORS_AT_ONCE; ++v)
            for (int t = 0; t < TOKENS; ++t)
                products[v][t] = spread(NIBBLES ? 0 : input.offsets[(token + t) * groups + group]);
        for (int step = group * STEPS; step < (group + 1) * STEPS; step += NIBBLES ? 2 : 1, place += UNIT) {
            fetch<VECTORS_AT_ONCE>(place);
            for (int v = 0; v < VECTORS_AT_ONCE; ++v) {
                const Ints words = load_ints(place + v * LANES);
                for (int t = 0; t < TOKENS; ++t) {
                    const int32_t* const x = inputs + t * steps + step;
                    if constexpr (NIBBLES) {
                        products[v][t] = multiplied_nibbles(products[v][t], words & 0x0f0f0f0f, x[0]);
                        products[v][t] = multiplied_nibbles(products[v][t], (Ints)((Words)words >> 4) & 0x0f0f0f0f, x[1]);
                    } else {
                        products[v][t] = multiplied_int8(products[v][t], words, x[0]);
                    }
                }
            }
        }
        for (int v = 0; v < VECTORS_AT_ONCE; ++v) {
            const Floats scale = widen_float16(scales + v * LANES);
            for (int t = 0; t < TOKENS; ++t) {
                const int at = (token + t) * groups + group;
                const Ints whole = NIBBLES ? summed_nibbles(products[v][t]) : products[v][t];
                sums[v][t] = fused(__builtin_convertvector(whole, Floats), scale * input.scales[at], sums[v][t]);
                if constexpr (NIBBLES)
                    sums[v][t] = fused(widen_float16(scales + UNIT + v * LANES), spread(input.sums[at]), sums[v][t]);
            }
        }
    }
    for (int t = 0; t < TOKENS; ++t)
        for (int v = 0; v < VECTORS_AT_ONCE; ++v) store(tile + t * UNIT + (first + v) * LANES, sums[v][t]);
}

// As above, for float32 and bfloat16.
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

// All of a unit's vectors at once, or two if the sums of more would not fit the registers.
template <int TYPE, int TOKENS = TOKENS_AT_ONCE>
FN void dot_unit(const Matrix& matrix, int unit, const Input& input, int token, int tokens, float* tile) {
    if (tokens < TOKENS) {
        if constexpr (TOKENS > 1) dot_unit<TYPE, TOKENS - 1>(matrix, unit, input, token, tokens, tile);
        return;
    }
    constexpr int AT_ONCE = TOKENS > 2 ? 2 : VECTORS;
    for (int first = 0; first < VECTORS; first += AT_ONCE) {
        if constexpr (TYPE == INT8 || TYPE == INT4) dot_quantized<TYPE, TOKENS, AT_ONCE>(matrix, unit, first, input, token, tile);
        else dot_float<TYPE, TOKENS, AT_ONCE>(matrix, unit, first, input, token, tile);
    }
}

enum Finish { STORE, ADD, GATE };

// Writes a unit's results for one token: stored, added, or as the SwiGLU of its gate rows and up rows.
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

// Writes rows of matrix * input to `to` [tokens, stride]: the units of `run`, and those that the thread takes after it.
FN void project(Decoder& d, int thread, Share run, const Matrix& matrix, const Input& input, int tokens, Finish finish,
                float* to, int64_t stride) {
    alignas(LINE) float tile[TOKENS_AT_ONCE * UNIT];
    do {
        for (int unit = run.begin; unit < run.end; ++unit)
            for (int token = 0; token < tokens; token += TOKENS_AT_ONCE) {
                const int count = std::min(TOKENS_AT_ONCE, tokens - token);
                switch (matrix.type) {
                    case FLOAT32: dot_unit<FLOAT32>(matrix, unit, input, token, count, tile); break;
                    case BFLOAT16: dot_unit<BFLOAT16>(matrix, unit, input, token, count, tile); break;
                    case INT8: dot_unit<INT8>(matrix, unit, input, token, count, tile); break;
                    case INT4: dot_unit<INT4>(matrix, unit, input, token, count, tile); break;
                    case NARROW_FLOAT32: dot_unit<NARROW_FLOAT32>(matrix, unit, input, token, count, tile); break;
                }
                for (int t = 0; t < count; ++t)
                    finish_unit(finish, tile + t * UNIT, matrix.bias, to + (token + t) * stride, unit);
            }
    } while (d.team.take(thread, run));
}
