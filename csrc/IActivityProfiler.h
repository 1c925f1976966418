// PyTorch's privateuse1_profiler.h includes Kineto's header by this name, which is found only in PyTorch's own build.
#pragma once

#include <kineto/IActivityProfiler.h>
