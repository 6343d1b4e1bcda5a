// F32 activations times F16 weights for processors with AVX-512, in place of the loop in ggml's amx/mmq.cpp, which
// includes this file: build-llama-wheel puts both together. `Unroll`, `parallel_for_ggml` and `ggml_batch_offset` are
// that file's.
//
// ggml's loop takes four rows of activations, runs over all weights, and converts each weight to F32 in every pass. Here
// a thread takes sixteen rows of weights, converts 384 columns of them once, and runs over all activations: the panel of
// 24 KiB stays in the first level cache, and each thread reads its share of the weights instead of all of them, which is
// what a short query's time goes into. Tiles of 6 x 4 sums take 24 multiplications for 10 loads.
//
// K. Goto and R. van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008, for the panels.

namespace {

constexpr int F16_TILE_ROWS   = 6;    // of activations
constexpr int F16_TILE_COLS   = 4;    // rows of weights, columns of the result
constexpr int F16_PANEL_COLS  = 16;   // divides the width of every result: ggml takes multiples of 32 only
constexpr int F16_PANEL_DEPTH = 384;  // a multiple of 16, as every depth here is

// C += A B^T or C = A B^T, for ROWS x F16_TILE_COLS sums over `depth`.
template <int ROWS>
void f16_tile(int depth, const float * A, int lda, const float * B, float * C, int ldc, bool add) {
    __m512 a;
    __m512 b[F16_TILE_COLS];
    __m512 sums[ROWS * F16_TILE_COLS];

    Unroll<ROWS * F16_TILE_COLS>{}([&](auto i) { sums[i] = _mm512_setzero_ps(); });
    const auto step = [&](auto i, int k) {
        constexpr int row = i / F16_TILE_COLS;
        constexpr int col = i % F16_TILE_COLS;
        if constexpr (col == 0) {
            a = _mm512_loadu_ps(A + (int64_t) row * lda + k);
        }
        if constexpr (row == 0) {
            b[col] = _mm512_load_ps(B + col * F16_PANEL_DEPTH + k);
        }
        sums[i] = _mm512_fmadd_ps(a, b[col], sums[i]);
    };
    for (int k = 0; k < depth; k += 16) {
        Unroll<ROWS * F16_TILE_COLS>{}(step, k);
    }
    Unroll<ROWS * F16_TILE_COLS>{}([&](auto i) {
        float & out = C[(int64_t) (i / F16_TILE_COLS) * ldc + i % F16_TILE_COLS];
        const float sum = _mm512_reduce_add_ps(sums[i]);
        out = add ? out + sum : sum;
    });
}

// The tile for a number of rows that is known when it runs.
template <int ROWS = F16_TILE_ROWS, typename... Rest> void f16_tile_of(int rows, Rest... rest) {
    if constexpr (ROWS > 1) {
        if (rows < ROWS) {
            f16_tile_of<ROWS - 1>(rows, rest...);
            return;
        }
    }
    f16_tile<ROWS>(rest...);
}

void f16_fill_panel(float * panel, const ggml_fp16_t * weights, int stride, int depth) {
    for (int col = 0; col < F16_PANEL_COLS; ++col) {
        for (int k = 0; k < depth; k += 16) {
            const __m256i half = _mm256_loadu_si256((const __m256i *) (weights + (int64_t) col * stride + k));
            _mm512_store_ps(panel + col * F16_PANEL_DEPTH + k, _mm512_cvtph_ps(half));
        }
    }
}

void f16_prefetch(const ggml_fp16_t * weights, int depth) {
    for (int k = 0; k < depth; k += 32) {
        _mm_prefetch((const char *) (weights + k), _MM_HINT_T1);  // the first level cache is full of the panel
    }
}

// One panel's columns of the result: A is M x K activations, B the panel's weights, C its first column. While a block is
// multiplied the next one is fetched, some rows with each tile, since converting alone would wait for memory.
void f16_panel(int M, int K, const float * A, const ggml_fp16_t * B, float * C, int ldc, bool last) {
    alignas(64) float panel[F16_PANEL_COLS * F16_PANEL_DEPTH];
    const int tiles = (M + F16_TILE_ROWS - 1) / F16_TILE_ROWS;
    const int steps = tiles * (F16_PANEL_COLS / F16_TILE_COLS);

    for (int k = 0; k < K; k += F16_PANEL_DEPTH) {
        const int depth = std::min(F16_PANEL_DEPTH, K - k);
        const bool done = k + depth == K;
        const ggml_fp16_t * next_block = done ? B + (int64_t) F16_PANEL_COLS * K : B + k + depth;
        int step = 0, fetched = done && last ? F16_PANEL_COLS : 0;
        f16_fill_panel(panel, B + k, K, depth);
        for (int tile = 0; tile < tiles; ++tile) {
            // rows are shared out evenly: thirteen are 5 + 4 + 4, since a tile of one row costs half of a full one
            const int row  = (int) ((int64_t) tile * M / tiles);
            const int next = (int) ((int64_t) (tile + 1) * M / tiles);
            for (int col = 0; col < F16_PANEL_COLS; col += F16_TILE_COLS) {
                for (++step; fetched < F16_PANEL_COLS * step / steps; ++fetched) {
                    f16_prefetch(next_block + (int64_t) fetched * K, depth);
                }
                f16_tile_of(next - row, depth, A + (int64_t) row * K + k, K, panel + col * F16_PANEL_DEPTH,
                            C + (int64_t) row * ldc + col, ldc, k > 0);
            }
        }
    }
}

// dst = src1 src0^T, for each matrix of the batch.
void mul_mat_f16(const ggml_compute_params * params, ggml_tensor * dst) {
    const ggml_tensor * src0 = dst->src[0];
    const ggml_tensor * src1 = dst->src[1];
    const int M   = dst->ne[1];
    const int K   = src0->ne[0];
    const int ldc = dst->nb[1] / dst->nb[0];
    const int panels = dst->ne[0] / F16_PANEL_COLS;
    const int64_t batch = dst->ne[2] * dst->ne[3];

    parallel_for_ggml(params, batch * panels, [&](int begin, int end) {
        for (int i = begin; i < end; ++i) {
            const int64_t matrix = i / panels;
            const int     first  = i % panels * F16_PANEL_COLS;
            const auto at = [&](const ggml_tensor * t) { return (char *) t->data + ggml_batch_offset(t, matrix, dst->ne[2]); };
            f16_panel(M, K, (const float *) at(src1), (const ggml_fp16_t *) at(src0) + (int64_t) first * K,
                      (float *) at(dst) + first, ldc, i + 1 == end);
        }
    });
}

}  // namespace
