// Attention of a short batch, in place of ggml's loop over single keys, which calls a function for each product, takes
// each exponential by itself and keeps its sums in F16. ggml's ops.cpp includes this file: build-llama-wheel puts both
// together.
//
// For each head the keys are converted once and transposed, so that one vector holds a query's scores against as many of
// them as it is wide, and the values are converted once. A batch has 64 tokens at most here, so both stay in the first
// level cache and a row of scores stays in registers. For longer batches ggml has tiles of its own.

namespace {

#if defined(__AVX512F__) && defined(__AVX512DQ__)

#define ATTENTION_WIDTH 16

using attention_vec = __m512;

inline attention_vec attention_set(float x) { return _mm512_set1_ps(x); }
inline attention_vec attention_load(const float * x) { return _mm512_loadu_ps(x); }
inline attention_vec attention_load(const ggml_fp16_t * x) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) x));
}
inline void attention_store(float * to, attention_vec x) { _mm512_storeu_ps(to, x); }
inline attention_vec attention_add(attention_vec a, attention_vec b) { return _mm512_add_ps(a, b); }
inline attention_vec attention_max(attention_vec a, attention_vec b) { return _mm512_max_ps(a, b); }
inline attention_vec attention_fma(attention_vec a, attention_vec b, attention_vec c) {
    return _mm512_fmadd_ps(a, b, c);
}

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#define ATTENTION_WIDTH 8

using attention_vec = __m256;

inline attention_vec attention_set(float x) { return _mm256_set1_ps(x); }
inline attention_vec attention_load(const float * x) { return _mm256_loadu_ps(x); }
inline attention_vec attention_load(const ggml_fp16_t * x) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) x));
}
inline void attention_store(float * to, attention_vec x) { _mm256_storeu_ps(to, x); }
inline attention_vec attention_add(attention_vec a, attention_vec b) { return _mm256_add_ps(a, b); }
inline attention_vec attention_max(attention_vec a, attention_vec b) { return _mm256_max_ps(a, b); }
inline attention_vec attention_fma(attention_vec a, attention_vec b, attention_vec c) {
    return _mm256_fmadd_ps(a, b, c);
}

#endif

#ifdef ATTENTION_WIDTH

constexpr int ATTENTION_KEYS = 64;  // at most, a multiple of the width
constexpr int ATTENTION_DEPTH = 64; // of a head at most

struct attention_head {
    alignas(64) float keys[ATTENTION_DEPTH * ATTENTION_KEYS];  // transposed; zero beyond the last key
    alignas(64) float values[ATTENTION_KEYS * ATTENTION_DEPTH];
};

void attention_fill(attention_head & head, int depth, int keys, const char * k, size_t k_stride, const char * v,
                    size_t v_stride) {
    alignas(64) float row[ATTENTION_DEPTH];

    for (int key = 0; key < keys; ++key) {
        for (int d = 0; d < depth; d += ATTENTION_WIDTH) {
            const ggml_fp16_t * value = (const ggml_fp16_t *) (v + key * v_stride) + d;
            attention_store(row + d, attention_load((const ggml_fp16_t *) (k + key * k_stride) + d));
            attention_store(head.values + key * depth + d, attention_load(value));
        }
        for (int d = 0; d < depth; ++d) {
            head.keys[d * ATTENTION_KEYS + key] = row[d];
        }
    }
    for (int key = keys; key % ATTENTION_WIDTH != 0; ++key) {
        for (int d = 0; d < depth; ++d) {
            head.keys[d * ATTENTION_KEYS + key] = 0.0f;
        }
    }
}

// A row of the mask, minus infinity beyond the last key.
void attention_mask(float * to, const ggml_fp16_t * mask, int keys) {
    int key = 0;
    for (; key + ATTENTION_WIDTH <= keys; key += ATTENTION_WIDTH) {
        attention_store(to + key, mask ? attention_load(mask + key) : attention_set(0.0f));
    }
    for (; key < keys; ++key) {
        to[key] = mask ? GGML_CPU_FP16_TO_FP32(mask[key]) : 0.0f;
    }
    for (; key % ATTENTION_WIDTH != 0; ++key) {
        to[key] = -INFINITY;
    }
}

// The lanes of a vector, put together by `join`.
template <typename Join> float attention_across(attention_vec x, Join join) {
    alignas(64) float lanes[ATTENTION_WIDTH];
    attention_store(lanes, x);
    float all = lanes[0];
    for (int lane = 1; lane < ATTENTION_WIDTH; ++lane) {
        all = join(all, lanes[lane]);
    }
    return all;
}

