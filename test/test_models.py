"""Whole models on netcl, compared with the CPU: a training step in float32 and under bfloat16 autocast, and
generation.

The models of the transformers package are built small from their configurations, without downloads. Some are always
tested, all with NETCL_TEST_FULL=1.
"""

import copy
import importlib.util
import os
import unittest
from unittest import mock

import torch
import torch.nn.functional as F
import torchvision_ops
from common import DEVICE, no_fallback, to_device
from torch import nn
from torch.testing._internal.common_utils import (
    TestCase,
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
)

import torch_netcl  # noqa: F401

FULL = os.environ.get("NETCL_TEST_FULL") == "1"
LR = 1e-3

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

# Common settings of the transformers below, by the names of each family of configurations.
SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def ids(*shape):
    return torch.randint(3, 99, shape)


def text(**more):
    tokens = ids(2, 13)
    return {"input_ids": tokens, "labels": tokens, **more}


def padded(tokens=13):
    mask = torch.ones(2, tokens, dtype=torch.int64)
    mask[1, 9:] = 0
    return mask


def bert(t):
    config = t.BertConfig(vocab_size=99, max_position_embeddings=64, **SMALL, **NO_DROPOUT)
    return t.BertForMaskedLM(config), text(attention_mask=padded())


def gpt2(t):
    zero = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = t.GPT2Config(vocab_size=99, n_positions=64, n_embd=32, n_layer=2, n_head=4, **zero, **TOKENS)
    return t.GPT2LMHeadModel(config), text(attention_mask=padded())


def llama(t):
    config = t.LlamaConfig(vocab_size=99, num_key_value_heads=2, max_position_embeddings=64, **SMALL, **TOKENS)
    return t.LlamaForCausalLM(config), text()


def mixtral(t):
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": True}
    config = t.MixtralConfig(vocab_size=99, num_key_value_heads=2, max_position_embeddings=64, **experts, **SMALL,
                             **TOKENS)
    return t.MixtralForCausalLM(config), text()


def vit(t):
    config = t.ViTConfig(image_size=32, patch_size=8, num_labels=5, **SMALL, **NO_DROPOUT)
    return t.ViTForImageClassification(config), {"pixel_values": torch.randn(2, 3, 32, 32),
                                                 "labels": torch.tensor([3, 1])}


def whisper(t):
    sizes = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
             "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_mel_bins": 8}
    config = t.WhisperConfig(vocab_size=99, max_source_positions=30, max_target_positions=32, dropout=0.0,
                             decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None, **sizes,
                             **TOKENS)
    return t.WhisperForConditionalGeneration(config), {"input_features": torch.randn(2, 8, 60), "labels": ids(2, 9)}


def t5(t):
    config = t.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0,
                        decoder_start_token_id=0, pad_token_id=0, eos_token_id=2)
    return t.T5ForConditionalGeneration(config), {"input_ids": ids(2, 13), "attention_mask": padded(),
                                                  "labels": ids(2, 9)}


def clip(t):
    config = t.CLIPConfig(text_config={"vocab_size": 99, "max_position_embeddings": 32, **SMALL, **TOKENS},
                          vision_config={"image_size": 32, "patch_size": 8, **SMALL}, projection_dim=16)
    return t.CLIPModel(config), {"input_ids": ids(2, 13), "attention_mask": padded(), "return_loss": True,
                                 "pixel_values": torch.randn(2, 3, 32, 32)}


def mamba(t):
    config = t.MambaConfig(vocab_size=99, hidden_size=32, state_size=8, num_hidden_layers=2, **TOKENS)
    return t.MambaForCausalLM(config), text()


def fnet(t):
    small = {k: v for k, v in SMALL.items() if k != "num_attention_heads"}
    config = t.FNetConfig(vocab_size=99, max_position_embeddings=64, hidden_dropout_prob=0.0, **small, **TOKENS)
    return t.FNetForMaskedLM(config), text()


def autoformer(t):
    config = t.AutoformerConfig(prediction_length=4, context_length=12, lags_sequence=[1, 2], num_time_features=1,
                                d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=32, decoder_ffn_dim=32,
                                dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, encoder_layerdrop=0.0,
                                decoder_layerdrop=0.0, moving_average=5, encoder_attention_heads=2,
                                decoder_attention_heads=2)  # fmt: skip
    time = torch.linspace(0, 1, 18).expand(2, 18)[..., None]
    return t.AutoformerForPrediction(config), {
        "past_values": torch.randn(2, 14), "past_time_features": time[:, :14], "future_time_features": time[:, 14:],
        "past_observed_mask": torch.ones(2, 14), "future_values": torch.randn(2, 4),
    }  # fmt: skip


