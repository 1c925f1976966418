// Where a work-item of conv_gemm_gpu.cl or conv_units.cl finds its part of a block of the gathered operand: vectors of
// A_EACH taps. If ALONG_K is 1, neighbouring work-items read neighbouring taps, and a work-item's vectors lie in rows
// that are a_lines_apart apart; else neighbours read neighbouring rows, and all of its vectors lie in one.

enum {
  a_vectors = HEIGHT * KC / (ITEMS * A_EACH),
  a_rows = ALONG_K ? a_vectors : 1,
  a_lines_apart = ALONG_K ? ITEMS * A_EACH / KC : 0,
  a_k_apart = ALONG_K ? 0 : ITEMS / HEIGHT * A_EACH
};
#if !ALONG_K && ITEMS < HEIGHT
#error "a work-item has one row"
#endif

static inline uint first_line(uint id) { return ALONG_K ? id / (KC / A_EACH) : id % HEIGHT; }
static inline uint first_tap(uint id) { return ALONG_K ? id % (KC / A_EACH) * A_EACH : id / HEIGHT * A_EACH; }
