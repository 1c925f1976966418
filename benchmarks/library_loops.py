"""The loops of ``python -m benchmarks loops`` that need more than a step: loaders, trainers, several processes."""

from __future__ import annotations

import contextlib
import io
import logging
import multiprocessing
import os
import tempfile
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from . import training

Steps = Callable[[int], None]  # makes so many steps
Make = Callable[[str, bool], Steps]  # (device, with the loop's waits)


def repeat(step: Callable[[], object]) -> Steps:
    """Makes a function of one step one of several."""

    def run(steps: int) -> None:
        for _ in range(steps):
            step()

    return run


def loader(device: str, waits: bool) -> Steps:
    """ResNet-18 on images that two workers load into pinned memory; the loss is read in each step."""
    torch.manual_seed(0)
    model = training.ResNet18().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    images = torch.utils.data.TensorDataset(torch.randn(512, 3, 64, 64), torch.randint(10, (512,)))
    batches = torch.utils.data.DataLoader(
        images, 8, shuffle=True, num_workers=2, pin_memory=device != "cpu", persistent_workers=True
    )
    source = iter(batches)

    def step() -> None:
        nonlocal source
        try:
            batch = next(source)
        except StopIteration:
            batch = next(source := iter(batches))
        x, y = (t.to(device, non_blocking=True) for t in batch)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if waits:
            loss.item()

    return repeat(step)


def generation(device: str, waits: bool) -> Steps:
    """The demo's GPT appends the likeliest byte to 64 bytes, until the host sees one that never comes."""
    torch.manual_seed(0)
    model = training.GPT().eval().to(device)
    tokens = torch.randint(256, (1, 64)).to(device)

    @torch.no_grad()
    def step() -> None:
        nonlocal tokens
        token = model(tokens)[:, -1].argmax(-1, keepdim=True)
        tokens = torch.cat([tokens[:, 1:], token], 1)
        if waits and token.item() == 256:
            raise StopIteration

    return repeat(step)


def accelerated(device: str, waits: bool) -> Steps:
    """A loop of accelerate in bfloat16 with clipped gradients; the loss is read in each step."""
    os.environ["ACCELERATE_TORCH_DEVICE"] = device
    from accelerate import Accelerator

    torch.manual_seed(0)
    accelerator = Accelerator(mixed_precision="bf16")
    model, (x, y) = training.GPT(), small_batch(device)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-4))

    def step() -> None:
        optimizer.zero_grad()
        with accelerator.autocast():
            loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if waits:
            loss.item()

    return repeat(step)


def small_batch(device: str) -> training.Batch:
    """16 sequences of 128 bytes, and the same one byte later."""
    tokens = torch.randint(256, (16, 129), generator=torch.Generator().manual_seed(0))
    return tokens[:, :-1].contiguous().to(device), tokens[:, 1:].contiguous().to(device)


class LanguageModel(nn.Module):
    """The demo's GPT with the arguments and the result that transformers' Trainer expects."""

    def __init__(self) -> None:
        super().__init__()
        self.gpt = training.GPT()

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Tokens (N, T) and the next ones -> the loss."""
        return {"loss": F.cross_entropy(self.gpt(input_ids).flatten(0, -2), labels.flatten())}


def trainer(device: str, waits: bool) -> Steps:
    """transformers' Trainer with logging_steps=1; without waits, it logs nothing."""
    os.environ["ACCELERATE_TORCH_DEVICE"] = device
    from transformers import Trainer, TrainingArguments
    from transformers import logging as messages

    messages.set_verbosity_error()
    x, y = small_batch("cpu")
    data = [{"input_ids": x[i % 16], "labels": y[i % 16]} for i in range(16 * 1024)]
    model = LanguageModel()

    def run(steps: int) -> None:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            how = TrainingArguments(
                folder, per_device_train_batch_size=16, max_steps=steps, logging_steps=1 if waits else 10**6,
                logging_nan_inf_filter=waits, report_to=[], save_strategy="no", dataloader_pin_memory=False,
                disable_tqdm=True,
            )  # fmt: skip
            Trainer(model, how, train_dataset=data).train()

    return run


def lightning(dtype: torch.dtype) -> Make:
    """A `make` for Lightning with a progress bar that shows the loss; without waits, there is no bar."""

    def make(device: str, waits: bool) -> Steps:
        import lightning

        from torch_netcl.lightning import netcl_strategy

        for name in ("lightning.pytorch", "lightning.fabric"):
            logging.getLogger(name).setLevel(logging.ERROR)

        class Module(lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.gpt = training.GPT()

            def training_step(self, batch: training.Batch, _: int) -> torch.Tensor:
                x, y = batch
                loss = F.cross_entropy(self.gpt(x).flatten(0, -2), y.flatten())
                if waits:
                    self.log("loss", loss, prog_bar=True)
                return loss

            def configure_optimizers(self) -> torch.optim.Optimizer:
                return torch.optim.AdamW(self.parameters(), lr=1e-4)

        torch.manual_seed(0)
        module, (x, y) = Module(), small_batch("cpu")
        data = torch.utils.data.TensorDataset(x.repeat(1024, 1), y.repeat(1024, 1))

        def run(steps: int) -> None:
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                trainer = lightning.Trainer(
                    strategy=netcl_strategy(dtype=dtype), max_steps=steps, logger=False, enable_checkpointing=False,
                    enable_progress_bar=waits, enable_model_summary=False,
                )  # fmt: skip
                trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=16))

        return run

    return make


def ddp_worker(rank: int, store: str, device: str, waits: bool, commands: Connection) -> None:
    """One of two processes: makes as many steps as each command says."""
    import torch.distributed as dist

    dist.init_process_group(init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(training.GPT().to(device))
    optimizer, (x, y) = torch.optim.AdamW(model.parameters(), lr=1e-4), small_batch(device)
    with contextlib.suppress(EOFError):  # the parent's end is closed when its loop is no longer wanted
        while True:
            for _ in range(commands.recv()):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x[rank::2]).flatten(0, -2), y[rank::2].flatten())
                loss.backward()
                optimizer.step()
                if waits:
                    loss.item()
            if device != "cpu":
                torch.netcl.synchronize()
            commands.send(None)
    dist.destroy_process_group()


def ddp(device: str, waits: bool) -> Steps:
    """DistributedDataParallel in two processes over gloo, which share the device; the loss is read in each step."""
    context = multiprocessing.get_context("spawn")
    store = Path(tempfile.mkdtemp()) / "store"
    ends = []
    for rank in range(2):
        ours, theirs = context.Pipe()
        process = context.Process(target=ddp_worker, args=(rank, str(store), device, waits, theirs), daemon=True)
        process.start()
        ends.append(ours)

    def run(steps: int) -> None:
        for end in ends:
            end.send(steps)
        for end in ends:
            end.recv()

    return run


# Name, make, whether torch CPU is compared, whether other processes do the work.
ALL: list[tuple[str, Make, bool, bool]] = [
    ("resnet18/loader", loader, True, True),
    ("gpt_demo/generation", generation, True, False),
    ("gpt_demo/accelerate_bf16", accelerated, False, False),
    ("gpt_demo/trainer", trainer, False, False),
    ("gpt_demo/lightning_bf16", lightning(torch.bfloat16), False, False),
    ("gpt_demo/lightning_fp16", lightning(torch.float16), False, False),
    ("gpt_demo/ddp", ddp, True, True),
]
