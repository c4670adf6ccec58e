// The vectors of a level: their types, and every operation that needs an intrinsic.

// Every function carries its level's target attribute, so that one library runs on any CPU.
#undef TARGET
#undef FN
#undef IN
#if LEVEL == LEVEL_AVX512_BF16
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,avx2,fma")))
#elif LEVEL == LEVEL_AVX512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")))
#elif LEVEL == LEVEL_AVX2_VNNI
#define TARGET __attribute__((target("avx2,fma,f16c,avxvnni")))
#elif LEVEL == LEVEL_AVX2
#define TARGET __attribute__((target("avx2,fma,f16c")))
#else
#define TARGET
#endif
#define FN static TARGET
#define IN static TARGET inline __attribute__((always_inline))

// Number of sums that fit the registers: 32 with AVX-512, otherwise 16. A dot product alternates between SPLITS sums if
// with one token the CPU would wait for the previous addition.
#if LEVEL >= LEVEL_AVX512
constexpr int LANES = 16, SPLITS = 2, FLOAT_TOKENS = 4, QUANTIZED_TOKENS = 6, QUERIES_AT_ONCE = 6;
#elif LEVEL >= LEVEL_AVX2
constexpr int LANES = 8, SPLITS = 1, FLOAT_TOKENS = 4, QUANTIZED_TOKENS = 4, QUERIES_AT_ONCE = 3;
#else
constexpr int LANES = 4, SPLITS = 1, FLOAT_TOKENS = 1, QUANTIZED_TOKENS = 1, QUERIES_AT_ONCE = 2;
#endif
constexpr int VECTORS = UNIT / LANES;  // to a column of a unit

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));
typedef int8_t Bytes __attribute__((vector_size(LANES)));
typedef float FloatsAnywhere __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t IntsAnywhere __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint16_t HalvesAnywhere __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
typedef int8_t BytesAnywhere __attribute__((vector_size(LANES), aligned(1), may_alias));

IN Floats load(const float* from) { return *(const FloatsAnywhere*)from; }
IN Ints load_ints(const void* from) { return *(const IntsAnywhere*)from; }
IN void store(float* to, Floats x) { *(FloatsAnywhere*)to = x; }
IN void store_ints(void* to, Ints x) { *(IntsAnywhere*)to = x; }
IN Floats spread(float x) { return x - Floats{}; }  // of -0 too, and no addition
IN Ints spread(int32_t x) { return Ints{} + x; }
IN Floats larger(Floats a, Floats b) { return a > b ? a : b; }

// Prefetches the weights that are read next: so many vectors of a column of a unit.
template <int COUNT>
IN void fetch(const int32_t* place) {
    for (int line = 0; line < COUNT * LANES * 4; line += LINE) __builtin_prefetch((const char*)place + PREFETCH + line);
}

// bfloat16 numbers as float32.
IN Floats widen(const uint16_t* from) {
    return (Floats)(__builtin_convertvector(*(const HalvesAnywhere*)from, Words) << 16);
}

// Finite float16 numbers as float32: read as float32 without their sign, their exponents are too small by 112.
IN Floats widen_float16(const uint16_t* from) {
#if LEVEL >= LEVEL_AVX512
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)from));
#elif LEVEL >= LEVEL_AVX2
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from));
#endif
    const Words bits = __builtin_convertvector(*(const HalvesAnywhere*)from, Words);
    const Floats size = (Floats)((bits & 0x7fffu) << 13) * 0x1p112f;
    return (Floats)((Words)size | (bits & 0x8000u) << 16);
}

// x rounded to bfloat16, to even; NaN stays NaN.
IN Floats to_bf16(Floats x) {
    const Words bits = (Words)x;
    const Floats near = (Floats)((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
    return x == x ? near : x;
}

IN void store_bf16(void* to, Floats x) {
#if LEVEL == LEVEL_AVX512_BF16
    _mm256_storeu_si256((__m256i*)to, (__m256i)_mm512_cvtneps_pbh(x));  // denormal numbers become zero
#else
    *(HalvesAnywhere*)to = __builtin_convertvector((Words)to_bf16(x) >> 16, Halves);
#endif
}

// a * b + c
IN Floats fused(Floats a, Floats b, Floats c) {
#if LEVEL >= LEVEL_AVX512
    return _mm512_fmadd_ps(a, b, c);
#elif LEVEL >= LEVEL_AVX2
    return _mm256_fmadd_ps(a, b, c);
#elif defined(__ARM_NEON)
    return (Floats)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

// sum + a * the float32 at b; with PAIRS, sum + the products of each lane's pair of bfloat16 with the pair at b.
constexpr bool HAS_PAIRS = LEVEL == LEVEL_AVX512_BF16;
template <bool PAIRS>
IN Floats multiplied(Floats sum, Ints a, const int32_t* b) {
#if LEVEL == LEVEL_AVX512_BF16
    if constexpr (PAIRS) return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)spread(*b));
#endif
    return fused((Floats)a, (Floats)spread(*b), sum);
}

// sum + the products of a lane's four weights, stored plus 128, with four inputs, less 128 times the inputs where
// `sum` began with that (Input::offsets): the instructions multiply unsigned numbers by signed ones.
constexpr bool OFFSET_IN_SUM = LEVEL >= LEVEL_AVX2_VNNI;
IN Ints multiplied_int8(Ints sum, Ints weights, int32_t inputs) {
#if LEVEL >= LEVEL_AVX512
    return (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)weights, (__m512i)spread(inputs));
#elif LEVEL == LEVEL_AVX2_VNNI
    return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)weights, (__m256i)spread(inputs));
