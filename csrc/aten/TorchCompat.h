// The differences between the torch versions that netcl compiles against (2.11 to 2.15).
#pragma once

#include <ATen/native/Padding.h>
#include <ATen/ops/_scaled_mm_v2_ops.h>
#include <c10/util/Metaprogramming.h>
#include <torch/headeronly/version.h>

// Up to torch 2.12, the structured kernels' set_output_* take the names of dimensions.
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
#define NETCL_NAMES_PARAM , at::DimnameList names
#define NETCL_NAMES_ARG , names
#else
#define NETCL_NAMES_PARAM
#define NETCL_NAMES_ARG
#endif

// torch 2.11 lacks torch.nn.functional.interpolate's mode "lanczos".
#if __has_include(<ATen/ops/_upsample_lanczos2d_aa_meta.h>)
#include <ATen/ops/_upsample_lanczos2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_lanczos2d_aa_meta.h>
#define NETCL_LANCZOS(REGISTER) REGISTER(_upsample_lanczos2d_aa, kLanczos)
#else
#define NETCL_LANCZOS(REGISTER)
#endif

// torch 2.15 removed torch.cholesky; torch.linalg.cholesky remains.
#if __has_include(<ATen/ops/cholesky_native.h>)
#include <ATen/ops/cholesky_native.h>
#define NETCL_IMPL_CHOLESKY(m)               \
  m.impl("cholesky", &at::native::cholesky); \
  m.impl("cholesky.out", &at::native::cholesky_out);
#else
#define NETCL_IMPL_CHOLESKY(m)
#endif

namespace netcl {

// The scales of _scaled_mm_v2: at::TensorList, from torch 2.14.1 on const at::ITensorListRef&.
using ScaleList = c10::guts::typelist::element_t<
    2, c10::guts::infer_function_traits_t<at::_ops::_scaled_mm_v2::schema>::parameter_types>;

// ATen's check that `padding` has two numbers for each of the last `dim` dimensions; torch 2.15 made `dim` a parameter.
template <int dim>
void check_padding(const at::Tensor& input, at::IntArrayRef padding) {
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 15
  at::native::padding::check_valid_input<dim>(input, padding);
#else
  at::native::padding::check_valid_input(input, padding, dim);
#endif
}

}  // namespace netcl
