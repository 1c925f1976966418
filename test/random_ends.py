"""The transforms of kernels/random.cl, dropout.cl and sampling.cl with chosen words instead of Philox's: the ends of
the range, which one draw in four thousand million comes near."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import torch_netcl

KERNELS = Path(__file__).parent.parent / "kernels"
#: The dtype tags of kernels/common/dtypes.h.
TAGS = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64"}

#: Words of even number are the low half of the seed, the others its high half. Rejection sampling gets them in turn for
#: the first eight words, and then Philox's own, so that it ends.
CHOSEN = """
#include "common/philox.h"
inline words_t chosen16(ulong seed) {
  words_t r;
  for (int k = 0; k < 4; k++) r.w[k] = (uints)((uint)(k & 1 ? seed >> 32 : seed));
  return r;
}
inline uint chosen(philox_stream_t *s) {
  if (s->used >= 8) return philox_next(s);
  return (uint)(s->used++ & 1 ? s->seed >> 32 : s->seed);
}
#define philox_blocks(seed, first) chosen16(seed)
#define philox_next(s) chosen(s)
"""


def expanded(text: str, seen: set[str]) -> str:
    """The text with its includes inserted."""

    def include(match: re.Match) -> str:
        name = match[1]
        if name in seen:
            return ""
        seen.add(name)
        return expanded((KERNELS / name).read_text(), seen)

    return re.sub(r'^#include "(.*)"$', include, text, flags=re.M)


#: What generated kernels draw. The number of a block is its first two words if Philox's rounds are left out.
COMPILED = """
#include "common/compiled.h"
#include "common/random_lanes.h"
__kernel void draw(BUF(out), BUF(whole), long block, long low, long high) {
  const int lane = VEC == 1 ? 0 : block & 15;
  const long group = block >> 4 & 0xFFFFFFFFFFFF;  // places are not negative
  const longs places = (longs)((group << 6) + (VEC == 1 ? block & 15 : 0)) + LANE_LONGS;
  DRAWN(drawn)
  lanes_f32 uniform, again, half_, bfloat16, normal;
  lanes_i64 integer;
  uniform.v = RANDOM_UNIFORM(drawn, (longs)(0), places);
  again.v = random_uniform((longs)(0), places);
  half_.v = random_of_16_bits(uniform.v, 13);
  bfloat16.v = random_of_16_bits(uniform.v, 16);
  normal.v = random_normal((longs)(0), (longs)(block));
  integer.v = random_integer((longs)(0), (longs)(block), (longs)(low), (longs)(high));
  __global float *x = PTR(out, float);
  x[0] = uniform.s[lane], x[1] = again.s[lane], x[2] = half_.s[lane], x[3] = bfloat16.s[lane], x[4] = normal.s[lane];
  PTR(whole, long)[0] = integer.s[lane];
}
"""


def compiled_draw(device: torch.device) -> Callable[[torch.Tensor, torch.Tensor, int, int, int, int], None]:
    """Calls the kernel of COMPILED with a row of five float32 numbers and one of an int64, a block, and bounds."""
    defs = ["-DDEVICE_CPU"] if torch.netcl.get_device_properties(device).device_class == "cpu" else []
    text = expanded(COMPILED, set())
    assert text.count("round < 10;") == 1
    kernel = torch_netcl.compile_kernel(text.replace("round < 10;", "round < 0;"), "draw", defs)
    return lambda out, whole, k, *rest: kernel(out, 20 * k, whole, 8 * k, *rest, global_size=1, local_size=1)


#: The buffers of the kernels.
BUFFERS = {
    "fill": ("out", "prob", "err"),
    "dropout": ("out", "mask", "in"),
    "sample": ("out", "first", "second", "err"),
    "pick": ("found", "points", "cumulative", "weights", "err"),
}


def with_numbers(name: str) -> str:
    """A kernel `with_numbers` that calls another one, and takes one by one what that one takes in a struct."""
    if name == "pick":
        seed, numbers = [], "long n, long per, long samples, long classes, long code"
        struct = "PickParams P = {n, per, samples, classes, code}"
    else:
        seed, numbers = ["seed", "offset"], "long n, long per, long code, ulong a, ulong b"
        struct = "RandomParams P = {n, per, code, {a, 0}, {b, 0}}"
    declared = ", ".join([f"BUF({b})" for b in BUFFERS[name]] + [f"ulong {s}" for s in seed])
    passed = ", ".join([f"{b}_buf, {b}_off" for b in BUFFERS[name]] + seed)
    return f"__kernel void with_numbers({declared}, {numbers}) {{\n  const {struct};\n  {name}({passed}, P);\n}}\n"


class Chosen:
    """A kernel of the file that uses the chosen words."""

    def __init__(self, file: str, name: str, device: torch.device, **defs: object) -> None:
        properties = torch.netcl.get_device_properties(device)
        if properties.device_class == "cpu":
            defs["DEVICE_CPU"] = 1
        if properties.has_fp64:
            defs["HAVE_FP64"] = 1
        # On a GPU, each of a group's 16 blocks has a work-item (kernels/common/philox.h).
        self.items = 16 if properties.device_class != "cpu" and file in ("random.cl", "dropout.cl") else 1
        text = expanded(CHOSEN + (KERNELS / file).read_text(), set()) + with_numbers(name)
        self.bits = (np.float64, np.uint64) if defs["ACC"] == "f64" else (np.float32, np.uint32)
        self.kernel = torch_netcl.compile_kernel(text, "with_numbers", [f"-D{k}={v}" for k, v in defs.items()])

    def __call__(self, *args: object) -> None:
        of, bits = self.bits
        args = [int(of(a).view(bits)) if isinstance(a, float) else a for a in args]
        flat = [part for a in args for part in ((a, 0) if a is None or isinstance(a, torch.Tensor) else (a,))]
        self.kernel(*flat, global_size=self.items, local_size=self.items)