class Block(nn.Module):
    """Two convolutions with the time embedding between them, as in the usual UNet of diffusion models."""

    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, channels_in), nn.GroupNorm(4, channels_out)
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1)
        self.time = nn.Linear(32, channels_out)
        self.skip = nn.Conv2d(channels_in, channels_out, 1)

    def forward(self, x, time):
        y = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(y)))


class UNet(nn.Module):
    """Predicts the noise in images (N, 3, 16, 16) after `steps` of 1000 steps of a diffusion."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 32))
        self.first, self.last = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 3, 3, padding=1)
        self.down, self.middle, self.up = Block(16, 16), Block(16, 32), Block(48, 16)
        self.shrink = nn.Conv2d(16, 16, 3, stride=2, padding=1)
        self.norm, self.attention = nn.GroupNorm(4, 32), nn.MultiheadAttention(32, 4, batch_first=True)

    def predict(self, images, steps):
        angles = steps[:, None] * torch.exp(-torch.arange(8, device=steps.device))
        time = self.embed(torch.cat([angles.sin(), angles.cos()], 1).to(images.dtype))
        high = self.down(self.first(images), time)
        low = self.middle(self.shrink(high), time)
        sequence = self.norm(low).flatten(2).mT
        low = low + self.attention(sequence, sequence, sequence, need_weights=False)[0].mT.reshape(low.shape)
        return self.last(self.up(torch.cat([F.interpolate(low, scale_factor=2), high], 1), time))

    def forward(self, images, noise, steps, labels=None):
        kept = torch.cos(steps / 1000 * torch.pi / 2).to(images.dtype)[:, None, None, None]
        noisy = kept * images + (1 - kept**2).sqrt() * noise
        return {"loss": F.mse_loss(self.predict(noisy, steps), noise)}


def unet(_):
    return UNet(), {"images": torch.randn(2, 3, 16, 16), "noise": torch.randn(2, 3, 16, 16),
                    "steps": torch.tensor([100, 700])}


class GraphConvolution(nn.Module):
    """Two layers that multiply the features by a normalised adjacency matrix, as PyG's GCN does with sparse tensors."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(24, 64), nn.Linear(64, 7)

    def forward(self, adjacency, x, labels):
        hidden = F.relu(torch.sparse.mm(adjacency, self.first(x)))
        return F.cross_entropy(torch.sparse.mm(adjacency, self.second(hidden)), labels)


class Detector(nn.Module):
    """Classifies the best boxes (K, 4) of two images (2, 3, 24, 24) by their features, after a deformable layer."""

    def __init__(self):
        super().__init__()
        self.stem, self.shift = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Conv2d(8, 27, 3, padding=1)
        self.weight, self.bias = nn.Parameter(torch.randn(12, 8, 3, 3) / 8), nn.Parameter(torch.zeros(12))
        self.head = nn.Linear(12 * 9, 4)

    def forward(self, images, boxes, scores, classes):
        ops = torchvision_ops.load()
        x = F.silu(self.stem(images))
        shift = self.shift(x)
        layer = (self.weight, shift[:, :18], shift[:, 18:].sigmoid(), self.bias)
        x = F.silu(ops.deform_conv2d(x, *layer, 1, 1, 1, 1, 1, 1, 1, 1, True))
        kept = ops.nms(boxes, scores, 0.3)
        rois = torch.cat([(kept % 2)[:, None].to(boxes.dtype), boxes[kept]], 1)
        parts = ops.roi_align(x, rois, 0.5, 3, 3, 2, True)
        return {"loss": F.cross_entropy(self.head(parts.flatten(1)), classes[kept])}


def detector(_):
    corner = torch.rand(20, 2) * 14
    return Detector(), {"images": torch.randn(2, 3, 24, 24), "boxes": torch.cat([corner, corner + 8], 1),
                        "scores": torch.rand(20), "classes": torch.randint(4, (20,))}


EVERY = {f.__name__: f for f in (bert, gpt2, llama, mixtral, vit, whisper, t5, clip, mamba, fnet, unet, detector)}
QUICK = ("bert", "llama", "fnet", "unet", "detector")
DECODERS = ("gpt2", "llama", "mixtral", "whisper", "t5", "mamba")


def build(name):
    """The model, in training and without dropout, and its arguments; the same at each call."""
    transformers = None
    if name not in ("unet", "detector"):
        if importlib.util.find_spec("transformers") is None:
            raise unittest.SkipTest("needs transformers: pip install 'torch_netcl[libraries]'")
        import transformers
    torch.manual_seed(0)
    model, inputs = {**EVERY, "autoformer": autoformer}[name](transformers)
    return model.train(), inputs


