// What nearly every source includes, parsed once a build (setup.py). Only a way to save time: each source still
// includes what it uses, and NETCL_BUILD_PCH=0 builds without it.
#ifndef NETCL_PRECOMPILED_H  // no #pragma once: it is compiled as a main file
#define NETCL_PRECOMPILED_H

#include <ATen/Functions.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#ifdef NETCL_CHECK_KERNELS
#include "aten/support/Schemas.h"
#endif

#endif
