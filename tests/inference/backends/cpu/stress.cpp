// Runs the kernel on random models with every buffer exactly as large as it has to be, for the address and thread
// sanitizers: all levels and weight types, calls of several sizes, threads that come and go. Also asks that the bits
// be the same however the tokens are cut into calls, and that all levels say about the same. No Python, so that
// nothing else is instrumented, and so that it runs where an emulator is all there is.

#include <cstdio>
#include <deque>
#include <random>

#include "../../../../inference/backends/cpu/kernel/decode.cpp"

using namespace midfill;

namespace {

struct Shape {
    int layers, hidden, intermediate, heads, kv_heads, head_dim, vocabulary, room;
    bool biases, qk_norm;
    bool hybrid;  // layers of all kinds in turn
    int key_dim = 32;
    int window = 0;  // with one, norms are LayerNorms, and the MLP has no gate
};

constexpr int KEPT = 2, KEY_HEADS = 2, VALUE_HEADS = 4, VALUE_DIM = 64;

int padded(int count, int unit) { return (count + unit - 1) / unit * unit; }

// A model of noise: nobody asks what it says, only that it says it without touching what is not its own.
class Noise {
public:
    Noise(const Shape& s, int weight_type) : shape_(s), type_(weight_type) {
        for (int index = 0; index < s.layers; ++index) {
            LayerWeights layer{};
            layer.kind = s.hybrid ? index % 3 : ATTENTION_LAYER;
            if (layer.kind == ATTENTION_LAYER) {
                layer.qkv = in_parts((s.hybrid ? 2 : 1) * s.heads * s.head_dim, 2 * s.kv_heads * s.head_dim, s.hidden);
                layer.attention_out = matrix(s.hidden, s.heads * s.head_dim);
                layer.state = kv_layers_++;
            } else recurrent(layer);
            layer.gate_up = matrix(s.window ? s.intermediate : 2 * padded(s.intermediate, HALF), s.hidden);
            layer.down = matrix(s.hidden, s.intermediate);
            layer.attention_norm = floats(padded(s.hidden, BLOCK));
            layer.mlp_norm = floats(padded(s.hidden, BLOCK));
            layer.attention_norm_bias = s.window ? floats(padded(s.hidden, BLOCK)) : nullptr;
            layer.mlp_norm_bias = s.window ? floats(padded(s.hidden, BLOCK)) : nullptr;
            layer.q_norm = s.qk_norm ? floats(s.head_dim) : nullptr;
            layer.k_norm = s.qk_norm ? floats(s.head_dim) : nullptr;
            layers_.push_back(layer);
        }
        model_ = {s.layers, s.hidden, s.heads, s.kv_heads, s.head_dim, s.vocabulary, s.room,
                  s.hybrid ? s.head_dim / 2 : s.head_dim, s.hybrid, KEPT, KEY_HEADS, VALUE_HEADS, s.key_dim, VALUE_DIM, 0, s.window, !s.window, 1e-6f, 0.125f, 1.5f, 0.5f, matrix(s.vocabulary, s.hidden), layers_.data(),
                  floats(padded(s.hidden, BLOCK)), s.window ? floats(padded(s.hidden, BLOCK)) : nullptr, matrix(s.vocabulary, s.hidden), floats(s.room * s.head_dim / 2), floats(s.room * s.head_dim / 2)};
    }

    const Model& model() const { return model_; }