def train(model, inputs, device, dtype=None):
    """Loss, gradients and parameters after a step of AdamW, by name, in float64 on the CPU."""
    model = copy.deepcopy(model).to(device)
    inputs = to_device(inputs, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    with torch.autocast(torch.device(device).type, dtype, enabled=dtype is not None):
        loss = model(**inputs)["loss"]
    loss.backward()
    found = {"loss": loss}
    found.update((f"gradient of {n}", p.grad.clone()) for n, p in model.named_parameters() if p.grad is not None)
    optimizer.step()
    found.update((f"new {n}", p) for n, p in model.named_parameters())
    return {n: t.detach().cpu().double() for n, t in found.items()}


def exact(model, inputs):
    wide = {n: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for n, x in inputs.items()}
    model = copy.deepcopy(model).double()
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")  # grouped matrix products do not support float64
    return train(model, wide, "cpu")


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestModels(TestCase):
    @parametrize("dtype", [None, torch.bfloat16])
    @parametrize("name", list(EVERY) if FULL else QUICK)
    def test_training_step(self, name, dtype):
        model, inputs = build(name)
        want, cpu = exact(model, inputs), train(model, inputs, "cpu", dtype)
        with no_fallback():
            got = train(model, inputs, DEVICE, dtype)
        self.assertEqual(got.keys(), want.keys())
        # The error against float64 may be four times the CPU's in the same arithmetic: both add in their own order, and
        # the autocast lists differ. In addition it may be what rounding each of the numbers causes, and the step, whose
        # direction is noise if the gradient is (a key's bias does not change a softmax).
        eps = torch.finfo(dtype or torch.float32).eps
        largest = max(g.abs().max().item() for n, g in want.items() if n.startswith("gradient"))
        for n, exact_value in want.items():
            own, off = (cpu[n] - exact_value).norm(), (got[n] - exact_value).norm()
            allowed = 4 * own + 4 * eps * exact_value.norm()
            if n.startswith("gradient"):
                allowed += 4 * eps * largest
            elif n.startswith("new"):
                noise = want.get(f"gradient of {n[4:]}", exact_value).abs() < 32 * eps * largest
                allowed += 2 * LR * noise.sum().sqrt()
            self.assertLessEqual(off, allowed, f"{n}: the CPU is {own} off")

    @parametrize("dtype", [None, torch.float16, torch.bfloat16] if FULL else [torch.float16, torch.bfloat16])
    @parametrize("name", ["fnet", "autoformer"])
    def test_autocast_of_transforms(self, name, dtype):
        """FNet and Autoformer multiply by Fourier transforms, which autocast computes in float32."""
        # Autoformer creates float32 tensors itself, so it does not run in float64. It picks delays by their
        # correlation, which rounding may change, so only the loss is compared, with the CPU's float32.
        if dtype not in (None, *torch.netcl.amp.autocast_dtypes()):
            self.skipTest("the device has no float16")
        model, inputs = build(name)
        with torch.no_grad():
            want = model(**inputs)["loss"]
        model.to(DEVICE)
        with no_fallback():
            with torch.autocast(DEVICE, dtype, enabled=dtype is not None):
                got = model(**to_device(inputs, DEVICE))["loss"]
            (got * 64).backward()  # scaled, for the gradients of float16
        self.assertEqual(got.detach().cpu(), want, atol=0, rtol=1e-4 if dtype is None else 0.05)
        for n, p in model.named_parameters():
            self.assertTrue(p.grad is None or p.grad.isfinite().all().item(), n)
        self.assertTrue(any(p.grad is not None and p.grad.any().item() for p in model.parameters()))

    @parametrize("layout", ["coo", "csr"])
    def test_graph_convolution(self, layout):
        nodes, edges = 300, 2000
        torch.manual_seed(0)
        pairs = torch.cat([torch.randint(nodes, (2, edges)), torch.arange(nodes).expand(2, nodes)], 1)
        adjacency = torch.sparse_coo_tensor(pairs, torch.ones(edges + nodes), (nodes, nodes)).coalesce()
        degree = adjacency.sum(1).to_dense().rsqrt()
        weights = degree[adjacency.indices()].prod(0) * adjacency.values()
        adjacency = torch.sparse_coo_tensor(adjacency.indices(), weights, (nodes, nodes), is_coalesced=True)
        adjacency = adjacency if layout == "coo" else adjacency.to_sparse_csr()
        x, labels, model = torch.randn(nodes, 24), torch.randint(7, (nodes,)), GraphConvolution()
        losses = []
        for device in ("cpu", DEVICE):
            net = copy.deepcopy(model).to(device)
            optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
            with no_fallback():
                inputs = [t.to(device) for t in (adjacency, x, labels)]
                for _ in range(5):
                    loss = net(*inputs)
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    losses.append(loss.item())
        # Five steps of Adam in float32, whose sums are in another order.
        self.assertEqual(losses[5:], losses[:5], atol=0, rtol=1e-4)
        self.assertLess(losses[9], losses[5])

    @parametrize("name", [n for n in DECODERS if FULL or n in QUICK])
    def test_generate(self, name):
        model, inputs = build(name)
        model.eval()
        first = inputs.get("input_features", inputs.get("input_ids"))

        def generate(device):
            tokens = copy.deepcopy(model).to(device).generate(
                first.to(device), max_new_tokens=8, do_sample=False, use_cache=True
            )
            return tokens.cpu()

        with no_fallback():
            got = generate(DEVICE)
        self.assertEqual(got, generate("cpu"))


def int4_on_cpu(weight, group):
    """What a weight is after torchao's rounding to int4, computed on the CPU."""
    from torchao.quantization import quant_primitives as q

    levels, types = ((1, group), torch.int32, 0, 15), {"scale_dtype": weight.dtype, "zero_point_dtype": weight.dtype}
    scale, zero = q._choose_qparams_affine_tinygemm(weight, q.MappingType.ASYMMETRIC, *levels, **types)
    rounded = q._quantize_affine_tinygemm(weight, levels[0], scale, zero, *levels[1:])
    return q._dequantize_affine_tinygemm(rounded, levels[0], scale, zero, *levels[1:], output_dtype=weight.dtype)


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestTorchao(TestCase):
    """A Llama whose weights torchao has rounded: its logits, and that it generates without the host."""

    def llama(self, dtype):
        if importlib.util.find_spec("torchao") is None:
            self.skipTest("needs torchao: pip install 'torch_netcl[libraries]'")
        model, inputs = build("llama")
        return model.to(dtype).eval(), inputs["input_ids"]

    def check(self, model, wanted, tokens):
        """Both have the same weights. netcl adds in another order than the CPU, whose own error is measured."""
        with torch.no_grad():
            cpu = wanted(tokens).logits
            want = wanted.double()(tokens).logits
            with no_fallback():
                got = model(tokens.to(DEVICE)).logits.cpu()
                new = model.generate(tokens.to(DEVICE), max_new_tokens=5, do_sample=False).cpu()
        self.assertEqual(got.dtype, cpu.dtype)
        self.assertLessEqual((got - want).norm(), 4 * (cpu - want).norm())
        self.assertEqual(new[:, : tokens.shape[1]], tokens)

    def quantized(self, model, config):
        from torchao.quantization import quantize_

        # torchao checks for an NVIDIA GPU before it packs int4, which it does with PyTorch's operators.
        with mock.patch("torch.cuda.get_device_capability", return_value=(8, 0)), no_fallback():
            quantize_(model := copy.deepcopy(model).to(DEVICE), config)
        return model

    def test_int8_weights(self):
        model, tokens = self.llama(torch.float32)  # in bfloat16, rounding would hide the weights' difference
        from torchao.quantization import Int8WeightOnlyConfig, quantize_

        quantize_(wanted := copy.deepcopy(model), Int8WeightOnlyConfig())
        for layer in wanted.modules():
            if isinstance(layer, nn.Linear):
                layer.weight = nn.Parameter(layer.weight.dequantize(), requires_grad=False)
        self.check(self.quantized(model, Int8WeightOnlyConfig()), wanted, tokens)

    def test_int4_weights(self):
        model, tokens = self.llama(torch.bfloat16)  # the one dtype that torchao takes
        from torchao.quantization import Int4WeightOnlyConfig

        wanted = copy.deepcopy(model)
        for layer in wanted.modules():
            if isinstance(layer, nn.Linear):
                layer.weight = nn.Parameter(int4_on_cpu(layer.weight.detach(), 32), requires_grad=False)
        config = Int4WeightOnlyConfig(group_size=32, int4_packing_format="tile_packed_to_4d")
        self.check(self.quantized(model, config), wanted, tokens)

    def test_float8_weights_and_dynamic_int8(self):
        if importlib.util.find_spec("torchao") is None:
            self.skipTest("needs torchao: pip install 'torch_netcl[libraries]'")
        from torchao.quantization import Float8WeightOnlyConfig, Int8DynamicActivationInt8WeightConfig, quantize_

        torch.manual_seed(0)
        model, x = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32)), torch.randn(4, 64)
        for config in (Float8WeightOnlyConfig(), Int8DynamicActivationInt8WeightConfig()):
            with self.subTest(type(config).__name__), torch.no_grad():
                quantize_(wanted := copy.deepcopy(model), config)
                mine = self.quantized(model, config)
                with no_fallback():
                    result = mine(x.to(DEVICE))
                self.assertEqual(result.cpu(), wanted(x))