#elif LEVEL == LEVEL_AVX2
    const __m256i plain = (__m256i)(weights ^ (int32_t)0x80808080);  // signs move to the other factor: pairs fit 16 bits
    const __m256i products = _mm256_maddubs_epi16(
        _mm256_abs_epi8(plain), _mm256_sign_epi8((__m256i)spread(inputs), plain));
    return sum + (Ints)_mm256_madd_epi16(products, _mm256_set1_epi16(1));
#else
    const Ints plain = weights ^ (int32_t)0x80808080;
    for (int byte = 0; byte < 32; byte += 8)
        sum += ((Ints)((Words)plain << (24 - byte)) >> 24) * ((int32_t)((uint32_t)inputs << (24 - byte)) >> 24);
    return sum;
#endif
}

// Sums of products of weights from 0 to 15, which begin with `offset`, gain those of a lane's four weights with four
// inputs, and end as whole numbers. With AVX2 alone a lane holds two sums of 16 bits meanwhile, which have room for a
// GROUP: at most 8 * 2 * 15 * 127.
constexpr bool SUMS_IN_HALVES = LEVEL == LEVEL_AVX2;
IN Ints begun_nibbles(int32_t offset) { return spread(SUMS_IN_HALVES ? 0 : offset); }

IN Ints multiplied_nibbles(Ints sum, Ints weights, int32_t inputs) {
#if LEVEL >= LEVEL_AVX2_VNNI
    return multiplied_int8(sum, weights, inputs);
#elif LEVEL == LEVEL_AVX2
    return (Ints)_mm256_add_epi16((__m256i)sum, _mm256_maddubs_epi16((__m256i)weights, (__m256i)spread(inputs)));
#else
    for (int byte = 0; byte < 32; byte += 8)
        sum += ((weights >> byte) & 15) * ((int32_t)((uint32_t)inputs << (24 - byte)) >> 24);
    return sum;
#endif
}

IN Ints ended_nibbles(Ints sum, int32_t offset) {
#if LEVEL == LEVEL_AVX2
    return (Ints)_mm256_madd_epi16((__m256i)sum, _mm256_set1_epi16(1)) + spread(offset);
#else
    return sum;
#endif
}

// The upper bits, one or two a number, of a word's four columns of `field`, where they stand in the numbers.
template <int WORDS>
IN Ints upper_bits(Words bits, int field) {
    const int at = field * WORDS - 4;
    return (Ints)(at > 0 ? bits >> at : bits << -at) & (WORDS == 2 ? 0x30303030 : 0x10101010);
}

// sum + the products of a lane's eight weights from 0 to 63 with eight inputs.
IN Ints multiplied_small(Ints sum, Ints low, Ints high, int32_t inputs, int32_t further) {
#if LEVEL >= LEVEL_AVX2_VNNI
    return multiplied_int8(multiplied_int8(sum, low, inputs), high, further);
#elif LEVEL == LEVEL_AVX2
    const __m256i a = _mm256_maddubs_epi16((__m256i)low, (__m256i)spread(inputs));
    const __m256i b = _mm256_maddubs_epi16((__m256i)high, (__m256i)spread(further));
    return sum + (Ints)_mm256_madd_epi16(_mm256_add_epi16(a, b), _mm256_set1_epi16(1));  // halves: at most 4 * 63 * 127
#else
    for (int byte = 0; byte < 32; byte += 8) {
        sum += ((low >> byte) & 63) * ((int32_t)((uint32_t)inputs << (24 - byte)) >> 24);
        sum += ((high >> byte) & 63) * ((int32_t)((uint32_t)further << (24 - byte)) >> 24);
    }
    return sum;
#endif
}

IN float sum_lanes(Floats x) {
#if LEVEL >= LEVEL_AVX512
    return _mm512_reduce_add_ps(x);
#elif LEVEL >= LEVEL_AVX2
    const __m128 four = _mm256_castps256_ps128(x) + _mm256_extractf128_ps(x, 1);
    return (four[0] + four[2]) + (four[1] + four[3]);
#else
    return (x[0] + x[2]) + (x[1] + x[3]);
#endif
}

