// Reads the blocks of GGUF tensors as rows of numbers with their scales, in their own type or in a larger one that
// represents it exactly. GGUF's scales of 256 columns, products of a float16 and a small integer, are rounded to float16.
#pragma once

#include <cstring>

#include "decoder.h"

namespace midfill {

// The formats of library.py's BLOCK_FORMATS, in its order.
enum Format { Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K };

struct Layout {
    int columns, bytes, type;
};

constexpr Layout LAYOUTS[] = {{32, 18, CENTRED_INT4}, {32, 20, INT4},   {32, 22, INT5},   {32, 24, INT5},
                              {32, 34, INT8},         {256, 144, INT4}, {256, 176, INT5}, {256, 210, INT6}};

inline uint16_t half_at(const uint8_t* place) {
    uint16_t half;
    std::memcpy(&half, place, sizeof half);
    return half;
}

// The nearest float16, of two equally near ones the even one.
inline uint16_t to_float16(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size >= 0x47800000) return sign | (size > 0x7f800000 ? 0x7e00 : 0x7c00);
    if (size < 0x38800000) {  // below the least normal float16: adding 0.5 shifts the bits to their places
        const float shifted = as_float(size) + 0.5f;
        std::memcpy(&bits, &shifted, sizeof bits);
        return sign | (bits - 0x3f000000);
    }
    return sign | ((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
}

// The numbers of a group of 32 columns; one scale, or one for each half; its minimum if the type has minima.
struct Group {
    uint8_t numbers[GROUP];
    uint16_t scales[2], minimum;
};

inline void read_nibbles(const uint8_t* bytes, Group& group) {
    for (int i = 0; i < GROUP / 2; i++) group.numbers[i] = bytes[i] & 15, group.numbers[i + GROUP / 2] = bytes[i] >> 4;
}

inline void add_fifth_bits(const uint8_t* bytes, Group& group) {
    for (int i = 0; i < GROUP; i++) group.numbers[i] |= (bytes[i / 8] >> i % 8 & 1) << 4;
}

// Of blocks with 256 columns: the numbers of group `index` in runs of 32 bytes, each of which has two groups.
inline void read_run(const uint8_t* runs, int index, Group& group) {
    const uint8_t* bytes = runs + index / 2 * GROUP;
    for (int i = 0; i < GROUP; i++) group.numbers[i] = index % 2 ? bytes[i] >> 4 : bytes[i] & 15;
}

// Of Q4_K and Q5_K: two float16 factors, and eight pairs of a 6-bit scale and minimum in twelve bytes.
inline void read_scales_of_256(const uint8_t* block, int index, Group& group) {
    const uint8_t *first = block + 4, *second = block + 8, *third = block + 12;
    const int i = index % 4;
    const int scale = index < 4 ? first[i] & 63 : (third[i] & 15) | first[i] >> 6 << 4;
    const int minimum = index < 4 ? second[i] & 63 : third[i] >> 4 | second[i] >> 6 << 4;
    group.scales[0] = to_float16(float16(half_at(block)) * (float)scale);
    group.minimum = to_float16(float16(half_at(block + 2)) * -(float)minimum);
}

inline void read_group(int format, const uint8_t* block, int index, Group& group) {
    group.scales[0] = half_at(block);
    switch (format) {
        case Q4_0: read_nibbles(block + 2, group); break;
        case Q4_1: group.minimum = half_at(block + 2), read_nibbles(block + 4, group); break;
        case Q5_0:
            group.minimum = to_float16(float16(group.scales[0]) * -16.0f);
            read_nibbles(block + 6, group), add_fifth_bits(block + 2, group);
            break;
        case Q5_1:
            group.minimum = half_at(block + 2);
            read_nibbles(block + 8, group), add_fifth_bits(block + 4, group);
            break;
        case Q8_0: std::memcpy(group.numbers, block + 2, GROUP); break;
        case Q4_K: read_run(block + 16, index, group), read_scales_of_256(block, index, group); break;
        case Q5_K:
            read_run(block + 48, index, group), read_scales_of_256(block, index, group);
            for (int i = 0; i < GROUP; i++) group.numbers[i] |= (block[16 + i] >> index & 1) << 4;
            break;
        case Q6_K: {
            const int half = index / 4, quarter = index % 4;
            const uint8_t *lower = block + 64 * half + GROUP * (quarter % 2), *upper = block + 128 + GROUP * half;
            for (int i = 0; i < GROUP; i++)
                group.numbers[i] = (quarter / 2 ? lower[i] >> 4 : lower[i] & 15) | (upper[i] >> 2 * quarter & 3) << 4;
            for (int i = 0; i < 2; i++)
                group.scales[i] = to_float16(float16(half_at(block + 208)) * (float)(int8_t)block[192 + 2 * index + i]);
        }
    }
}

// In `type`, which represents the group's own type exactly.
inline void widen(int own, int type, Group& group) {
    if (own != CENTRED_INT4 || type == own) return;
    group.minimum = to_float16(float16(group.scales[0]) * -8.0f);
    if (type == INT6) {
        for (uint8_t& number : group.numbers) number += 32 - 8;
        group.scales[1] = group.scales[0];
    }
}

// Reads rows `sources` of a tensor into rows `places` of a matrix with so many columns: numbers, a byte each, and as many
// scales, and minima, as its type has.
inline void read_rows(int format, const uint8_t* stored, const int64_t* sources, const int64_t* places, int64_t count,
                      int64_t columns, int type, uint8_t* numbers, uint16_t* scales, uint16_t* minima) {
    const Layout layout = LAYOUTS[format];
    const int64_t groups = columns / GROUP, of_group = scales_of_group(type), of_block = layout.columns / GROUP;
    for (int64_t row = 0; row < count; row++) {
        const uint8_t* blocks = stored + sources[row] * (columns / layout.columns * layout.bytes);
        for (int64_t i = 0; i < groups; i++) {
            const int64_t place = places[row] * groups + i;
            Group group;
            read_group(format, blocks + i / of_block * layout.bytes, (int)(i % of_block), group);
            widen(layout.type, type, group);
            std::memcpy(numbers + place * GROUP, group.numbers, GROUP);
            std::memcpy(scales + place * of_group, group.scales, of_group * sizeof *scales);
            if (minima) minima[place] = group.minimum;
        }
    }
}

}  // namespace midfill
