// Packs the numbers of quantized matrices into words, as model.h describes them.
#pragma once

#include "model.h"

namespace midfill {

// The words of a group's numbers, `stride` bytes one behind another: first those with the bits beyond four.
inline void pack_group(const uint8_t* numbers, int type, uint8_t* words, int64_t stride) {
    if (type == INT8) {
        for (int i = 0; i < GROUP; i++) words[i / 4 * stride + i % 4] = numbers[i] + 128;
        return;
    }
    const int upper = upper_words(type), bits = upper;  // of each number in them
    for (int word = 0; word < upper; word++) {
        const int fields = GROUP / 4 / upper;
        for (int byte = 0; byte < 4; byte++) {
            uint8_t sum = 0;
            for (int field = 0; field < fields; field++)
                sum |= (numbers[4 * (fields * word + field) + byte] >> 4) << (bits * field);
            words[word * stride + byte] = sum;
        }
    }
    for (int word = 0; word < GROUP / 8; word++)
        for (int byte = 0; byte < 4; byte++) {
            const uint8_t* eight = numbers + 8 * word;
            words[(upper + word) * stride + byte] = (eight[byte] & 15) | eight[byte + 4] << 4;
        }
}

// Rows of numbers, a byte each, into whole units with so many columns; what is missing there counts as 0.
inline void pack_numbers(const uint8_t* numbers, int64_t rows, int64_t columns, int64_t padded, int type,
                         uint8_t* packed) {
    const int64_t groups = padded / GROUP, words = words_of(type, GROUP), stride = 4 * UNIT;
    for (int64_t row = 0; row < (rows + UNIT - 1) / UNIT * UNIT; row++)
        for (int64_t group = 0; group < groups; group++) {
            const int64_t first = group * GROUP, left = row < rows ? columns - first : 0;
            uint8_t own[GROUP] = {};
            for (int64_t i = 0; i < left && i < GROUP; i++) own[i] = numbers[row * columns + first + i];
            uint8_t* unit = packed + (row / UNIT * groups + group) * words * stride;
            pack_group(own, type, unit + row % UNIT * 4, stride);
        }
}

}  // namespace midfill
