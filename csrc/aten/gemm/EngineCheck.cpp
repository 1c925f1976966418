// The checks of matrix engines by products, before the first one of a type.
#include <ATen/Functions.h>

#include "aten/gemm/Gemm.h"
#include "aten/gemm/MatrixEngine.h"

namespace netcl {
namespace {

// Whether products of integers, whose sums are exact, are correct: for full and partial blocks, and every memory order
// of the operands. The shape is that of one product that needs panels, or of enough products for large tiles.
bool multiplies(const Device& device, c10::ScalarType type, int64_t batches) {
  constexpr int64_t m = 152, n = 84, k = 74;
  const at::Tensor x = at::arange(m * k, at::kFloat).mul(7).remainder(17).sub(8).view({m, k});
  const at::Tensor y = at::arange(k * n, at::kFloat).mul(5).remainder(13).sub(6).view({k, n});
  const at::Tensor expected = x.matmul(y);
  const auto on_device = [&](const at::Tensor& t) {
    return t.to(at::TensorOptions(type).device(c10::DeviceType::PrivateUse1, device.index()));
  };
  const at::Tensor a = on_device(x), b = on_device(y), at = on_device(x.t().contiguous()).t(),
                   bt = on_device(y.t().contiguous()).t();
  for (const auto& [left, right] : {std::pair(a, b), std::pair(a, bt), std::pair(at, b), std::pair(at, bt)}) {
    const at::Tensor c = at::empty({batches, m, n}, left.options().dtype(at::kFloat));
    GemmArgs g;
    g.m = m;
    g.n = n;
    g.k = k;
    g.batch = {1, batches};
    g.a = gemm_matrix(left);
    g.b = gemm_matrix(right);
    g.c = gemm_matrix(c);
    gemm("matrix_engine", current_queue(device.index()), g);
    if (!c.cpu().equal(expected.expand_as(c))) return false;
  }
  return true;
}

bool multiplies_once(const Device& device, c10::ScalarType type) { return multiplies(device, type, 1); }
bool multiplies_in_all_tiles(const Device& device, c10::ScalarType type) {
  return multiplies(device, type, 1) && multiplies(device, type, enough_items(device, 1));
}

[[maybe_unused]] const bool is_set = [] {
  engine_checks() = {&multiplies_once, &multiplies_in_all_tiles};
  return true;
}();

}  // namespace
}  // namespace netcl
