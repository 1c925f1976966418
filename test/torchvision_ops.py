"""torchvision's operators for the tests: of torchvision if it can be imported with its compiled part, else of a
stand-in, which has the same schemas, CPU kernels written here in plain PyTorch, and torchvision's autograd formulas for
netcl. The wheel of torchvision for CUDA does not load beside the CPU build of torch, so the tests cannot count on it.

``load()`` comes first. The functions of this module named as operators are the references; they are differentiable.
"""

from __future__ import annotations

import importlib.util
import math
import sys

import torch

_roi = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_input = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_conv = ", ".join(f"SymInt {name}_{d}" for name in ("stride", "pad", "dilation") for d in "hw")
_conv = f"{_conv}, SymInt groups, SymInt offset_groups, bool use_mask"
_layer = "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias"
SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align": f"(Tensor input, Tensor rois, {_roi}, int sampling_ratio, bool aligned) -> Tensor",
    "_roi_align_backward": f"(Tensor grad, Tensor rois, {_roi}, {_input}, int sampling_ratio, bool aligned) -> Tensor",
    "roi_pool": f"(Tensor input, Tensor rois, {_roi}) -> (Tensor, Tensor)",
    "_roi_pool_backward": f"(Tensor grad, Tensor rois, Tensor argmax, {_roi}, {_input}) -> Tensor",
    "ps_roi_align": f"(Tensor input, Tensor rois, {_roi}, int sampling_ratio) -> (Tensor, Tensor)",
    "_ps_roi_align_backward": f"(Tensor grad, Tensor rois, Tensor channel_mapping, {_roi}, int sampling_ratio, "
    f"{_input}) -> Tensor",
    "ps_roi_pool": f"(Tensor input, Tensor rois, {_roi}) -> (Tensor, Tensor)",
    "_ps_roi_pool_backward": f"(Tensor grad, Tensor rois, Tensor channel_mapping, {_roi}, {_input}) -> Tensor",
    "deform_conv2d": f"({_layer}, {_conv}) -> Tensor",
    "_deform_conv2d_backward": f"(Tensor grad, {_layer}, {_conv}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
}


