#include "aten/conv/ConvPass.h"

#include <numeric>

namespace netcl {
namespace {

// The taps for positions congruent to `residue` modulo the stride, along one dimension.
struct Phase {
  int64_t grid, taps, ker_first, ker_step;
  int64_t first, step;  // positions in the gradient of the result
};
Phase phase(const ConvGeometry& g, int d, int64_t residue) {
  const int64_t s = g.stride[d], dilation = g.dilation[d], ker_step = s / std::gcd(s, dilation);
  Phase p{residue < g.in[d] ? ceil_div(g.in[d] - residue, s) : 0, 0, 0, ker_step, 0, -(ker_step * dilation / s)};
  for (int64_t k = 0; k < std::min(ker_step, g.kernel[d]); k++) {
    const int64_t at = residue + g.padding[d] - k * dilation;
    if (at % s != 0) continue;
    p.ker_first = k;
    p.first = at / s;
    p.taps = ceil_div(g.kernel[d] - k, ker_step);
    break;
  }
  return p;
}

ConvPass forward_pass(const ConvGeometry& g, bool channels_last) {
  ConvPass p{};
  p.groups = g.groups;
  p.c_in = g.c_in;
  p.c_out = g.c_out;
  for (int d = 0; d < 3; d++) p.padded[d] = g.in[d] + 2 * g.padding[d];
  p.grid = p.dst = g.out;
  p.src_step = g.stride;
  p.dst_step = {1, 1, 1};
  p.taps = p.ker = g.kernel;
  p.tap_step = g.dilation;
  p.ker_step = {1, 1, 1};
  p.w_out = g.taps();
  p.w_in = channels_last ? 1 : volume(g.kernel);
  p.w_point = channels_last ? g.c_in : 1;
  p.channels_last = channels_last;
  p.w_group = g.c_out * g.taps();
  return p;
}

// The part of the passes that all residues share; `before`: zeros before the source.
ConvPass gradient_pass(const ConvGeometry& g, const ConvDims& residues, ConvDims& before, bool channels_last) {
  ConvPass p{};
  p.groups = g.groups;
  p.c_in = g.c_out;
  p.c_out = g.c_in;
  p.dst = g.in;
  p.src_step = {1, 1, 1};
  p.dst_step = g.stride;
  p.ker = g.kernel;
  p.w_out = channels_last ? 1 : volume(g.kernel);
  p.w_in = g.taps();
  p.w_point = channels_last ? g.c_in : 1;
  p.channels_last = channels_last;
  p.w_group = g.c_out * g.taps();
  for (int d = 0; d < 3; d++) {
    int64_t front = 0, back = 0;
    for (int64_t r = 0; r < residues[d]; r++) {
      const Phase ph = phase(g, d, r);
      if (ph.taps == 0 || ph.grid == 0) continue;
      front = std::max(front, -(ph.first + (ph.taps - 1) * ph.step));
      back = std::max(back, ph.first + ph.grid - g.out[d]);
    }
    before[d] = front;
    p.padded[d] = g.out[d] + front + back;
  }
  return p;
}

void set_residue(ConvPass& p, const ConvGeometry& g, const ConvDims& residue, const ConvDims& before) {
  for (int d = 0; d < 3; d++) {
    const Phase ph = phase(g, d, residue[d]);
    p.grid[d] = ph.grid;
    p.dst_first[d] = residue[d];
    p.taps[d] = ph.taps;
    p.tap_first[d] = ph.first + before[d];
    p.tap_step[d] = ph.step;
    p.ker_first[d] = ph.ker_first;
    p.ker_step[d] = ph.ker_step;
  }
}

// A gradient of the input is a pass over the gradient of the result for each residue of the position modulo the stride,
// so a strided convolution does not multiply by zeros.
struct Residues {
  ConvDims count{1, 1, 1}, before;  // zeros before the source
};

ConvPass first_pass(const ConvContext& c, const ConvCall& call, Residues& residues) {
  const ConvGeometry& g = call.g;
  residues.before = g.padding;
  if (!call.forward())
    for (int d = 0; d < 3; d++) residues.count[d] = std::min(g.stride[d], g.in[d]);
  ConvPass p = call.forward() ? forward_pass(g, call.channels_last)
                              : gradient_pass(g, residues.count, residues.before, call.channels_last);
  p.weight = call.w;
  p.bias = call.bias.defined() ? call.bias.to(c.acc).contiguous() : call.bias;
  p.out = call.result();
  p.numbers = c.numbers();
  return p;
}

void run_residues(const ConvContext& c, const ConvCall& call, const Residues& residues, ConvPass& p, RunConvPass run) {
  const ConvDims& count = residues.count;
  for (int64_t r = 0; r < volume(count); r++) {
    const ConvDims residue{r / (count[1] * count[2]), r / count[2] % count[1], r % count[2]};
    if (!call.forward()) set_residue(p, call.g, residue, residues.before);
    if (p.pixels() > 0) run(c, p);
  }
}

ConvDims padded_size(const ConvGeometry& g) {
  ConvDims padded;
  for (int d = 0; d < 3; d++) padded[d] = g.in[d] + 2 * g.padding[d];
  return padded;
}

}  // namespace

void run_passes(const ConvContext& c, const ConvCall& call, int64_t read_ahead, RunConvPass run) {
  const ConvGeometry& g = call.g;
  Residues residues;
  ConvPass p = first_pass(c, call, residues);
  const int64_t slack = read_ahead * c.vec * p.src_step[2];
  const int64_t step = c.images_at_once(g.images, p.source_image());
  for (p.first_image = 0; p.first_image < g.images; p.first_image += step) {
    p.images = std::min(step, g.images - p.first_image);
    p.source = pad_images(c, {call.source(), p.first_image, p.images, call.forward() ? g.in : g.out, residues.before,
                              p.padded, call.channels_last, slack});
    run_residues(c, call, residues, p, run);
  }
}

void run_unpadded_passes(const ConvContext& c, const ConvCall& call, RunConvPass run) {
  Residues residues;
  ConvPass p = first_pass(c, call, residues);
  p.padded = call.forward() ? call.g.in : call.g.out;
  for (int d = 0; d < 3; d++) p.tap_first[d] = -residues.before[d];
  residues.before = {};
  p.images = call.g.images;
  p.source = call.source();
  run_residues(c, call, residues, p, run);
}

int64_t weight_pass_images(const ConvContext& c, const ConvCall& call, int64_t scratch_per_image) {
  const int64_t elements = call.g.groups * call.g.c_in * volume(padded_size(call.g));
  return c.images_at_once(call.g.images, std::max(elements, scratch_per_image));
}

void run_weight_passes(const ConvContext& c, const ConvCall& call, int64_t scratch_per_image, int64_t slice_k,
                       RunConvWeightPass run) {
  const ConvGeometry& g = call.g;
  const bool source_last = call.channels_last && tuning(c.device).gathers_channels;
  const at::Tensor &dw = call.w, x = source_last ? call.x : call.x.contiguous();
  const ConvDims padded = padded_size(g);
  const int64_t numel = dw.numel(), step = weight_pass_images(c, call, scratch_per_image);
  const int64_t most_slices =
      std::max<int64_t>(1, kConvScratchBytes / (numel * static_cast<int64_t>(c10::elementSize(c.acc))));
  at::Tensor sum, parts;
  for (int64_t first = 0; first < g.images; first += step) {
    const int64_t images = std::min(step, g.images - first), k = images * volume(g.out);
    const int64_t slices = slice_k ? ceil_div(k, std::max(slice_k, ceil_div(k, most_slices))) : 1;
    const bool at_once = slices == 1 && step >= g.images;
    if (!at_once && !parts.defined()) {
      parts = c.scratch(slices * numel);
      sum = step < g.images ? c.scratch(numel) : parts;
    }
    const at::Tensor source = pad_images(c, {x, first, images, g.in, g.padding, padded, source_last});
    run(c, {g, images, first, padded, source, call.y, slices, at_once ? dw : parts, call.channels_last, source_last,
            c.numbers()});
    if (at_once) continue;
    const int64_t per_item = tuning(c.device).conv_sums;
    kernel(c.device, "conv/conv_sum.cl", "conv_sum", c.defs().set("OUT", dtype_tag(dw.scalar_type())))
        .launch(c.op, c.queue, {size_t(ceil_div(numel, per_item))}, element_group(c.device), buf(parts), buf(sum),
                buf(dw), ConvSumParams{numel, 0, slices, per_item, first == 0, first + images == g.images});
  }
}

}  // namespace netcl
