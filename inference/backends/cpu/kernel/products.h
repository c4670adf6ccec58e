// Computes dot products of a unit's rows with the inputs of several tokens, and stores the results.

// The products of VECTORS_AT_ONCE of a unit's vectors of rows, from `first`, with a tile of TOKENS tokens, to `tile`
// [TOKENS, UNIT]: each weight is loaded and unpacked once and used for every token, and the sums stay in registers.
template <int TYPE, int TOKENS, int VECTORS_AT_ONCE>
FN void dot_quantized(const Matrix& matrix, int unit, int first, const Input& input, int token, float* tile) {
    constexpr bool NIBBLES = has_nibbles(TYPE), MINIMA = has_minima(TYPE), OFFSETS = NIBBLES && !MINIMA;
    constexpr int PARTS = scales_of_group(TYPE), UPPER = upper_words(TYPE);
    constexpr int STEPS = (NIBBLES ? GROUP / 8 : GROUP / 4) / PARTS;  // words of weights; one of nibbles takes two inputs
    constexpr int SCALES = MINIMA ? 2 * UNIT : UNIT;
    const int groups = matrix.columns / GROUP;
    const int32_t* place = (const int32_t*)matrix.weights + (size_t)unit * words_of(TYPE, matrix.columns) * UNIT + first * LANES;
    const uint16_t* scales = matrix.scales + (size_t)unit * groups * PARTS * SCALES + first * LANES;
    const int32_t* x = (const int32_t*)input.data + (size_t)token * (matrix.columns / 4);
    Floats sums[VECTORS_AT_ONCE][TOKENS] = {};
    for (size_t at = (size_t)token * groups, end = at + (size_t)groups * TOKENS; at < end; at += TOKENS) {
        const int32_t* const upper = place;
        for (int word = 0; word < UPPER; ++word, place += UNIT) fetch<VECTORS_AT_ONCE>(place);
#pragma GCC unroll 2
        for (int part = 0; part < PARTS; ++part, scales += SCALES) {
            const int32_t* const offsets = input.offsets + PARTS * at + part * TOKENS;
            Ints products[VECTORS_AT_ONCE][TOKENS];
            for (int v = 0; v < VECTORS_AT_ONCE; ++v)
                for (int t = 0; t < TOKENS; ++t)
                    products[v][t] = UPPER ? spread(OFFSETS ? offsets[t] : 0)
                                     : NIBBLES ? begun_nibbles(OFFSETS ? offsets[t] : 0) : spread(offsets[t]);
#pragma GCC unroll 8
            for (int step = 0; step < STEPS; ++step, place += UNIT, x += NIBBLES ? 2 * TOKENS : TOKENS) {
                fetch<VECTORS_AT_ONCE>(place);
                for (int v = 0; v < VECTORS_AT_ONCE; ++v) {
                    const Ints words = load_ints(place + v * LANES);
                    if constexpr (NIBBLES) {
                        Ints low = words & 0x0f0f0f0f, high = (Ints)((Words)words >> 4) & 0x0f0f0f0f;
                        if constexpr (UPPER) {
                            const Words bits = (Words)load_ints(upper + part * UNIT + v * LANES);
                            low |= upper_bits<UPPER>(bits, 2 * step), high |= upper_bits<UPPER>(bits, 2 * step + 1);
                            for (int t = 0; t < TOKENS; ++t)
                                products[v][t] = multiplied_small(products[v][t], low, high, x[t], x[TOKENS + t]);
                        } else {
                            for (int t = 0; t < TOKENS; ++t) products[v][t] = multiplied_nibbles(products[v][t], low, x[t]);
                            for (int t = 0; t < TOKENS; ++t)
                                products[v][t] = multiplied_nibbles(products[v][t], high, x[TOKENS + t]);
                        }
                    } else {
                        for (int t = 0; t < TOKENS; ++t) products[v][t] = multiplied_int8(products[v][t], words, x[t]);
                    }
                }
            }
            for (int v = 0; v < VECTORS_AT_ONCE; ++v) {
                const Floats scale = widen_float16(scales + v * LANES);
                for (int t = 0; t < TOKENS; ++t) {
                    const Ints whole =
                        NIBBLES && !UPPER ? ended_nibbles(products[v][t], OFFSETS ? offsets[t] : 0) : products[v][t];
                    sums[v][t] = fused(__builtin_convertvector(whole, Floats), scale * input.scales[at + t], sums[v][t]);
                }
                if constexpr (MINIMA) {
                    const Floats minimum = widen_float16(scales + UNIT + v * LANES);
                    for (int t = 0; t < TOKENS; ++t) sums[v][t] = fused(minimum, spread(input.sums[at + t]), sums[v][t]);
                }
            }
        }
    }
#pragma GCC unroll 8
    for (int t = 0; t < TOKENS; ++t)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS_AT_ONCE; ++v) store(tile + t * UNIT + (first + v) * LANES, sums[v][t]);
}