// out = softmax(scale q K^T + mask) V, for one query against BLOCKS vectors of keys.
template <int BLOCKS>
void attention_query(const attention_head & head, int depth, int keys, const float * q, float scale, const float * mask,
                     float * out) {
    attention_vec scores[BLOCKS];
    for (int block = 0; block < BLOCKS; ++block) {
        scores[block] = attention_load(mask + block * ATTENTION_WIDTH);
    }
    for (int d = 0; d < depth; ++d) {
        const attention_vec query = attention_set(q[d] * scale);
        for (int block = 0; block < BLOCKS; ++block) {
            const float * column = head.keys + d * ATTENTION_KEYS + block * ATTENTION_WIDTH;
            scores[block] = attention_fma(query, attention_load(column), scores[block]);
        }
    }
    attention_vec highest = scores[0];
    for (int block = 1; block < BLOCKS; ++block) {
        highest = attention_max(highest, scores[block]);
    }
    const float most = attention_across(highest, [](float a, float b) { return std::max(a, b); });
    if (most == -INFINITY) {  // the mask hides every key
        std::fill(out, out + depth, 0.0f);
        return;
    }
    alignas(64) float weights[BLOCKS * ATTENTION_WIDTH];
    attention_vec sums = attention_set(0.0f);
    for (int block = 0; block < BLOCKS; ++block) {
        const attention_vec weight = ggml_v_expf(attention_add(scores[block], attention_set(-most)));
        sums = attention_add(sums, weight);
        attention_store(weights + block * ATTENTION_WIDTH, weight);
    }
    const float share = 1.0f / attention_across(sums, [](float a, float b) { return a + b; });
    for (int d = 0; d < depth; d += ATTENTION_WIDTH) {
        attention_vec mean = attention_set(0.0f);
        for (int key = 0; key < keys; ++key) {
            const attention_vec value = attention_load(head.values + key * depth + d);
            mean = attention_fma(attention_set(weights[key] * share), value, mean);
        }
        attention_store(out + d, mean);
    }
}

// The query for a number of blocks that is known when it runs.
template <int BLOCKS = ATTENTION_KEYS / ATTENTION_WIDTH, typename... Rest>
void attention_query_of(int blocks, Rest&&... rest) {
    if constexpr (BLOCKS > 1) {
        if (blocks < BLOCKS) {
            attention_query_of<BLOCKS - 1>(blocks, rest...);
            return;
        }
    }
    attention_query<BLOCKS>(rest...);
}

#endif

// Computes the rows [begin, end) if they are of a short batch and nothing unusual is asked for; says whether it did.
bool attention_rows(const ggml_compute_params * params, ggml_tensor * dst, int64_t begin, int64_t end) {
#ifdef ATTENTION_WIDTH
    const ggml_tensor * q     = dst->src[0];
    const ggml_tensor * k     = dst->src[1];
    const ggml_tensor * v     = dst->src[2];
    const ggml_tensor * mask  = dst->src[3];
    const ggml_tensor * sinks = dst->src[4];
    const int64_t depth = q->ne[0];
    const int64_t keys  = k->ne[1];
    float options[3];  // scale, ALiBi's bias, soft cap
    memcpy(options, dst->op_params, sizeof(options));

    if (params->use_ref || q->type != GGML_TYPE_F32 || k->type != GGML_TYPE_F16 || v->type != GGML_TYPE_F16 || sinks ||
        options[1] != 0.0f || options[2] != 0.0f || keys > ATTENTION_KEYS || depth > ATTENTION_DEPTH ||
        depth % ATTENTION_WIDTH != 0 || v->ne[0] != depth) {
        return false;
    }
    attention_head head;
    float hidden[ATTENTION_KEYS];
    int64_t filled = -1;
    for (int64_t row = begin; row < end; ++row) {
        const int64_t number = row / q->ne[1];  // of the head, through all matrices
        const int64_t i1 = row % q->ne[1];
        const int64_t i2 = number % q->ne[2];
        const int64_t i3 = number / q->ne[2];
        const auto at = [&](const ggml_tensor * t) {
            const int64_t head_of = i2 / (q->ne[2] / t->ne[2]), matrix = i3 / (q->ne[3] / t->ne[3]);
            return (const char *) t->data + head_of * t->nb[2] + matrix * t->nb[3];
        };
        if (number != filled) {
            attention_fill(head, depth, keys, at(k), k->nb[1], at(v), v->nb[1]);
            filled = number;
        }
        const char * hides = !mask ? nullptr : (const char *) mask->data + i1 * mask->nb[1] +
                             i2 % mask->ne[2] * mask->nb[2] + i3 % mask->ne[3] * mask->nb[3];
        attention_mask(hidden, (const ggml_fp16_t *) hides, keys);
        // the result's heads lie side by side for each query
        char * out = (char *) dst->data + ((i3 * dst->ne[2] + i1) * dst->ne[1] + i2) * dst->nb[1];
        attention_query_of((keys + ATTENTION_WIDTH - 1) / ATTENTION_WIDTH, head, depth, keys,
                           (const float *) (at(q) + i1 * q->nb[1]), options[0], hidden, (float *) out);
    }
    return true;
#else
    (void) params, (void) dst, (void) begin, (void) end;
    return false;
#endif
}

}  // namespace