def faster_rcnn(torchvision):
    """A small Faster R-CNN, two images and their boxes. Its samplers take everything, so nothing is random."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU())
    backbone.out_channels = 32
    model = torchvision.models.detection.FasterRCNN(
        backbone, min_size=64, max_size=64,
        rpn_anchor_generator=torchvision.models.detection.anchor_utils.AnchorGenerator(((12, 24),), ((1.0,),)),
        box_roi_pool=torchvision.ops.MultiScaleRoIAlign(["0"], output_size=4, sampling_ratio=2),
        box_head=torchvision.models.detection.faster_rcnn.TwoMLPHead(32 * 16, 64),
        box_predictor=torchvision.models.detection.faster_rcnn.FastRCNNPredictor(64, 3),
        rpn_pre_nms_top_n_train=100, rpn_post_nms_top_n_train=40, rpn_batch_size_per_image=4096,
        box_batch_size_per_image=4096,
    )  # fmt: skip
    images = [torch.rand(3, 64, 64), torch.rand(3, 48, 64)]
    targets = [{"boxes": torch.tensor([[4.0, 4, 20, 24], [30, 20, 50, 44]]), "labels": torch.tensor([1, 2])},
               {"boxes": torch.tensor([[10.0, 8, 36, 30]]), "labels": torch.tensor([2])}]  # fmt: skip
    return model.train(), images, targets


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestFasterRcnn(TestCase):
    def steps(self, device, dtype=None, count=4):
        """The losses of some steps, by name, and the gradients of the first."""
        torchvision = torchvision_ops.package()
        if torchvision is None:
            self.skipTest("torchvision is not installed")
        model, *inputs = faster_rcnn(torchvision)
        model.to(device)
        inputs = to_device(inputs, device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        losses, gradients = [], {}
        for step in range(count):
            optimizer.zero_grad()
            with torch.autocast(torch.device(device).type, dtype, enabled=dtype is not None):
                found = model(*inputs)
            sum(found.values()).backward()
            if step == 0:
                gradients = {n: p.grad.detach().cpu().clone() for n, p in model.named_parameters()}
            optimizer.step()
            losses.append({n: v.item() for n, v in found.items()})
        return losses, gradients

    def test_float32(self):
        with no_fallback():
            losses, gradients = self.steps(DEVICE)
        want, wanted = self.steps("cpu")
        # The same proposals are kept, so only sums differ; a step multiplies the difference.
        for i, (a, b) in enumerate(zip(losses, want, strict=True)):
            self.assertEqual(a, b, atol=1e-5 * 4**i, rtol=1e-4 * 4**i)
        for n, g in wanted.items():
            self.assertLessEqual((gradients[n] - g).norm(), 1e-4 * g.norm() + 1e-6, n)

    def test_bfloat16(self):
        """Rounding changes which proposals are kept, so the losses are only near those of float32."""
        with no_fallback():
            losses, gradients = self.steps(DEVICE, torch.bfloat16, 8)
        want, _ = self.steps("cpu", count=1)
        first, last = sum(losses[0].values()), sum(losses[-1].values())
        self.assertEqual(first, sum(want[0].values()), atol=0, rtol=0.05)
        self.assertLess(last, first)
        self.assertTrue(all(g.isfinite().all() for g in gradients.values()))

    def test_detections(self):
        torchvision = torchvision_ops.package()
        if torchvision is None:
            self.skipTest("torchvision is not installed")
        model, images, _ = faster_rcnn(torchvision)
        model.eval()
        with torch.no_grad(), no_fallback():
            want = model(images)
            got = copy.deepcopy(model).to(DEVICE)(to_device(images, DEVICE))
        for a, b in zip(got, want, strict=True):
            self.assertEqual({n: t.cpu() for n, t in a.items()}, b, atol=1e-3, rtol=1e-3)


instantiate_parametrized_tests(TestModels)

if __name__ == "__main__":
    run_tests()