    // Logits of `room` tokens of each of so many sequences, run in calls of `step` tokens of each.
    std::vector<float> run(int level, int threads, int sequences, int step, int kv_type) const {
        const int64_t head = (int64_t)shape_.room * shape_.head_dim, kv = head * shape_.kv_heads;
        std::vector<std::vector<char>> buffers(sequences);
        // A call reads its states from memory of its own, and now and then writes them to where it has read them.
        std::vector<std::vector<float>> states(sequences), before(sequences);
        for (auto& buffer : buffers) buffer.resize(kv_layers_ * 2 * kv * (kv_type == FLOAT32 ? 4 : 2));
        std::vector<float> logits((size_t)sequences * shape_.room * model_.head.rows);
        Decoder* decoder = nullptr;
        if (midfill_kernel_create(&model_, threads, level, &decoder)) std::abort();
        for (int start = 0; start < shape_.room; start += step) {
            const int tokens = std::min(step, shape_.room - start);
            std::vector<int32_t> ids;
            std::vector<Sequence> called;
            for (int index = 0; index < sequences; ++index) {
                const bool apart = start / step % 2;
                if (apart) before[index] = states[index], states[index].assign(state_values_, NAN);
                if (start == 0) states[index].assign(state_values_, NAN);
                called.push_back({buffers[index].data(), 2 * kv, kv, head,
                                  start == 0 ? nullptr : apart ? before[index].data() : states[index].data(),
                                  states[index].data(), kv_type, tokens, start, tokens});
                for (int t = 0; t < tokens; ++t) ids.push_back((start + t) * 7 % shape_.vocabulary);
            }
            std::vector<Choice> choices(ids.size());
            std::vector<float> rows(ids.size() * model_.head.rows);
            midfill_kernel_forward(decoder, ids.data(), called.data(), sequences, rows.data(), choices.data());
            for (const Choice& choice : choices)
                if (choice.token_id < 0 || choice.token_id >= shape_.vocabulary || !(choice.logprob <= 0)) std::abort();
            const size_t count = (size_t)tokens * model_.head.rows;
            for (int index = 0; index < sequences; ++index)
                std::copy_n(rows.begin() + index * count, count,
                            logits.begin() + ((size_t)index * shape_.room + start) * model_.head.rows);
        }
        midfill_kernel_destroy(decoder);
        return logits;
    }

private:
    void recurrent(LayerWeights& layer) {
        const int hidden = shape_.hidden, values = VALUE_HEADS * VALUE_DIM;
        const bool is_delta = layer.kind == GATED_DELTA;
        const int channels = is_delta ? 2 * KEY_HEADS * shape_.key_dim + values : hidden;
        layer.qkv = is_delta ? matrix(channels + values, hidden) : matrix(3 * hidden, hidden);
        if (is_delta) {
            parts_.push_back(matrix(2 * VALUE_HEADS, hidden, FLOAT32));
            layer.qkv.next = &parts_.back();
        }
        layer.attention_out = matrix(hidden, is_delta ? values : hidden);
        layer.taps = floats((KEPT + 1) * channels);
        layer.decay = floats(VALUE_HEADS), layer.decay_bias = floats(VALUE_HEADS), layer.delta_norm = floats(VALUE_DIM);
        for (float& x : floats_[floats_.size() - 3]) x = -1.0f - x;  // decays
        layer.state = state_values_;
        state_values_ += KEPT * channels + (is_delta ? VALUE_HEADS * shape_.key_dim * VALUE_DIM : 0);
    }

    const float* floats(size_t count) {
        std::uniform_real_distribution<float> any(-0.5f, 0.5f);
        floats_.emplace_back(count);
        for (float& x : floats_.back()) x = any(generator_);
        return floats_.back().data();
    }

    const void* bytes(size_t count) {
        bytes_.emplace_back(count);
        for (uint8_t& x : bytes_.back()) x = generator_() % 255 + 1;
        return bytes_.back().data();
    }

    // About 0.01, as float16 or as bfloat16.
    uint16_t* halves(size_t count, bool float16) {
        halves_.emplace_back(count);
        for (uint16_t& x : halves_.back()) x = (float16 ? 0x2100 : 0x3c00) + generator_() % 256;
        return halves_.back().data();
    }

    Matrix matrix(int rows, int columns) { return matrix(rows, columns, type_); }

