"""Whole models on netcl, compared with the CPU: a training step in float32 and under bfloat16 autocast, and
generation.

The models of the transformers package are built small from their configurations, without downloads. Some are always
tested, all with NETCL_TEST_FULL=1.
"""

import copy
import importlib.util
import os
import unittest

import torch
import torch.nn.functional as F
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


EVERY = {f.__name__: f for f in (bert, gpt2, llama, mixtral, vit, whisper, t5, clip, mamba, fnet, unet)}
QUICK = ("bert", "llama", "fnet", "unet")
DECODERS = ("gpt2", "llama", "mixtral", "whisper", "t5", "mamba")


def build(name):
    """The model, in training and without dropout, and its arguments; the same at each call."""
    transformers = None
    if name != "unet":
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

    @parametrize("dtype", [None, torch.float16, torch.bfloat16] if FULL else [torch.bfloat16])
    def test_autoformer(self, dtype):
        # The model creates float32 tensors itself, so it does not run in float64. It picks delays by their correlation,
        # which rounding may change, so only the loss is compared, with the CPU's float32.
        model, inputs = build("autoformer")
        with torch.no_grad():
            want = model(**inputs)["loss"]
        with torch.autocast(DEVICE, dtype, enabled=dtype is not None), torch.set_grad_enabled(FULL), no_fallback():
            got = model.to(DEVICE)(**to_device(inputs, DEVICE))["loss"]
            if FULL:
                got.backward()
        self.assertEqual(got.detach().cpu(), want, atol=0, rtol=1e-4 if dtype is None else 0.05)

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


instantiate_parametrized_tests(TestModels)

if __name__ == "__main__":
    run_tests()
