// GELU by vectors, in place of ggml's loop over single values, which rounds each to F16 and looks it up in a table of
// 128 KiB, more than the first level cache holds. ggml's ops.cpp includes this file: build-llama-wheel puts both together.
// The formula is ggml's own, the tanh one of D. Hendrycks and K. Gimpel, "Gaussian error linear units", 2016:
// 0.5 x (1 + tanh z) = x / (1 + exp(-2 z)) with z = sqrt(2 / pi) (x + 0.044715 x^3).

namespace {

#if defined(__AVX512F__) && defined(__AVX512DQ__)

#define GELU_WIDTH 16

inline void gelu_step(float * y, const float * x) {
    const __m512 v     = _mm512_loadu_ps(x);
    const __m512 cubic = _mm512_fmadd_ps(_mm512_mul_ps(v, v), _mm512_set1_ps(GELU_COEF_A), _mm512_set1_ps(1.0f));
    const __m512 z     = _mm512_mul_ps(_mm512_mul_ps(v, _mm512_set1_ps(-2.0f * SQRT_2_OVER_PI)), cubic);
    _mm512_storeu_ps(y, _mm512_div_ps(v, _mm512_add_ps(_mm512_set1_ps(1.0f), ggml_v_expf(z))));
}

#elif defined(__AVX2__) && defined(__FMA__)

#define GELU_WIDTH 8

inline void gelu_step(float * y, const float * x) {
    const __m256 v     = _mm256_loadu_ps(x);
    const __m256 cubic = _mm256_fmadd_ps(_mm256_mul_ps(v, v), _mm256_set1_ps(GELU_COEF_A), _mm256_set1_ps(1.0f));
    const __m256 z     = _mm256_mul_ps(_mm256_mul_ps(v, _mm256_set1_ps(-2.0f * SQRT_2_OVER_PI)), cubic);
    _mm256_storeu_ps(y, _mm256_div_ps(v, _mm256_add_ps(_mm256_set1_ps(1.0f), ggml_v_expf(z))));
}

#endif

void gelu_f32(int n, float * y, const float * x) {
    int i = 0;
#ifdef GELU_WIDTH  // elsewhere ggml's loop does all of it
    for (; i + GELU_WIDTH <= n; i += GELU_WIDTH) {
        gelu_step(y + i, x + i);
    }
#endif
    ggml_vec_gelu_f32(n - i, y + i, x + i);
}

}  // namespace
