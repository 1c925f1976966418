// What differs between the torch versions that netcl compiles against (2.11 to 2.15).
#pragma once

#include <ATen/native/Padding.h>
#include <torch/headeronly/version.h>

// Named tensors left the structured kernels' set_output_* in torch 2.13.
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
#define NETCL_NAMES_PARAM , at::DimnameList names
#define NETCL_NAMES_ARG , names
#else
#define NETCL_NAMES_PARAM
#define NETCL_NAMES_ARG
#endif

// torch.nn.functional.interpolate's mode "lanczos" is newer than torch 2.11.
#if __has_include(<ATen/ops/_upsample_lanczos2d_aa_meta.h>)
#include <ATen/ops/_upsample_lanczos2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_lanczos2d_aa_meta.h>
#define NETCL_LANCZOS(REGISTER) REGISTER(_upsample_lanczos2d_aa, kLanczos)
#else
#define NETCL_LANCZOS(REGISTER)
#endif

// torch.cholesky left PyTorch in 2.15; torch.linalg.cholesky stays.
#if __has_include(<ATen/ops/cholesky_native.h>)
#include <ATen/ops/cholesky_native.h>
#define NETCL_IMPL_CHOLESKY(m)               \
  m.impl("cholesky", &at::native::cholesky); \
  m.impl("cholesky.out", &at::native::cholesky_out);
#else
#define NETCL_IMPL_CHOLESKY(m)
#endif

namespace netcl {

// ATen's check that `padding` has two numbers for each of the last `dim` dimensions: a parameter since torch 2.15.
template <int dim>
void check_padding(const at::Tensor& input, at::IntArrayRef padding) {
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 15
  at::native::padding::check_valid_input<dim>(input, padding);
#else
  at::native::padding::check_valid_input(input, padding, dim);
#endif
}

}  // namespace netcl
