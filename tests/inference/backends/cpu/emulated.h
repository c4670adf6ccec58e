// Emulates, lane by lane, the instructions of the kernel's levels that many a CPU has not: AVX-512 with VNNI and BF16,
// and AVX-VNNI. It is included before decode.cpp (`-include`), which then takes these for the intrinsics of their names,
// is compiled without its target attributes, and finds that the CPU has everything. AVX2 and FMA have to be there.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

namespace emulated {

// A vector's bits as numbers of another type, and back.
template <typename To, typename From>
To bits(const From& from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

template <typename T, int BYTES = 64>
struct Lanes {
    static constexpr int COUNT = BYTES / sizeof(T);
    T x[COUNT];
};

typedef short Bfloat16s __attribute__((vector_size(64)));

inline float widened(uint16_t half) { return bits<float>((uint32_t)half << 16); }

// To even; NaN stays NaN, and what is denormal becomes zero.
inline uint16_t narrowed(uint32_t x) {
    const uint16_t sign = x >> 16 & 0x8000u;
    if ((x & 0x7f800000u) == 0) return sign;
    if ((x & 0x7fffffffu) > 0x7f800000u) return x >> 16 | 0x40u;
    return (x + 0x7fffu + (x >> 16 & 1u)) >> 16;
}

inline __m512 fmadd(__m512 a, __m512 b, __m512 c) {
    const auto x = bits<Lanes<float>>(a), y = bits<Lanes<float>>(b);
    auto sum = bits<Lanes<float>>(c);
    for (int i = 0; i < 16; ++i) sum.x[i] = std::fma(x.x[i], y.x[i], sum.x[i]);
    return bits<__m512>(sum);
}

template <typename Vector>
Vector dpbusd(Vector sum, Vector a, Vector b) {
    auto to = bits<Lanes<int32_t, sizeof(Vector)>>(sum);
    const auto x = bits<Lanes<uint8_t, sizeof(Vector)>>(a);
    const auto y = bits<Lanes<int8_t, sizeof(Vector)>>(b);
    for (int i = 0; i < (int)sizeof(Vector); ++i) to.x[i / 4] += x.x[i] * y.x[i];
    return bits<Vector>(to);
}

inline __m512 dpbf16(__m512 sum, Bfloat16s a, Bfloat16s b) {
    auto to = bits<Lanes<float>>(sum);
    const auto x = bits<Lanes<uint16_t>>(a), y = bits<Lanes<uint16_t>>(b);
    for (int i = 31; i >= 0; --i) to.x[i / 2] = std::fma(widened(x.x[i]), widened(y.x[i]), to.x[i / 2]);
    return bits<__m512>(to);
}

inline __m256i cvtneps_pbh(__m512 a) {
    const auto x = bits<Lanes<uint32_t>>(a);
    Lanes<uint16_t, 32> to;
    std::transform(x.x, x.x + 16, to.x, narrowed);
    return bits<__m256i>(to);
}

inline __m512 cvtph_ps(__m256i a) {
    const __m256 halves[2] = {_mm256_cvtph_ps(_mm256_castsi256_si128(a)), _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1))};
    return bits<__m512>(halves);
}

inline float reduce_add(__m512 a) {
    auto x = bits<Lanes<float>>(a);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) x.x[i] += x.x[i + half];
    return x.x[0];
}

inline float reduce_max(__m512 a) {
    const auto x = bits<Lanes<float>>(a);
    return *std::max_element(x.x, x.x + 16);
}

inline __m512i add(__m512i a, __m512i b) {
    auto x = bits<Lanes<int32_t>>(a);
    const auto y = bits<Lanes<int32_t>>(b);
    for (int i = 0; i < 16; ++i) x.x[i] += y.x[i];
    return bits<__m512i>(x);
}

template <typename... Numbers>
__m512i setr(Numbers... numbers) {
    return bits<__m512i>(Lanes<int32_t>{{numbers...}});
}

inline __m512i set1(int32_t number) {
    Lanes<int32_t> to;
    std::fill_n(to.x, 16, number);
    return bits<__m512i>(to);
}

inline __m512 permutex2var(__m512 a, __m512i indices, __m512 b) {
    const auto x = bits<Lanes<float>>(a), y = bits<Lanes<float>>(b);
    const auto index = bits<Lanes<int32_t>>(indices);
    Lanes<float> to;
    for (int i = 0; i < 16; ++i) to.x[i] = (index.x[i] & 16 ? y : x).x[index.x[i] & 15];
    return bits<__m512>(to);
}

inline __m512i shuffle_i32x4(__m512i a, __m512i b, int selected) {
    const auto x = bits<Lanes<int32_t>>(a), y = bits<Lanes<int32_t>>(b);
    Lanes<int32_t> to;
    for (int i = 0; i < 16; ++i) to.x[i] = (i < 8 ? x : y).x[4 * (selected >> i / 4 * 2 & 3) + i % 4];
    return bits<__m512i>(to);
}

// The lower or upper halves of each 128 bits of both, number by number.
template <typename T, bool UPPER>
__m512i unpack(__m512i a, __m512i b) {
    constexpr int COUNT = 16 / sizeof(T);
    const auto x = bits<Lanes<T>>(a), y = bits<Lanes<T>>(b);
    Lanes<T> to;
    for (int i = 0; i < Lanes<T>::COUNT; ++i) {
        const int from = i / COUNT * COUNT + i % COUNT / 2 + (UPPER ? COUNT / 2 : 0);
        to.x[i] = (i % 2 ? y : x).x[from];
    }
    return bits<__m512i>(to);
}

}  // namespace emulated

#define __m512bh emulated::Bfloat16s
#define _mm512_fmadd_ps emulated::fmadd
#define _mm512_dpbusd_epi32 emulated::dpbusd<__m512i>
#define _mm256_dpbusd_avx_epi32 emulated::dpbusd<__m256i>
#define _mm512_dpbf16_ps emulated::dpbf16
#define _mm512_cvtneps_pbh emulated::cvtneps_pbh
#define _mm512_cvtph_ps emulated::cvtph_ps
#define _mm512_reduce_add_ps emulated::reduce_add
#define _mm512_reduce_max_ps emulated::reduce_max
#define _mm512_add_epi32 emulated::add
#undef _mm512_setr_epi32
#define _mm512_setr_epi32 emulated::setr
#define _mm512_set1_epi32 emulated::set1
#define _mm512_permutex2var_ps emulated::permutex2var
#define _mm512_shuffle_i32x4 emulated::shuffle_i32x4
#define _mm512_unpacklo_epi16 emulated::unpack<uint16_t, false>
#define _mm512_unpackhi_epi16 emulated::unpack<uint16_t, true>
#define _mm512_unpacklo_epi32 emulated::unpack<uint32_t, false>
#define _mm512_unpackhi_epi32 emulated::unpack<uint32_t, true>
#define _mm512_unpacklo_epi64 emulated::unpack<uint64_t, false>
#define _mm512_unpackhi_epi64 emulated::unpack<uint64_t, true>

#define target(features)
#define __builtin_cpu_supports(feature) true