IN float largest_lane(Floats x) {
#if LEVEL >= LEVEL_AVX512
    return _mm512_reduce_max_ps(x);
#elif LEVEL >= LEVEL_AVX2
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    return std::max(std::max(four[0], four[2]), std::max(four[1], four[3]));
#else
    return std::max(std::max(x[0], x[2]), std::max(x[1], x[3]));
#endif
}

// Transposes LANES rows of LANES words.
IN void transpose(Ints* rows) {
#if LEVEL >= LEVEL_AVX512
    __m512i fours[16];  // [4 * i + column % 4]: that column of rows 4 * i to 4 * i + 3, in the 128 bits that it is from
    for (int i = 0; i < 16; i += 4) {
        const __m512i a = (__m512i)rows[i], b = (__m512i)rows[i + 1], c = (__m512i)rows[i + 2], d = (__m512i)rows[i + 3];
        const __m512i ab = _mm512_unpacklo_epi32(a, b), cd = _mm512_unpacklo_epi32(c, d);
        const __m512i ab_high = _mm512_unpackhi_epi32(a, b), cd_high = _mm512_unpackhi_epi32(c, d);
        fours[i] = _mm512_unpacklo_epi64(ab, cd), fours[i + 1] = _mm512_unpackhi_epi64(ab, cd);
        fours[i + 2] = _mm512_unpacklo_epi64(ab_high, cd_high), fours[i + 3] = _mm512_unpackhi_epi64(ab_high, cd_high);
    }
    for (int i = 0; i < 4; ++i) {
        const __m512i even_low = _mm512_shuffle_i32x4(fours[i], fours[4 + i], 0x88);
        const __m512i even_high = _mm512_shuffle_i32x4(fours[8 + i], fours[12 + i], 0x88);
        const __m512i odd_low = _mm512_shuffle_i32x4(fours[i], fours[4 + i], 0xdd);
        const __m512i odd_high = _mm512_shuffle_i32x4(fours[8 + i], fours[12 + i], 0xdd);
        rows[i] = (Ints)_mm512_shuffle_i32x4(even_low, even_high, 0x88);
        rows[4 + i] = (Ints)_mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
        rows[8 + i] = (Ints)_mm512_shuffle_i32x4(even_low, even_high, 0xdd);
        rows[12 + i] = (Ints)_mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
    }
#elif LEVEL >= LEVEL_AVX2
    __m256i fours[8];
    for (int i = 0; i < 8; i += 4) {
        const __m256i a = (__m256i)rows[i], b = (__m256i)rows[i + 1], c = (__m256i)rows[i + 2], d = (__m256i)rows[i + 3];
        const __m256i ab = _mm256_unpacklo_epi32(a, b), cd = _mm256_unpacklo_epi32(c, d);
        const __m256i ab_high = _mm256_unpackhi_epi32(a, b), cd_high = _mm256_unpackhi_epi32(c, d);
        fours[i] = _mm256_unpacklo_epi64(ab, cd), fours[i + 1] = _mm256_unpackhi_epi64(ab, cd);
        fours[i + 2] = _mm256_unpacklo_epi64(ab_high, cd_high), fours[i + 3] = _mm256_unpackhi_epi64(ab_high, cd_high);
    }
    for (int i = 0; i < 4; ++i) {
        rows[i] = (Ints)_mm256_permute2x128_si256(fours[i], fours[4 + i], 0x20);
        rows[4 + i] = (Ints)_mm256_permute2x128_si256(fours[i], fours[4 + i], 0x31);
    }
#else
    for (int i = 1; i < LANES; ++i)
        for (int j = 0; j < i; ++j) {
            const int32_t word = rows[i][j];
            rows[i][j] = rows[j][i], rows[j][i] = word;
        }
#endif
}

// The nearest integer, ties to even; for |x| < 2^22.
IN Floats rounded(Floats x) { return (x + 12582912.0f) - 12582912.0f; }

// e^x with a relative error of about 2e-7 (Cephes' polynomial); clamps x so that nothing under- or overflows.
IN Floats exponential(Floats x) {
    x = x < -87.0f ? spread(-87.0f) : x;
    x = x > 88.0f ? spread(88.0f) : x;
    const Floats n = rounded(x * 1.44269504f);
    const Floats r = fused(n, spread(2.12194440e-4f), fused(n, spread(-0.693359375f), x));
    Floats y = spread(1.9875691500e-4f);
    for (const float coefficient :
         {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
        y = fused(y, r, spread(coefficient));
    y = fused(y, r * r, r) + 1.0f;
    return y * (Floats)((__builtin_convertvector(n, Ints) + 127) << 23);
}
