// Prepares the inputs of matrix products: normalized, and rounded or quantized to suit the weights.

// Inputs [tokens, columns] in the form that dot products want: float32; for bfloat16 weights the rounded inputs, as
// bfloat16 where the CPU multiplies those; for quantized weights int8, with a scale per GROUP columns. Quantized
// inputs lie in tiles of QUANTIZED_TOKENS tokens, the last one smaller, so that a dot product reads them from front to
// back: a tile is [columns / 4, tokens] words of four inputs, and what belongs to groups is [columns / GROUP, tokens].
struct Input {
    const void* data;
    const float* rows;       // the inputs as they were, [tokens, columns]: what float32 weights want
    const float* scales;
    const float* sums;       // of the quantized inputs, which minima of weights are multiplied with
    const int32_t* offsets;  // what begins the sums of products: offset_of(type) times the int8 inputs that share a scale
    size_t next_offsets;     // where those of the matrix's next rows begin
};

// What the numbers of a type are stored too large by, negated. Only some levels multiply int8 as it is stored.
constexpr int32_t offset_of(int type) {
    return type == CENTRED_INT4 ? -8 : type == INT6 ? -32 : type == INT8 && OFFSET_IN_SUM ? -128 : 0;
}

// The group as int8, and the sums of its halves.
FN void quantize_group(const float* from, int8_t* to, float* scale, int32_t* halves) {
    Floats largest = {};
    for (int i = 0; i < GROUP; i += LANES) {
        const Floats x = load(from + i);
        largest = larger(largest, x < 0.0f ? -x : x);
    }
    const float limit = largest_lane(largest), factor = limit > 0.0f ? 127.0f / limit : 0.0f;
    for (int half = 0; half < 2; ++half) {
        Ints sum = {};
        for (int i = half * (GROUP / 2); i < (half + 1) * (GROUP / 2); i += LANES) {
            const Ints whole = __builtin_convertvector(rounded(load(from + i) * factor), Ints);
            sum += whole;
            *(BytesAnywhere*)(to + i) = __builtin_convertvector(whole, Bytes);
        }
        halves[half] = 0;
        for (int lane = 0; lane < LANES; ++lane) halves[half] += sum[lane];
    }
    *scale = limit / 127.0f;
}

// The tile of so many tokens that begins at `first`; from: [all tokens, columns]. The offsets of a matrix's next rows
// lie `next_offsets` further.
FN void quantize_tile(Scratch& scratch, const float* from, int first, int tokens, const Matrix& matrix,
                      size_t next_offsets) {
    const int columns = matrix.columns, groups = columns / GROUP;
    int32_t* to = scratch.inputs.get() + (size_t)first * (columns / 4);
    for (int group = 0; group < groups; ++group, to += tokens * (GROUP / 4))
        for (int t = 0; t < tokens; ++t) {
            const size_t at = (size_t)first * groups + group * tokens + t;
            int32_t words[GROUP / 4], halves[2];
            quantize_group(from + (size_t)(first + t) * columns + group * GROUP, (int8_t*)words, &scratch.scales[at], halves);
            for (int word = 0; word < GROUP / 4; ++word) to[word * tokens + t] = words[word];
            const int32_t total = halves[0] + halves[1];
            scratch.sums[at] = scratch.scales[at] * (float)total;
            int32_t* offsets = scratch.offsets.get();
            for (const Matrix* part = &matrix; part; part = part->next, offsets += next_offsets) {
                if (scales_of_group(part->type) == 1) offsets[at] = offset_of(part->type) * total;
                else
                    for (int half = 0; half < 2; ++half)
                        offsets[2 * (at - t) + half * tokens + t] = offset_of(part->type) * halves[half];
            }
        }
}

// from: [tokens, columns], the columns beyond the model's own being zero; `matrix` is what multiplies them.
FN Input prepare(Scratch& scratch, const float* from, int tokens, const Matrix& matrix) {
    const size_t count = (size_t)tokens * matrix.columns, next_offsets = 2 * count / GROUP;
    int32_t* const to = scratch.inputs.get();
    if (is_quantized(matrix.type)) {
        for (int token = 0; token < tokens; token += QUANTIZED_TOKENS)
            quantize_tile(scratch, from, token, std::min(QUANTIZED_TOKENS, tokens - token), matrix, next_offsets);
        return {to, from, scratch.scales.get(), scratch.sums.get(), scratch.offsets.get(), next_offsets};
    }
    if (matrix.type != BFLOAT16) return {from, from, nullptr, nullptr, nullptr, 0};
    for (size_t i = 0; i < count; i += LANES) {
        if (HAS_PAIRS) store_bf16((uint16_t*)to + i, load(from + i));
        else store((float*)to + i, to_bf16(load(from + i)));
    }
    return {to, from, nullptr, nullptr, nullptr, 0};
}

// Of the differences between x, which zeros follow, and `mean`.
FN float inverse_root_mean_square(const float* x, int padded, int count, float epsilon, float mean = 0.0f) {
    Floats squares = {};
    for (int i = 0; i < padded; i += LANES) squares = fused(load(x + i) - mean, load(x + i) - mean, squares);
    const float sum = sum_lanes(squares) - (float)(padded - count) * mean * mean;
    return 1.0f / std::sqrt(sum / (float)count + epsilon);
}

FN float mean_of(const float* x, int padded, int count) {
    Floats sum = {};
    for (int i = 0; i < padded; i += LANES) sum += load(x + i);
    return sum_lanes(sum) / (float)count;
}

// The normalized residuals of `count` tokens, as inputs of `matrix`; `tokens` lists them if not all are needed.
FN Input normalized(const Decoder& d, Scratch& scratch, const float* weight, const float* bias, const Matrix& matrix,
                    int count, const int* tokens = nullptr) {
    const int columns = matrix.columns;
    for (int t = 0; t < count; ++t) {
        const float* const x = d.residual.get() + (size_t)(tokens ? tokens[t] : t) * columns;
        float* const to = scratch.rows.get() + (size_t)t * columns;
        const float mean = bias ? mean_of(x, columns, d.model.hidden) : 0.0f;
        const float factor = inverse_root_mean_square(x, columns, d.model.hidden, d.model.norm_epsilon, mean);
        for (int i = 0; i < columns; i += LANES) {
            const Floats scaled = (load(x + i) - mean) * factor * load(weight + i);
            store(to + i, bias ? scaled + load(bias + i) : scaled);
        }
    }
    return prepare(scratch, scratch.rows.get(), count, matrix);
}
