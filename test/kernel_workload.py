"""Uses every file of kernels/ on device 0, then builds each used program again and prints the compilers' logs as JSON:
[[file, options, log], ...]. test_kernels.py runs it once per device class. With --sources it prints [[file, kernel,
options, source], ...] and builds nothing again, for tools/gpu_lab.py."""

import contextlib
import json
import sys
import warnings

import torch
import torch.nn.functional as F
import torchvision_ops

D = torch.device("netcl", 0)


def training() -> None:
    """Layers and losses, forward and backward; of the 16-bit floats only half, whose loads are OpenCL's own."""
    for dtype in (torch.float32, torch.float16):
        x = torch.randn(2, 8, 12, 12, device=D, dtype=dtype, requires_grad=True)
        conv = torch.nn.Conv2d(8, 8, 3, padding=1, device=D, dtype=dtype)
        y = F.batch_norm(conv(x), None, None, training=True)
        y = F.max_pool2d(F.pad(F.gelu(y), (1, 1, 1, 1), mode="reflect"), 2)
        y = F.avg_pool2d(F.dropout(y, 0.5), 2)
        y = F.layer_norm(F.group_norm(y, 2), y.shape[1:])
        logits = y.flatten(1) @ torch.randn(y[0].numel(), 5, device=D, dtype=dtype)
        F.cross_entropy(logits, torch.tensor([1, 2], device=D)).backward()
        q = torch.randn(2, 2, 9, 16, device=D, dtype=dtype, requires_grad=True)
        F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
        one = q[:1, :1]  # too few heads for one per core
        F.scaled_dot_product_attention(one, one, one).sum().backward()
        one = torch.randn(128, 2, 1, 16, device=D, dtype=dtype)  # heads for every core
        F.scaled_dot_product_attention(one, one, one)
        for width in (64, 128):
            q = torch.randn(1, 2, 20, width, device=D, dtype=dtype, requires_grad=True)
            mask = torch.zeros(20, 20, device=D, dtype=dtype) if width == 64 else None
            F.scaled_dot_product_attention(q, q, q, attn_mask=mask).sum().backward()
        for n in (64, 9001):  # on GPUs, rows that registers hold and longer ones
            rows = torch.randn(2, n, device=D, dtype=dtype, requires_grad=True)
            w = torch.randn(n, device=D, dtype=dtype, requires_grad=True)
            F.layer_norm(rows.softmax(1), (n,), w, w).sum().backward()
    torch.nn.BatchNorm2d(4).to(D).eval()(torch.randn(2, 4, 3, 3, device=D)).sum().backward()
    lstm = torch.nn.LSTM(4, 8, device=D)
    for steps in (3, 4):
        lstm(torch.randn(steps, 2, 4, device=D))[0].sum().backward()
    torch.nn.GRU(4, 8, device=D)(torch.randn(3, 2, 4, device=D))[0].sum().backward()
    torch.nn.LSTMCell(4, 8).to(D)(torch.randn(2, 4, device=D))[0].sum().backward()
    table = torch.nn.Embedding(10, 4, device=D)
    table(torch.tensor([1, 2, 2], device=D)).sum().backward()
    table(torch.tensor([1, 2, 2], device=D).repeat(40)).sum().backward()
    p = torch.rand(6, device=D, requires_grad=True)
    F.binary_cross_entropy(p, torch.rand(6, device=D)).backward()
    F.multi_margin_loss(torch.randn(3, 4, device=D), torch.tensor([0, 1, 2], device=D))
    torch._fake_quantize_learnable_per_channel_affine(
        torch.randn(3, 4, device=D), torch.ones(3, device=D), torch.zeros(3, device=D), 0, 0, 15
    )


