// The loop of the products on GPUs (gemm_gpu.cl, gemm_units.cl, conv_gemm_gpu.cl, conv_units.cl). Local memory holds
// two blocks of each operand, KC deep: while one is multiplied, the next one is loaded into registers.
//
// An operand x = a or b has a loader: strided (gemm_gpu.cl, unit_operand.h), gathered or packed (conv_gemm_gpu.cl,
// conv_units.cl). It defines
//   x_source                    where a work-item's elements of the next block lie
//   x_moved, x_vectors          a vector of them; their number
//   x_fetch(source, left, r)    reads them; those beyond the matrix are 0. left: the remaining depth, at most KC
//   x_next(source)              moves to the next block
//   x_put(source, r, block)     writes them to a block in local memory
// gemm_blocks.h (portable) or gemm_units.h (matrix units) defines x_local, x_block (the elements of a block), Item (a
// work-item's place in the group), sums_t (of a work-item, ROWS x COLS), multiply_blocks(), and ends_early: whether the
// loop ends before the last barrier. NVIDIA's compiler takes 6 to 8 registers more for the portable loop that does, and
// 4 instructions more for the units' loop that does not.

// t += the product of two operands, k deep; ta and tb hold two blocks of each.
ALWAYS_INLINE void multiply(long k, a_source* A, b_source* B, __local a_local* ta, __local b_local* tb, Item I,
                            sums_t (*t)[COLS]) {
  a_moved ra[a_vectors];
  b_moved rb[b_vectors];
  a_fetch(A, (int)min(k, (long)KC), ra);
  b_fetch(B, (int)min(k, (long)KC), rb);
  a_put(A, ra, ta);
  b_put(B, rb, tb);
  barrier(CLK_LOCAL_MEM_FENCE);
  int now = 0;
  for (long left = k - KC; ends_early || left > -KC; left -= KC) {
    if (left > 0) {
      a_next(A);
      b_next(B);
      a_fetch(A, (int)min(left, (long)KC), ra);
      b_fetch(B, (int)min(left, (long)KC), rb);
    }
    multiply_blocks(ta + now * a_block, tb + now * b_block, I, t);
    if (ends_early && left <= 0) break;
    now = 1 - now;
    if (left > 0) {
      a_put(A, ra, ta + now * a_block);
      b_put(B, rb, tb + now * b_block);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}