// As above, for float32, bfloat16 and float16.
template <int TYPE, int TOKENS, int VECTORS_AT_ONCE>
FN void dot_float(const Matrix& matrix, int unit, int first, const Input& input, int token, float* tile) {
    constexpr bool PAIRS = TYPE == BFLOAT16 && HAS_PAIRS, WIDE = TYPE == FLOAT32 || PAIRS;
    const int steps = PAIRS ? matrix.columns / 2 : matrix.columns;  // columns, or pairs that are multiplied at once
    const int32_t* place = (const int32_t*)matrix.weights + (size_t)unit * (WIDE ? steps : steps / 2) * UNIT;
    if (TYPE != FLOAT16) place += first * LANES;
    const int32_t* const inputs = (const int32_t*)input.data + (size_t)token * steps;
    Floats sums[SPLITS][VECTORS_AT_ONCE][TOKENS] = {};
    for (int step = 0; step < steps; step += 2, place += WIDE ? 2 * UNIT : UNIT) {
        fetch<VECTORS_AT_ONCE>(place);
        if (WIDE) fetch<VECTORS_AT_ONCE>(place + UNIT);
        for (int odd = 0; odd < 2; ++odd) {
            Ints column[VECTORS_AT_ONCE];
            for (int v = 0; v < VECTORS_AT_ONCE; ++v) {
                if constexpr (TYPE == FLOAT16) {
                    column[v] = (Ints)widen_float16((const uint16_t*)place + odd * UNIT + (first + v) * LANES);
                    continue;
                }
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

// How many tokens are multiplied with the weights that are loaded once.
template <int TYPE>
constexpr int TOKENS_OF = is_quantized(TYPE) ? QUANTIZED_TOKENS : FLOAT_TOKENS;

// All of a unit's vectors at once, or two where more tokens would leave no registers for the sums.
template <int TYPE, int TOKENS = TOKENS_OF<TYPE>>
FN void dot_unit(const Matrix& matrix, int unit, const Input& input, int token, int tokens, float* tile) {
    if (tokens < TOKENS) {
        if constexpr (TOKENS > 1) dot_unit<TYPE, TOKENS - 1>(matrix, unit, input, token, tokens, tile);
        return;
    }
    constexpr int AT_ONCE = TOKENS <= 2 ? VECTORS : 2;
    for (int first = 0; first < VECTORS; first += AT_ONCE) {
        if constexpr (is_quantized(TYPE)) dot_quantized<TYPE, TOKENS, AT_ONCE>(matrix, unit, first, input, token, tile);
        else dot_float<TYPE, TOKENS, AT_ONCE>(matrix, unit, first, input, token, tile);
    }
}

enum Finish { STORE, ADD, GATE, GELU };

// x times the normal distribution's share below x, by the formula with tanh.
IN Floats gelu(Floats x) { return x / (exponential((x * x * x * 0.044715f + x) * -1.5957691216f) + 1.0f); }

// Writes a unit's results for one token: stored, added times `scale`, as the SwiGLU of its gate rows and up rows, or as
// their GELU.
FN void finish_unit(Finish finish, float scale, const float* tile, const float* bias, float* to, int unit) {
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
        if (finish == ADD) store(place, fused(row[v], spread(scale), load(place)));
        else store(place, finish == GELU ? gelu(row[v]) : row[v]);
    }
}

// All tokens of one unit.
template <int TYPE>
FN void project_unit(const Matrix& matrix, int unit, const Input& input, int tokens, Finish finish, float scale, float* to,
                     int64_t stride) {
    alignas(LINE) float tile[TOKENS_OF<TYPE> * UNIT];
    for (int token = 0; token < tokens; token += TOKENS_OF<TYPE>) {
        const int count = std::min(TOKENS_OF<TYPE>, tokens - token);
        dot_unit<TYPE>(matrix, unit, input, token, count, tile);
        for (int t = 0; t < count; ++t)
            finish_unit(finish, scale, tile + t * UNIT, matrix.bias, to + (token + t) * stride, unit);
    }
}

// Rows of matrix * input, to `to` [tokens, stride]: the units of `run`, and those that the thread gets after it.
FN void project(Decoder& d, int thread, Share run, const Matrix& matrix, const Input& input, int tokens, Finish finish,
                float* to, int64_t stride) {
    const float scale = d.model.residual_scale;
    do {
        for (int unit = run.begin; unit < run.end; ++unit) {
            const Matrix* part = &matrix;
            Input x = input;
            int own = unit;  // of the part
            float* place = to;
            for (; own >= part->rows / UNIT; part = part->next) {
                own -= part->rows / UNIT;
                place += part->rows;
                x.offsets += x.next_offsets;
            }
            if (!is_quantized(part->type) && part->type != BFLOAT16) x.data = x.rows;
            switch (part->type) {
                case FLOAT32: project_unit<FLOAT32>(*part, own, x, tokens, finish, scale, place, stride); break;
                case BFLOAT16: project_unit<BFLOAT16>(*part, own, x, tokens, finish, scale, place, stride); break;
                case INT8: project_unit<INT8>(*part, own, x, tokens, finish, scale, place, stride); break;
                case INT4: project_unit<INT4>(*part, own, x, tokens, finish, scale, place, stride); break;
                case CENTRED_INT4: project_unit<CENTRED_INT4>(*part, own, x, tokens, finish, scale, place, stride); break;
                case INT5: project_unit<INT5>(*part, own, x, tokens, finish, scale, place, stride); break;
                case INT6: project_unit<INT6>(*part, own, x, tokens, finish, scale, place, stride); break;
                case NARROW_FLOAT32: project_unit<NARROW_FLOAT32>(*part, own, x, tokens, finish, scale, place, stride); break;
                case FLOAT16: project_unit<FLOAT16>(*part, own, x, tokens, finish, scale, place, stride); break;
            }
        }
    } while (d.team.take(thread, run));
}