    Matrix matrix(int rows, int columns, int type) {
        rows = padded(rows, UNIT), columns = padded(columns, BLOCK);
        const size_t count = (size_t)rows * columns, of_words = (size_t)rows * words_of(type, columns) * 4;
        const bool quantized = is_quantized(type), minima = has_minima(type);
        const void* const weights = type == FLOAT32 ? floats(count)
                                    : quantized     ? bytes(of_words)
                                                    : halves(count, type == FLOAT16);
        const size_t scale_count = count / GROUP * scales_of_group(type) * (minima ? 2 : 1);
        uint16_t* const scales = quantized ? halves(scale_count, true) : nullptr;
        for (size_t i = 0; minima && i < scale_count; ++i)
            if (i / UNIT % 2) scales[i] |= 0x8000 | 0x0c00;  // minima of about -0.08
        return {weights, scales, shape_.biases ? floats(rows) : nullptr, nullptr, rows, columns, type};
    }

    // Rows that are quantized in two ways.
    Matrix in_parts(int first, int second, int columns) {
        if (!is_quantized(type_)) return matrix(first + second, columns);
        Matrix whole = matrix(first, columns);
        parts_.push_back(matrix(second, columns, type_ == INT8 ? INT6 : INT8));
        whole.next = &parts_.back();
        return whole;
    }

    const Shape shape_;
    const int type_;
    std::mt19937 generator_{5};
    std::vector<std::vector<float>> floats_;
    std::vector<std::vector<uint8_t>> bytes_;
    std::vector<std::vector<uint16_t>> halves_;
    std::vector<LayerWeights> layers_;
    std::deque<Matrix> parts_;
    int64_t kv_layers_ = 0, state_values_ = 0;
    Model model_{};
};

// How far apart on average, in relation to how large they are on average.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
    double apart = 0, size = 0;
    for (size_t i = 0; i < a.size(); ++i) apart += std::fabs(a[i] - b[i]), size += std::fabs(b[i]);
    return apart / size;
}

// How far a level may be from portable C++. Sums in another order move a float32 by little, and now and then an int8
// input to the next whole number; where pairs of bfloat16 are multiplied, queries and the softmax are rounded as well.
double bound(int level, int type, int kv_type) {
    if (level == LEVEL_AVX512_BF16 && kv_type == BFLOAT16) return is_quantized(type) ? 0.04 : 0.004;
    return is_quantized(type) ? 0.004 : 0.0001;
}

}  // namespace

int main() {
    const Shape shapes[] = {{2, 96, 150, 5, 1, 32, 101, 77, true, true, false},
                            {1, 64, 64, 4, 2, 64, 33, 130, false, false, false},
                            {1, 96, 150, 2, 1, 32, 33, 300, true, false, false, 32, 23},  // whose window leaves a chunk
                            {3, 96, 64, 2, 1, 64, 33, 40, false, true, true},
                            {3, 64, 64, 1, 1, 64, 33, 5, false, false, true, 4128}};  // keys wider than all else
    int levels = 0;
    for (const Shape& shape : shapes)
        for (int type : {FLOAT32, BFLOAT16, INT8, NARROW_FLOAT32, INT4, CENTRED_INT4, INT5, INT6, FLOAT16}) {
            const Noise noise(shape, type);
            for (int kv_type : {FLOAT32, BFLOAT16}) {
                const std::vector<float> portable = noise.run(LEVEL_PORTABLE, 1, 1, 1, kv_type);
                for (int level = 0; level <= LEVEL_AVX512_BF16; ++level) {
                    if (!midfill_kernel_runs(level)) continue;
                    const std::vector<float> once = noise.run(level, 1, 1, 1, kv_type);
                    if (const double apart = distance(once, portable); !(apart < bound(level, type, kv_type))) {
                        std::printf("level %d, type %d: %g from portable C++\n", level, type, apart);
                        return 1;
                    }
                    ++levels;
                    for (int threads : {2, 3}) {
                        std::vector<float> expected;
                        for (int sequence = 1; sequence <= threads; ++sequence)
                            expected.insert(expected.end(), once.begin(), once.end());
                        if (noise.run(level, threads, threads, 18 / threads, kv_type) != expected) {
                            std::printf("level %d, type %d: other bits with %d threads\n", level, type, threads);
                            return 1;
                        }
                    }
                }
            }
        }
    std::printf("the same bits everywhere, in %d runs of levels\n", levels);
}
