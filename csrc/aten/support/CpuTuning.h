// The numbers that suit a class of devices: here those of CPUs, with few work-items of much work each. tuning() of
// Work.h chooses. Where a case of `python -m benchmarks` and a date are named, the value was measured; others are
// estimates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace netcl {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();  // no threshold

struct Tuning {
  // --- work-items of a group: of any that a kernel asks for, at most; of those that do not know each other; of those
  // that share a column of a matrix (kernels/linalg/columns.h)
  size_t most_group = 1, element_group = 1;
  int64_t team = 1;
  // --- elements of a vector: element-wise, of up to 4 bytes, or of 8; elsewhere (rows, windows, cells) at most
  int64_t vec = 16, wide_vec = 8, lanes = 16;

  // --- what a work-item takes
  int64_t least_chunk = 2048, most_chunk = 32768;  // elements of a dense range, as few as pay for its scheduling
  int64_t grain = 4096;                            // elements that are moved, or computed from their position
  int64_t padded = 8192;                           // elements of padding
  int64_t losses = 512;                            // losses, at least
  int64_t least_draws = 16, most_draws = 512;      // groups of random numbers,
  int64_t draw_items = 1;                          // or work-items per group of them
  int64_t boxes = 1024, box_rows = 8;         // non-maximum suppression: boxes, rows (of different lengths) of pairs
  int64_t counted = 4096;                     // elements of masked selection, at least
  int64_t norm_rows = 1;                      // rows of batch norm in evaluation, at least
  int64_t unpacked = 4096, packed = 16384;    // words of an int4 weight that is converted
  int64_t gemm_sums = 256, conv_sums = 4096;  // results that add up slices of a product, of a convolution
  int64_t offsets = 2048, offset_block = 1;   // entries of a convolution's table, which has whole blocks of them
  int64_t sort_piece = 8192;                  // elements of a run that is sorted at once, at least, or merged

  // --- thresholds
  int64_t copied_bytes = 4 << 20;       // from here on, a kernel copies: the driver has one core (elementwise/copy,
                                        // 2026-11-22, 64 MiB: 9.8 -> 4.2 ms on PoCL, 5.6 -> 3.1 on Intel's runtime)
  int64_t past_cache_bytes = 32 << 20;  // from here on, outputs go past the cache (elementwise, 2026-11-22)
  int64_t kept_bytes = 128 << 10;       // up to here, softmax keeps a row's exponentials in local memory, which is the
                                        // cache (softmax/forward, 2026-11-22: 12 -> 6 ms on PoCL)
  int64_t scores = 2 << 20;             // elements of attention's scores at a time: the cache holds them
  int64_t folded = 8192;                // from so many elements on, several short rows are reduced side by side
  int64_t held = 0;                     // vectors of a row in the registers of a work-item, at most
  int64_t transposed = 32;              // longest rows that are transposed in registers
  int64_t summed_alone = kNever;    // more elements that a work-item would add or write in turn are sorted by places
  int64_t few_indices = kNever;     // with more, the gradient of an embedding sorts them
  int64_t whole_columns = kNever;   // columns of a matrix that one work-group takes in SVD and eigh
  int64_t host_matrix = 64 * 64;    // larger ones go to LAPACK: Jacobi takes twice its operations, on one core; QR of
                                    // 64 x 64: 0.05 ms, LAPACK 0.10, of 128 x 128: 0.6 and 0.26 (2026-11-28)
  int64_t host_factor = 32 * 32;    // the same for LU, Cholesky and solves, here of more than one block (2026-11-28, LU
                                    // of 64 x 64: 0.08 -> 0.02 ms, of 512 x 512: 4.2 -> 0.9; 64 of 16 x 16: no gain)
  int64_t real_products = 1 << 21;  // multiply-adds of a complex product, from which on it is a real one
  int64_t fft_length = 4096;        // of lines that are transformed in the cache, at most
  int64_t fused_steps = 4;          // an LSTM's product and cell are one launch: fewer do not pay for packing W_hh

  // --- algorithms
  bool radix_sort = false;       // a group sorts by digits, else each work-item, and merges
  bool atomic_sums = false;      // add at an index by atomics: a CPU has few work-items, and its atomics are slow
  bool gathers_channels = true;  // the gradient of a convolution's weight reads channels_last images as they are
};

inline constexpr Tuning kCpuTuning{};

}  // namespace netcl
