// Prepares the inputs of matrix products: normalized, and rounded or quantized to suit the weights.

// Inputs [tokens, columns] in the form that dot products need: float32; for bfloat16 weights the rounded inputs, as
// bfloat16 if the CPU multiplies those; for int8 and int4 weights int8, with scales and sums per GROUP columns.
struct Input {
    const void* data;
    const float* scales;     // [tokens, columns / GROUP]
    const float* sums;       // likewise: the sum of the quantized inputs, to multiply the minima of weights with
    const int32_t* offsets;  // likewise: -128 times the sum of the int8 inputs, where multiplied_int8 needs it
};

FN void quantize_group(const float* from, int8_t* to, float* scale, float* sum_of_inputs, int32_t* offset) {
    Floats largest = {};
    for (int i = 0; i < GROUP; i += LANES) {
        const Floats x = load(from + i);
        largest = larger(largest, x < 0.0f ? -x : x);
    }
    const float limit = largest_lane(largest), factor = limit > 0.0f ? 127.0f / limit : 0.0f;
    Ints sum = {};
    for (int i = 0; i < GROUP; i += LANES) {
        const Ints whole = __builtin_convertvector(rounded(load(from + i) * factor), Ints);
        sum += whole;
        *(BytesAnywhere*)(to + i) = __builtin_convertvector(whole, Bytes);
    }
    int32_t total = 0;
    for (int lane = 0; lane < LANES; ++lane) total += sum[lane];
    *scale = limit / 127.0f;
    *sum_of_inputs = *scale * (float)total;
    *offset = OFFSET_IN_SUM ? -128 * total : 0;
}

// from: [tokens, columns], zero in padded columns; `matrix` is the one that multiplies them.
FN Input prepare(Scratch& scratch, const float* from, int tokens, const Matrix& matrix) {
    const size_t count = (size_t)tokens * matrix.columns;
    int32_t* const to = scratch.inputs.get();
    switch (matrix.type) {
        case INT8:
        case INT4:
            for (size_t i = 0, group = 0; i < count; i += GROUP, ++group)
                quantize_group(from + i, (int8_t*)to + i, &scratch.scales[group], &scratch.sums[group],
                               &scratch.offsets[group]);
            return {to, scratch.scales.get(), scratch.sums.get(), scratch.offsets.get()};
        case BFLOAT16:
            for (size_t i = 0; i < count; i += LANES) {
                if (HAS_PAIRS) store_bf16((uint16_t*)to + i, load(from + i));
                else store((float*)to + i, to_bf16(load(from + i)));
            }
            return {to, nullptr, nullptr, nullptr};
        default: return {from, nullptr, nullptr, nullptr};
    }
}

FN float inverse_root_mean_square(const float* x, int padded, int count, float epsilon) {
    Floats squares = {};
    for (int i = 0; i < padded; i += LANES) squares = fused(load(x + i), load(x + i), squares);
    return 1.0f / std::sqrt(sum_lanes(squares) / (float)count + epsilon);
}

// The RMS-normalized residuals of `count` tokens, as inputs of `matrix`; `tokens` lists them if not all are needed.
FN Input normalized(const Decoder& d, Scratch& scratch, const float* weight, const Matrix& matrix, int count,
                    const int* tokens = nullptr) {
    const int columns = matrix.columns;
    for (int t = 0; t < count; ++t) {
        const float* const x = d.residual.get() + (size_t)(tokens ? tokens[t] : t) * columns;
        float* const to = scratch.rows.get() + (size_t)t * columns;
        const float factor = inverse_root_mean_square(x, columns, d.model.hidden, d.model.norm_epsilon);
        for (int i = 0; i < columns; i += LANES) store(to + i, load(x + i) * factor * load(weight + i));
    }
    return prepare(scratch, scratch.rows.get(), count, matrix);
}
