"""A decoder of Llama's shape: RMS norms, rotary positions, grouped queries, SwiGLU. For training and for generation.

Its products are ``Linear`` modules, which examples/generate.py replaces by quantised ones.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass
class LlamaConfig:
    """The shape of the model; the defaults have 300 million parameters."""

    vocabulary: int = 32000
    context: int = 2048
    layers: int = 20
    heads: int = 16
    kv_heads: int = 8
    width: int = 1024
    inner: int = 2816
    theta: float = 10000.0
    eps: float = 1e-5

    @property
    def head(self) -> int:
        """The width of a head."""
        return self.width // self.heads


def add_product(x: Tensor, linear: nn.Module, y: Tensor) -> Tensor:
    """x + linear(y). In inference mode an ordinary product adds x itself, which saves a kernel."""
    if torch.is_inference_mode_enabled() and type(linear) is nn.Linear:
        return torch.addmm(x.flatten(0, -2), y.flatten(0, -2), linear.weight.t()).view_as(x)
    return x + linear(y)


class Attention(nn.Module):
    """Causal self-attention. Several heads of queries share a head of keys and values."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head = config.heads, config.kv_heads, config.head
        self.qkv = nn.Linear(config.width, (config.heads + 2 * config.kv_heads) * config.head, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x: Tensor, turn: Tensor, cache: Tensor | None, start: int) -> Tensor:
        """(N, T, C) -> (N, T, C), before ``out``. ``turn`` holds the positions' rotations, (T, head, head)."""
        n, t, c = x.shape
        qkv = self.qkv(x).view(n, t, -1, self.head)
        qk, v = qkv.split([self.heads + self.kv_heads, self.kv_heads], 2)
        qk = torch.einsum("nthd,tde->nthe", qk, turn)
        q, k = qk.split([self.heads, self.kv_heads], 2)
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        if cache is not None:  # (2, N, kv_heads, context, head)
            cache[0][:, :, start : start + t] = k
            cache[1][:, :, start : start + t] = v
            k, v = cache[:, :, :, : start + t].unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1, enable_gqa=True)
        return y.transpose(1, 2).reshape(n, t, c)


class Block(nn.Module):
    """Attention and a gated feed-forward net, each after an RMS norm and with a residual connection."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(config.width, config.eps)
        self.attention = Attention(config)
        self.norm2 = nn.RMSNorm(config.width, config.eps)
        self.gate_up = nn.Linear(config.width, 2 * config.inner, bias=False)
        self.down = nn.Linear(config.inner, config.width, bias=False)

    def forward(self, x: Tensor, turn: Tensor, cache: Tensor | None, start: int) -> Tensor:
        """(N, T, C) -> (N, T, C)."""
        x = add_product(x, self.attention.out, self.attention(self.norm1(x), turn, cache, start))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return add_product(x, self.down, F.silu(gate) * up)


class Llama(nn.Module):
    """The decoder. Without a cache it takes whole texts; with one, the tokens from position ``start`` on."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width, config.eps)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        # Rotary positions turn the pairs (i, i + head / 2): a product with a matrix, which is one kernel.
        half = torch.arange(config.head // 2)
        angle = torch.arange(config.context)[:, None] * config.theta ** (-2 * half / config.head)
        cos, sin = angle.cos().diag_embed(), angle.sin().diag_embed()
        turn = torch.cat([torch.cat([cos, sin], 2), torch.cat([-sin, cos], 2)], 1)
        self.register_buffer("turn", turn, persistent=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02 if config.width > 512 else 0.06)

    def new_cache(self, batch: int) -> Tensor:
        """Zeros for keys and values, (layers, 2, batch, kv_heads, context, head)."""
        c = self.config
        return self.turn.new_zeros(c.layers, 2, batch, c.kv_heads, c.context, c.head)

    def forward(self, tokens: Tensor, cache: Tensor | None = None, start: int = 0) -> Tensor:
        """Tokens (N, T) -> scores of the next tokens (N, T, vocabulary), or with a cache of the last one only."""
        turn = self.turn[start : start + tokens.shape[1]]
        x = self.tokens(tokens)
        for layer, block in enumerate(self.blocks):
            x = block(x, turn, None if cache is None else cache[layer], start)
        return self.head(self.norm(x if cache is None else x[:, -1:]))


def save(model: Llama, path: Path) -> None:
    """Write the weights and, as metadata, the shape to a safetensors file."""
    from safetensors.torch import save_file

    weights = {name: weight.detach().cpu().contiguous() for name, weight in model.state_dict().items()}
    save_file(weights, path, {"config": json.dumps(asdict(model.config))})


def load(path: Path) -> Llama:
    """Read what ``save`` wrote, or a file with transformers' names and its config.json beside it."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        shape = (file.metadata() or {}).get("config")
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is no dict
    if shape is not None:
        config = LlamaConfig(**json.loads(shape))
    else:
        c = json.loads((path.parent / "config.json").read_text())
        if c.get("model_type") != "llama" or c.get("rope_scaling"):
            raise SystemExit(f"{path}: only Llama's models without scaled positions are supported")
        heads = c["num_attention_heads"]
        config = LlamaConfig(
            c["vocab_size"], min(c["max_position_embeddings"], 2048), c["num_hidden_layers"], heads,
            c.get("num_key_value_heads", heads), c["hidden_size"], c["intermediate_size"],
            c.get("rope_theta", 10000.0), c["rms_norm_eps"],
        )  # fmt: skip
        weights = from_transformers(weights, config.layers)
    model = Llama(config).to(next(iter(weights.values())).dtype)
    model.load_state_dict(weights)
    return model


def from_transformers(weights: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    """The weights under this module's names; projections that read the same input become one."""
    result = {
        "tokens.weight": weights["model.embed_tokens.weight"],
        "norm.weight": weights["model.norm.weight"],
        "head.weight": weights.get("lm_head.weight", weights["model.embed_tokens.weight"]),
    }
    names = {
        "norm1": ["input_layernorm"],
        "attention.qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
        "attention.out": ["self_attn.o_proj"],
        "norm2": ["post_attention_layernorm"],
        "gate_up": ["mlp.gate_proj", "mlp.up_proj"],
        "down": ["mlp.down_proj"],
    }
    for i in range(layers):
        for ours, theirs in names.items():
            result[f"blocks.{i}.{ours}.weight"] = torch.cat([weights[f"model.layers.{i}.{t}.weight"] for t in theirs])
    return result
