// grid_sample over 2 and 3 spatial dimensions, with every interpolation and padding, and both gradients.
#include <ATen/native/GridSamplerUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "args/grid_sample.h"
#include "aten/support/Library.h"
#include "aten/support/Outputs.h"
#include "aten/support/Rows.h"

namespace netcl {
namespace {

using at::Tensor;

struct Sampler {
  const char* op;
  Device& dev;
  Tensor input, grid;
  GridSampleParams shape;
  Defs defs;

  Sampler(const char* op, const Tensor& input_, const Tensor& grid_, int64_t interpolation, int64_t padding,
          bool align_corners)
      : op(op), dev(netcl::device_of(input_)), input(input_.contiguous()), grid(grid_.contiguous()) {
    at::native::check_grid_sampler_common(input_, grid_);
    const int64_t dims = grid.size(-1);
    TORCH_CHECK(input_.dim() == dims + 2, op, ": expected an input of ", dims + 2, " dimensions, got ", input_.dim());
    if (dims == 3) at::native::check_grid_sampler_3d(input_, grid_, interpolation);
    TORCH_CHECK(input.scalar_type() == grid.scalar_type(), op, ": expected input and grid of one dtype, got ",
                input.scalar_type(), " and ", grid.scalar_type());
    TORCH_CHECK(interpolation >= 0 && interpolation <= 2 && padding >= 0 && padding <= 2, op,
                ": interpolation and padding modes are 0, 1 or 2, got ", interpolation, " and ", padding);
    check_floating(dev, input.scalar_type(), op);
    const bool deep = dims == 3;
    shape = {input.size(0),  input.size(1),  deep ? input.size(2) : 1,
             input.size(-2), input.size(-1), deep ? grid.size(1) : 1,
             grid.size(-3),  grid.size(-2)};
    defs.set("IN", dtype_tag(input.scalar_type())).set("ACC", compute_tag(input.scalar_type()));
    constexpr std::array<const char*, 3> kModes{"LINEAR", "NEAREST", "CUBIC"};
    defs.set("OP", kModes[interpolation])
        .set("NDIM", dims)
        .set("PADDING", padding)
        .set("ALIGN", int64_t(align_corners))
        .set("VEC", std::min(kRowVec, tuning(dev).lanes))
        .set("IDX", shape.in_d * shape.in_h * shape.in_w < (int64_t{1} << 31) ? "i32" : "i64");
  }
  at::DimVector output_sizes() const {
    at::DimVector sizes{shape.n, shape.c};
    for (int64_t d = 1; d < grid.dim() - 1; d++) sizes.push_back(grid.size(d));
    return sizes;
  }
  int64_t points() const { return shape.n * shape.out_d * shape.out_h * shape.out_w; }
  int64_t per() const { return units_per_item(dev, points(), 1, 2048); }
  // Channels of a sample whose gradient a work-item adds up, since it finds the taps once for all of them.
  int64_t channels_per() const { return std::max<int64_t>(1, shape.c * shape.n / enough_items(dev, 2, 16384)); }
  Range items() const { return {size_t(ceil_div(points(), per()))}; }
  Range local() const { return element_group(dev); }
};

template <int64_t Dims>
Tensor grid_sampler(const Tensor& input, const Tensor& grid, int64_t interpolation, int64_t padding,
                    bool align_corners) {
  const Sampler s(Dims == 2 ? "aten::grid_sampler_2d" : "aten::grid_sampler_3d", input, grid, interpolation, padding,
                  align_corners);
  Tensor out = at::empty(s.output_sizes(), input.options());
  if (out.numel() == 0) return out;
  kernel(s.dev, "grid_sample.cl", "sample", s.defs)
      .launch(s.op, queue_of(input), s.items(), s.local(), buf(out), buf(s.input), buf(s.grid), s.shape, s.per());
  return out;
}

template <int64_t Dims>
std::tuple<Tensor, Tensor> grid_sampler_backward(const Tensor& grad_output, const Tensor& input, const Tensor& grid,
                                                 int64_t interpolation, int64_t padding, bool align_corners,
                                                 std::array<bool, 2> mask) {
  const Sampler s(Dims == 2 ? "aten::grid_sampler_2d_backward" : "aten::grid_sampler_3d_backward", input, grid,
                  interpolation, padding, align_corners);
  check_sizes(s.op, "grad_output", grad_output, s.output_sizes());
  const Tensor g = grad_output.to(input.scalar_type()).contiguous();
  Tensor gin, ggrid;
  if (mask[0]) {
    const Tensor sum = at::zeros(input.sizes(), input.options().dtype(compute_type(input.scalar_type())));
    if (g.numel() > 0) {
      const int64_t channels = s.channels_per(), parts = ceil_div(s.shape.c, channels);
      kernel(s.dev, "grid_sample.cl", "sample_backward_input", s.defs)
          .launch(s.op, queue_of(input), {size_t(s.shape.n * parts)}, s.local(), buf(sum), buf(g), buf(s.grid), s.shape,
                  channels);
    }
    gin = sum.to(input.scalar_type());
  }
  if (mask[1]) {
    ggrid = at::empty_like(s.grid);
    if (s.points() > 0) {
      kernel(s.dev, "grid_sample.cl", "sample_backward_grid", s.defs)
          .launch(s.op, queue_of(input), s.items(), s.local(), buf(ggrid), buf(g), buf(s.input), buf(s.grid), s.shape,
                  s.per());
    }
  }
  return {gin, ggrid};
}

}  // namespace

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("grid_sampler_2d", &grid_sampler<2>);
  m.impl("grid_sampler_2d_backward", &grid_sampler_backward<2>);
  m.impl("grid_sampler_3d", &grid_sampler<3>);
  m.impl("grid_sampler_3d_backward", &grid_sampler_backward<3>);
}

}  // namespace netcl
