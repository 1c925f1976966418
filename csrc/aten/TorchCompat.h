// What differs between the torch versions that netcl compiles against (2.11 to 2.13).
#pragma once

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
