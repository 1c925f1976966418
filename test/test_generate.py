"""examples/generate.py: cached decoding against the whole text at once, and the same text on netcl and on the CPU."""

import contextlib
import importlib.util
import io
import sys
import tempfile
import unittest
from pathlib import Path

import torch
from common import DEVICE, no_fallback
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, run_tests

import torch_netcl  # noqa: F401

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
sys.path.append(str(EXAMPLES))
MISSING = [name for name in ("tqdm", "safetensors") if importlib.util.find_spec(name) is None]
if not MISSING:
    import generate
    import llama

    # `common` is the tests' own module here.
    spec = importlib.util.spec_from_file_location("examples_common", EXAMPLES / "common.py")
    sys.modules[spec.name] = generate.common = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate.common)


@unittest.skipIf(MISSING, f"not installed: {MISSING}")
class TestGenerate(TestCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(4)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.config = llama.LlamaConfig(
            vocabulary=256, context=48, layers=2, heads=4, kv_heads=2, width=64, inner=96
        )

    def run_args(self, *args):
        args = [*map(str, args), "--prompt", "abc", "--tokens", "12", "--weights", str(self.folder / "m.safetensors")]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            rows = dict(generate.run(generate.parser().parse_args(args)))
        return printed.getvalue(), rows

    @parametrize("quantize", ["none", "int8", "int4"])
    def test_text(self, quantize):
        llama.save(llama.Llama(self.config), self.folder / "m.safetensors")
        args = ("--quantize", quantize, "--dtype", "float32")
        text, rows = self.run_args(*args, "--batch", 2)
        self.assertEqual(rows["operators on the host"], "none")
        self.assertEqual(text, self.run_args(*args, "--device", "cpu")[0])
        self.assertGreaterEqual(len(text), len("abc\n"))

    def test_cache(self):
        """Each token's scores, from the cache and from the whole text; bf16 and sampling run too."""
        model = llama.Llama(self.config).eval()
        tokens = torch.randint(256, (2, 9))
        want = model(tokens)
        model, tokens = model.to(DEVICE), tokens.to(DEVICE)
        with torch.inference_mode(), no_fallback():
            cache = model.new_cache(2)
            got = [model(tokens[:, :4], cache)]
            got += [model(tokens[:, i : i + 1], cache, i) for i in range(4, 9)]
        self.assertEqual(torch.cat(got, 1).cpu(), want[:, 3:], atol=1e-4, rtol=1e-4)
        llama.save(model, self.folder / "m.safetensors")
        _, rows = self.run_args("--temperature", 0.9, "--top-k", 8, "--batch", 3, "--no-stream")
        self.assertEqual(rows["operators on the host"], "none")

    def test_sample(self):
        scores = torch.tensor([[0.0, 3.0, 1.0, 2.9], [5.0, 0.0, 0.0, 0.0]], device=DEVICE)
        self.assertEqual(generate.sample(scores, 0, 4).tolist(), [[1], [0]])
        drawn = torch.cat([generate.sample(scores, 1.0, 2) for _ in range(40)], 1)
        self.assertEqual(set(drawn[0].tolist()), {1, 3})

    @unittest.skipIf(importlib.util.find_spec("transformers") is None, "transformers is not installed")
    def test_weights_of_transformers(self):
        import transformers

        c = self.config
        theirs = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=c.vocabulary, hidden_size=c.width, intermediate_size=c.inner, num_hidden_layers=c.layers,
                num_attention_heads=c.heads, num_key_value_heads=c.kv_heads, max_position_embeddings=c.context,
                rms_norm_eps=c.eps,
            )  # fmt: skip
        ).eval()
        theirs.save_pretrained(self.folder)
        ours = llama.load(self.folder / "model.safetensors")
        self.assertEqual(ours.config, c)
        tokens = torch.randint(256, (2, 9))
        self.assertEqual(ours(tokens), theirs(tokens).logits)


instantiate_parametrized_tests(TestGenerate)

if __name__ == "__main__":
    run_tests()