def optimizers() -> None:
    for fused in (False, True):
        w = torch.nn.Parameter(torch.randn(300, device=D))
        optimizer = torch.optim.AdamW([w], fused=fused, foreach=None if fused else True)
        scaler = torch.amp.GradScaler("netcl")
        scaler.scale((w * w).sum()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    norm = torch.nn.BatchNorm1d(4).to(D)
    with torch.netcl.amp.detect_overflow(norm), torch.netcl.amp.transactional(norm) as transaction:
        norm(torch.randn(3, 4, device=D))
        transaction.settle(torch.ones((), device=D))


def operators() -> None:
    x = torch.zeros(17 << 20, device=D)
    x.sum(), x + 1, x.half() + 1, x.bfloat16() + 1, x.double() + 1  # larger than the cache
    x = torch.randn(40, 70, device=D)
    i = torch.randint(0, 40, (5,), device=D)
    (x + 1).sum(1), x.amax(0), x.std(), x.argmax(1), x.cumsum(0), x.sort(1), x.topk(3), x.tril(), x.flip(0)
    x.masked_fill(x > 0, 1.0), x[i], x[x > 0], x.gather(0, i.view(1, -1).expand(3, 5)), torch.cat([x, x]), x.roll(3, 0)
    x.scatter_add(0, i.view(-1, 1), x[:5, :1]), x.masked_scatter(x > 0, x), torch.nonzero(x), torch.where(x > 0, x, 0)
    x.masked_select(x > 0)
    torch.use_deterministic_algorithms(True)
    many = i.repeat(40)
    x.index_put((many,), x[:1].expand(200, 70)), x.scatter_add(0, many[:, None], x[:1, :1].expand(200, 1))
    torch.use_deterministic_algorithms(False)
    for n in (2000, 3000):  # a tile and more
        x.new_zeros(n).sort()
    x.new_zeros(150_000).sort(), x.new_zeros(9000).topk(2), x.new_zeros(3).median(), x.new_zeros(3).mode()
    x.new_zeros(9, dtype=torch.complex128).index_add(0, i[:1].repeat(99) % 9, x.new_zeros(99, dtype=torch.complex128))
    x.new_zeros(9000, dtype=torch.bfloat16).index_add(0, i, x.new_zeros(5, dtype=torch.bfloat16))
    for shape in ((70_000,), (9000, 8)):
        x.new_zeros(shape).cumsum(0), x.new_zeros(shape).cummax(0)
    torch.searchsorted(x.sort(1).values, x), torch.arange(5, device=D), torch.randint(0, 9, (8,), device=D)
    (torch.randn(5, device=D, dtype=torch.complex64) * 2j).abs(), (x.long() // 3).sum(), torch.randperm(9, device=D)
    torch.randperm(70_000, device=D), torch.cat([x] * 40), torch.histc(x, 9), x[:20] @ x.new_zeros(70, 300)
    for m in (3, 40, 300):
        a = torch.randn(m, m, device=D)
        a @ a, a @ a[0], torch.bmm(a[None], a[None])
    a = torch.randn(700, 900, device=D)
    a @ a.t(), a[:9].t() @ a[:9], a[:, :8].t() @ a[:, :8]
    a.bfloat16().t() @ a.bfloat16(), torch.randn(40, 9000, device=D) @ torch.randn(9000, 40, device=D)
    torch.cdist(x, x, 1.5), F.pdist(x, 2), torch.linalg.cross(x[:, :3], x[:, 3:6])
    image = torch.randn(1, 2, 9, 9, device=D, requires_grad=True)
    F.fractional_max_pool2d(image, 2, output_size=4).sum().backward()
    F.max_unpool2d(*F.max_pool2d(image[..., :8], 2, return_indices=True), 3, 2)
    F.adaptive_max_pool2d(image, 4).sum().backward()
    last = image.contiguous(memory_format=torch.channels_last)
    (F.max_pool2d(last, 3, 2).sum() + F.avg_pool2d(last, 3, 2).sum()).backward()
    F.interpolate(last, scale_factor=2).sum().backward()
    F.interpolate(torch.ones(1, 1, 2, device=D, requires_grad=True), size=5000).sum().backward()  # too many per input
    last = torch.randn(1, 16, 65, 65, device=D).contiguous(memory_format=torch.channels_last).requires_grad_()
    F.batch_norm(F.group_norm(last, 2), None, None, training=True).sum().backward()
    F.batch_norm(last, torch.zeros(16, device=D), torch.ones(16, device=D)).sum().backward()
    torch.randn(40, 20, device=D, requires_grad=True).softmax(1).sum().backward()
    w = torch.randn(4, 1, 3, 3, device=D, requires_grad=True)
    for dilation in (1, 2):
        F.conv2d(torch.randn(1, 4, 9, 9, device=D), w, dilation=dilation, groups=4).sum().backward()
    for channels, groups in ((16, 1), (3, 1), (8, 8), (16, 16)):
        last = torch.randn(1, channels, 9, 9, device=D).contiguous(memory_format=torch.channels_last).requires_grad_()
        w_last = torch.randn(4 if groups == 1 else channels, channels // groups, 3, 3, device=D, requires_grad=True)
        F.conv2d(last, w_last, groups=groups).sum().backward()
    F.conv2d(torch.randn(1, 1, 64, 64, device=D), w).sum().backward()  # the sum over pixels is split
    F.embedding_bag(i, x, torch.tensor([0, 2], device=D))
    F.grid_sample(x[None, None], torch.rand(1, 4, 4, 2, device=D), align_corners=False)
    torch.special.i0e(x), torch.special.airy_ai(x), torch.erfinv(x), torch.igamma(x.abs(), x.abs()), torch.frexp(x)
    torch.special.legendre_polynomial_p(x, 3), torch.special.bessel_y1(x.double())
    torch._assert_async(x[0, 0].isfinite()), torch.segment_reduce(x, "mean", lengths=torch.tensor([40], device=D))
    for labels in (5, 600):  # on GPUs, states that local memory keeps and more
        log_probs = x[:, None].log_softmax(2).requires_grad_()
        F.ctc_loss(log_probs, i.new_ones(1, labels), [40], [labels], zero_infinity=True).backward()
    F.interpolate(x[None, None].requires_grad_(), size=(9, 9), mode="bicubic", antialias=True).sum().backward()
    F.interpolate(x[None, None].byte(), size=(9, 9), mode="bilinear")
    x = x.detach()
    b = x[:, :40] @ x[:, :40].t() + 40 * torch.eye(40, device=D)
    torch.netcl.set_cpu_fallback_mode("error")  # LAPACK takes no matrix
    torch.linalg.lu(b), torch.linalg.solve(torch.linalg.cholesky(b), x), torch.linalg.lu_factor(b.repeat(8, 1))
    for a in (b[:5, :5], torch.randn(70, 70, device=D), torch.randn(2, 66, 70, device=D)):  # one kernel; panels, rounds
        torch.linalg.qr(a), torch.ormqr(*torch.geqrf(a), a)
        for singular in (torch.linalg.svd, torch.linalg.svdvals):
            with contextlib.suppress(torch.linalg.LinAlgError):  # of PoCL in GPU shape: docs/gpu.md
                singular(a)
    for a in (b[:5, :5], x.new_ones(70, 70)):
        torch.linalg.eigh(a), torch.linalg.matrix_exp(a)
    torch.linalg.ldl_solve(*torch.linalg.ldl_factor(b), b), torch.linalg.lstsq(b, b)
    torch.netcl.set_cpu_fallback_mode("silent")
    torch.fft.fft(x[:, :30]), torch.fft.rfft(x, 17, dim=0), torch.fft.irfft(torch.fft.rfft(x))
    torch.poisson(x.abs()), torch._standard_gamma(x.double().abs()), torch.multinomial(x.abs(), 3, True)
    x.double().float(), F.interpolate(x[None, None], scale_factor=2), F.unfold(x[None, None], 3)
    a, w = torch.randn(2, 64, device=D), torch.ones(8, 64, device=D, dtype=torch.int8)
    packed = torch._convert_weight_to_int4pack(w[:, :32].byte(), 2)
    torch._weight_int8pack_mm(a, w, a[0, :8]), torch._int_mm(w, w.t())
    torch._weight_int4pack_mm(a, packed, 32, torch.ones(2, 8, 2, device=D))
    torch._weight_int4pack_mm(a.expand(20, 2, 64)[:, 0], packed, 32, torch.ones(2, 8, 2, device=D))
    tiny = x.to(torch.float8_e4m3fn), x.half().to(torch.float8_e5m2), x.to(torch.complex32)
    [t.float() for t in tiny[:2]], tiny[2] * tiny[2], x.to(torch.float8_e5m2fnuz).to(torch.float8_e4m3fnuz)
    sparse = torch.eye(40, device=D).to_sparse_csr()
    sparse @ x, sparse.to(torch.float16) @ x.half(), torch.sparse.sampled_addmm(sparse, x, x.t())
    torch.sparse.mm(sparse, x, "mean"), torch.sparse.mm(sparse, x, "amax"), torch.sparse.mm(sparse, x, "amin")
    jagged = torch.nested.nested_tensor([x, x[:9]], layout=torch.jagged, requires_grad=True)
    torch.nested.to_padded_tensor(jagged, 0.0).sum().backward()


def vision() -> None:
    ops = torchvision_ops.load()
    x = torch.randn(2, 4, 9, 9, device=D, requires_grad=True)
    rois = torch.tensor([[0.0, 1, 1, 5, 5], [1, 2, 2, 9, 9]], device=D)
    ops.nms(rois[:, 1:], rois[:, 1], 0.5)
    ops.roi_align(x, rois, 1.0, 2, 2, 2, True).sum().backward()
    ops.ps_roi_align(x, rois, 1.0, 2, 2, 2)[0].sum().backward()
    ops.roi_pool(x, rois, 1.0, 2, 2)[0].sum().backward()
    ops.ps_roi_pool(x, rois, 1.0, 2, 2)[0].sum().backward()
    for mask in (torch.ones(2, 1, device=D), torch.ones(2, 9, 9, 9, device=D)):
        layer = torch.randn(3, 4, 3, 3, device=D), torch.zeros(2, 18, 9, 9, device=D), mask, torch.zeros(3, device=D)
        ops.deform_conv2d(x, *layer, 1, 1, 1, 1, 1, 1, 1, 1, mask.dim() == 4).sum().backward()


# The tiles that csrc/aten/gemm/GroupTile.cpp chooses for large products, as (x, y, columns, rows, depth).
VENDORS_TILES = [[16, 16, 8, 8, 8], [16, 8, 4, 8, 16], [16, 16, 4, 4, 16]]


def convolutions(channels: tuple[int, ...] = (32, 64, 128), size: int = 40, dtype: torch.dtype = torch.float32) -> None:
    """Convolutions of one tile, for few and many output channels; adjacent elements are pixels, channels or neither."""
    for count in channels:
        w = torch.randn(count, 8, 3, 3, device=D, dtype=dtype, requires_grad=True)
        for memory_format in (torch.contiguous_format, torch.channels_last):
            x = torch.randn(2, 8, size, size, device=D, dtype=dtype).contiguous(memory_format=memory_format)
            F.conv2d(x.requires_grad_(), w).sum().backward()


def matrix_units() -> None:
    """Products and convolutions on matrix units, in small and large tiles. Setting one multiplies halves in all memory
    orders, and the first bfloat16 does so."""
    torch.set_float32_matmul_precision("high")
    a = torch.randn(16, 16, device=D)
    for engine in ("mma_sm75", "mma_sm80", "wmma", "mfma_cdna2", "dpas"):
        torch.ops.netcl.set_matrix_engine(0, f"emulated_{engine}")
        for dtype in (torch.float16, torch.bfloat16, torch.float32):
            a.to(dtype) @ a.to(dtype)
        for dtype in (torch.float16, torch.bfloat16):
            for size in (6, 40):
                convolutions((64,), size, dtype)
    torch.ops.netcl.set_matrix_engine(0, "none")
    torch.set_float32_matmul_precision("highest")


def sources() -> list:
    """The programs in use, and those of the tiles that a GPU's matrix products and convolutions may use."""
    a = torch.randn(700, 9, device=D)  # enough tiles, so that no smaller ones are chosen
    for tile in torch.ops.netcl.gemm_tiles(0, torch.float32):
        torch.ops.netcl.set_gemm_tile(0, torch.float32, tile, False)
        for dtype in (torch.float32, torch.bfloat16):
            a.to(dtype) @ a.to(dtype).t()
        if tile in VENDORS_TILES:
            convolutions()
    matrix_units()
    result = []
    for line in torch.ops.netcl.programs_in_use():
        _, label, options = line.split("\t")
        file, name = label.split()
        result.append([file, name, options, torch.ops.netcl.kernel_source(file, name)])
    return result


def main() -> None:
    warnings.simplefilter("ignore")
    for part in (training, optimizers, operators, vision):
        part()
    torch.netcl.synchronize()
    if "--sources" in sys.argv:
        return print(json.dumps(sources()))
    result = []
    for line in torch.ops.netcl.programs_in_use():
        index, label, options = line.split("\t")
        file, name = label.split()
        result.append([file, options, torch.ops.netcl.build_log(int(index), file, name, options)])
    print(json.dumps(result))


if __name__ == "__main__":
    main()