def nms(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    """Indices of the boxes that no better box kept overlaps by more than the threshold, best first."""
    order = scores.sort(descending=True, stable=True).indices
    b = boxes[order]
    sides = (torch.minimum(b[:, None, 2:], b[None, :, 2:]) - torch.maximum(b[:, None, :2], b[None, :, :2])).clamp(min=0)
    both, area = sides[..., 0] * sides[..., 1], (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    overlap = (both / (area[:, None] + area[None] - both) > threshold).tolist()
    kept: list[int] = []
    for i in range(len(b)):
        if not any(overlap[k][i] for k in kept):
            kept.append(i)
    return order[torch.tensor(kept, dtype=torch.long)]


def _weights(low, high, bins, size, sampling, aligned, force, dtype):
    """A matrix (bins, size) whose products with a row of pixels are the sums over each bin's points, and the number of
    points per bin."""
    shift = 0.5 if aligned else 0.0
    start, length = low - shift, (high - shift) - (low - shift)
    if force:
        length = max(length, torch.ones_like(length))
    step = length / bins
    points = sampling if sampling > 0 else int(math.ceil(step)) if step.isfinite() else 0
    w = torch.zeros(bins, size, dtype=dtype)
    for i in range(bins):
        for k in range(points):
            at = start + i * step + (k + 0.5) * step / points
            if not (-1 <= at <= size):
                continue
            at = max(at, torch.zeros_like(at))
            first = min(int(at), size - 1)
            part = 0.0 if first == size - 1 else (at - first).to(dtype)
            w[i, first] += 1 - part
            if first < size - 1:
                w[i, first + 1] += part
    return w, points


def _align(x, rois, scale, h, w, sampling, aligned, by_position):
    channels = x.shape[1] // (h * w if by_position else 1)
    wide = torch.promote_types(x.dtype, torch.float32)  # of coordinates
    out = []
    for r in rois.to(wide):
        edges, image = r[1:] * scale, int(r[0])
        force = not aligned
        across, nx = _weights(edges[0], edges[2], w, x.shape[3], sampling, aligned, force, torch.float64)
        down, ny = _weights(edges[1], edges[3], h, x.shape[2], sampling, aligned, force, torch.float64)
        sums = torch.einsum("yh,chw,xw->cyx", down, x[image].double(), across)
        if by_position:
            sums = sums.view(channels, h, w, h, w).diagonal(0, 1, 3).diagonal(0, 1, 2)
        out.append(sums / (nx * ny if by_position else max(nx * ny, 1)))
    return torch.stack(out).to(x.dtype) if out else x.new_zeros(0, channels, h, w) + 0 * x.sum()


def roi_align(x, rois, scale, h, w, sampling, aligned):
    """(K, C, h, w): means over points that are interpolated between pixels."""
    return _align(x, rois, scale, h, w, sampling, aligned, False)


def _mapping(x, rois, h, w):
    return torch.arange(x.shape[1], dtype=torch.int32).view(1, -1, h, w).repeat(len(rois), 1, 1, 1)


def ps_roi_align(x, rois, scale, h, w, sampling):
    """As roi_align, with channels of its own for each bin; and the input's channel for each result."""
    return _align(x, rois, scale, h, w, sampling, True, True), _mapping(x, rois, h, w)


def _away(v):
    """Rounds halves away from zero."""
    return int(math.copysign(math.floor(abs(v) + 0.5), v)) if math.isfinite(v) else 0


def _region(low, high, extra, bins, limit):
    start, end = _away(float(low)), _away(float(high))
    step = torch.tensor(float(max(end - start + extra, 1)), dtype=low.dtype) / bins
    for i in range(bins):
        first, last = int((i * step).floor()) + start, int(((i + 1) * step).ceil()) + start
        yield slice(min(max(first, 0), limit), max(min(max(last, 0), limit), 0))


def roi_pool(x, rois, scale, h, w):
    """(K, C, h, w): maxima, and their places in the plane, -1 if there is none."""
    shape = (len(rois), x.shape[1], h, w)
    places = torch.full(shape, -1, dtype=torch.int32)
    out = []
    for k, r in enumerate(rois.to(torch.promote_types(x.dtype, torch.float32))):
        edges, image = r[1:] * scale, int(r[0])
        for i, ys in enumerate(_region(edges[1], edges[3], 1, h, x.shape[2])):
            for j, xs in enumerate(_region(edges[0], edges[2], 1, w, x.shape[3])):
                part = x[image, :, ys, xs]
                if part.shape[1] * part.shape[2] == 0:
                    out.append(part.sum((1, 2)) * 0)
                    continue
                best, at = part.flatten(1).max(1)
                out.append(best)
                width = part.shape[2]
                places[k, :, i, j] = ((at // width + ys.start) * x.shape[3] + at % width + xs.start).int()
    result = torch.stack(out).view(len(rois), h * w, -1).mT.reshape(shape) if out else x.new_zeros(shape) + 0 * x.sum()
    return result, places


def ps_roi_pool(x, rois, scale, h, w, less=1):
    """Means over bins with channels of their own, and the input's channel for each result. The last row and column do
    not count, as in torchvision; in its gradient they do: for that, differentiate with less=0."""
    shape = (len(rois), x.shape[1] // (h * w), h, w)
    out = []
    for r in rois.to(torch.promote_types(x.dtype, torch.float32)):
        edges, image = r[1:] * scale, int(r[0])
        for i, ys in enumerate(_region(edges[1], edges[3], 0, h, x.shape[2] - less)):
            for j, xs in enumerate(_region(edges[0], edges[2], 0, w, x.shape[3] - less)):
                part = x[image, i * w + j :: h * w, ys, xs].double().flatten(1)
                out.append(part.mean(1) if part.shape[1] else part.sum(1))
    result = torch.stack(out).view(len(rois), h * w, -1).mT.reshape(shape) if out else x.new_zeros(shape) + 0 * x.sum()
    return result.to(x.dtype), _mapping(x, rois, h, w)


def _bilinear(planes, y, x):
    """Pixels (N, C, H, W) at (y, x) of shape (N, h, w); 0 outside."""
    n, channels, height, width = planes.shape
    top, left = y.detach().floor(), x.detach().floor()
    total = 0.0
    for j in (0, 1):
        for i in (0, 1):
            row, column = top + j, left + i
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            at = (row.clamp(0, height - 1) * width + column.clamp(0, width - 1)).long().flatten(1)
            v = planes.flatten(2).gather(2, at[:, None].expand(-1, channels, -1)).view(n, channels, *y.shape[1:])
            w = (y - top if j else 1 - (y - top)) * (x - left if i else 1 - (x - left))
            total = total + torch.where(inside, w, 0.0)[:, None] * v
    return total


def deform_conv2d(x, weight, offset, mask, bias, sh, sw, ph, pw, dh, dw, groups, offset_groups, use_mask):
    """A convolution whose taps are displaced by `offset` (y, x) and multiplied by `mask`."""
    n, channels, height, width = x.shape
    kh, kw = weight.shape[2:]
    oh, ow = offset.shape[2:]
    shifts = offset.double().view(n * offset_groups, kh * kw, 2, oh, ow)
    planes = x.double().view(n * offset_groups, -1, height, width)
    taps = []
    for tap in range(kh * kw):
        rows = (torch.arange(oh) * sh - ph + tap // kw * dh)[:, None] + shifts[:, tap, 0]
        columns = (torch.arange(ow) * sw - pw + tap % kw * dw) + shifts[:, tap, 1]
        part = _bilinear(planes, rows, columns)
        if use_mask:
            part = part * mask.double().view(n * offset_groups, kh * kw, oh, ow)[:, tap, None]
        taps.append(part.reshape(n, groups, -1, oh, ow))
    columns = torch.stack(taps, 3)  # (n, groups, channels per group, taps, oh, ow)
    matrix = weight.double().view(groups, -1, weight.shape[1], kh * kw)
    out = torch.einsum("goct,ngctyx->ngoyx", matrix, columns).reshape(n, -1, oh, ow)
    return (out + bias.double().view(1, -1, 1, 1)).to(x.dtype)


REFERENCES = {f.__name__: f for f in (nms, roi_align, roi_pool, ps_roi_align, ps_roi_pool, deform_conv2d)}


def _formula(name, saved, backward):
    """An autograd kernel as torchvision's: `saved` and `backward` take what the operator got, and its results."""
    op = getattr(torch.ops.torchvision, name)

    class Formula(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *args):
            with torch._C._AutoDispatchBelowAutograd():
                results = op(*args)
            pair = results if isinstance(results, tuple) else (results,)
            ctx.save_for_backward(*saved(args, pair))
            ctx.args = [None if isinstance(a, torch.Tensor) else a for a in args]
            ctx.shape = args[0].shape
            ctx.mark_non_differentiable(*pair[1:])
            return results

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, grad, *_):
            grads = backward(grad, ctx.saved_tensors, ctx.args, ctx.shape)
            return (*grads, *[None] * (len(ctx.args) - len(grads)))

    return lambda *args: Formula.apply(*args)


def _define() -> torch.library.Library:
    library = torch.library.Library("torchvision", "DEF")
    for name, schema in SCHEMAS.items():
        library.define(name + schema)
    for name, function in REFERENCES.items():
        library.impl(name, function, "CPU")
        library.impl(name, function, "AutogradCPU")
    ops = torch.ops.torchvision
    formulas = {
        "roi_align": (lambda a, r: (a[1],), lambda g, t, a, s: (
            ops._roi_align_backward(g, t[0], *a[2:5], *s, *a[5:]),)),
        "roi_pool": (lambda a, r: (a[1], r[1]), lambda g, t, a, s: (
            ops._roi_pool_backward(g, *t, *a[2:], *s),)),
        "ps_roi_align": (lambda a, r: (a[1], r[1]), lambda g, t, a, s: (
            ops._ps_roi_align_backward(g, *t, *a[2:], *s),)),
        "ps_roi_pool": (lambda a, r: (a[1], r[1]), lambda g, t, a, s: (
            ops._ps_roi_pool_backward(g, *t, *a[2:], *s),)),
        "deform_conv2d": (lambda a, r: a[:5], lambda g, t, a, s: ops._deform_conv2d_backward(g, *t, *a[5:])),
    }  # fmt: skip
    for name, (saved, backward) in formulas.items():
        library.impl(name, _formula(name, saved, backward), "AutogradPrivateUse1")
    return library


_library = None


def compiled() -> bool:
    """Whether torchvision is there with its own operators."""
    if _library is not None or importlib.util.find_spec("torchvision") is None:
        return False
    try:
        import torchvision
    except RuntimeError:  # it found none of its operators
        for name in [n for n in sys.modules if n.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        return False
    return torchvision.extension._has_ops()


def load():
    """``torch.ops.torchvision`` with all operators."""
    global _library
    if _library is None and not compiled():
        _library = _define()
    return torch.ops.torchvision


def package():
    """The module torchvision, whose functions use ``load()``'s operators; None if it is not installed."""
    load()
    if importlib.util.find_spec("torchvision") is None:
        return None
    import torchvision

    if not torchvision.extension._has_ops():
        for module in ("torchvision.extension", "torchvision.ops.roi_align"):
            sys.modules[module]._has_ops = lambda: True
    return torchvision
