"""Captured work (``torch.accelerator.Graph``) under the names of torch.cuda.graphs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from . import streams

__all__ = ["graph", "graph_pool_handle", "make_graphed_callables"]

_Pool = tuple[int, int]
_pools = itertools.count(1)


def graph_pool_handle() -> _Pool:
    """The id of a new pool of memory, for graphs that share it."""
    return 2, next(_pools)  # PyTorch's own ids begin with 0, those of a graph's own pool with 1 (Graph.cpp)


class graph:
    """Context manager that captures the work within it in a `torch.accelerator.Graph`, on a stream of its own."""

    def __init__(
        self,
        graph: torch.accelerator.Graph,
        pool: _Pool | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "default",
    ) -> None:
        self.graph = graph
        self.graph.graph_pool = pool
        self.graph.capture_error_mode = capture_error_mode
        self.stream = streams.stream(stream or streams.Stream())

    def __enter__(self) -> None:
        self.stream.__enter__()
        self.graph.__enter__()

    def __exit__(self, *error: object) -> None:
        try:
            self.graph.__exit__(*error)
        finally:
            self.stream.__exit__(*error)


def _form(t: Tensor) -> tuple[Any, ...]:
    return t.stride(), t.is_conj(), t.is_neg()


def _load(own: Tensor, tensor: Tensor) -> None:
    """Copies `tensor` to `own`, which may be the same memory, or the same seen otherwise (`own.t()`)."""
    if own.data_ptr() != tensor.data_ptr():
        own.copy_(tensor)
    elif _form(own) != _form(tensor):
        own.copy_(tensor.clone())


class _Graphed:
    """A callable whose forward and backward pass are a graph each."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.function, self.args = function, args
        leaves, self.form = pytree.tree_flatten(args)
        if not all(isinstance(leaf, Tensor) for leaf in leaves):
            raise TypeError("make_graphed_callables: sample_args may hold tensors only")
        self.given = len(leaves)
        self.parameters: tuple[Tensor, ...] = ()
        if isinstance(function, nn.Module):
            if function._forward_hooks or function._forward_pre_hooks or function._backward_hooks:
                raise RuntimeError("make_graphed_callables: register the hooks of a module after this call")
            if any(b.requires_grad for b in function.buffers()):
                raise RuntimeError("make_graphed_callables: no buffer of a module may require gradients")
            self.parameters = tuple(function.parameters())
        self.inputs = (*leaves, *self.parameters)
        self.forward_graph, self.backward_graph = torch.accelerator.Graph(), torch.accelerator.Graph()
        self.runs = 0

    def run(self) -> tuple[Tensor, ...]:
        """The function's results for the samples."""
        outputs, self.results = pytree.tree_flatten(self.function(*self.args))
        if not all(isinstance(o, Tensor) for o in outputs):
            raise TypeError("make_graphed_callables: a callable may return tensors only")
        return tuple(outputs)

    def gradients(self, outputs: tuple[Tensor, ...], given: list[Tensor | None], unused: bool) -> list[Tensor | None]:
        """The gradient of each input, or None, for `given` gradients of outputs."""
        ends = [(o, g) for o, g in zip(outputs, given, strict=True) if g is not None]
        wanted = [t for t in self.inputs if t.requires_grad]
        if not ends or not wanted:
            return [None] * len(self.inputs)
        tensors, grads = zip(*ends, strict=True)
        found = iter(torch.autograd.grad(tensors, wanted, grads, allow_unused=unused))
        return [next(found) if t.requires_grad else None for t in self.inputs]

    def capture_forward(self, pool: _Pool | None) -> None:
        with graph(self.forward_graph, pool):
            self.outputs = self.run()

    def capture_backward(self, unused: bool) -> None:
        # In memory of its own: its gradients may become a `.grad`, which no other graph may overwrite.
        self.output_grads = [torch.empty_like(o) if o.requires_grad else None for o in self.outputs]
        self.input_grads: list[Tensor | None] = [None] * len(self.inputs)
        if any(t.requires_grad for t in self.inputs) and any(o.requires_grad for o in self.outputs):
            with graph(self.backward_graph):
                self.input_grads = self.gradients(self.outputs, self.output_grads, unused)

    def __call__(self, *args: Any) -> Any:
        """Replays the function on `args`, whose tensors have the form of the samples."""
        leaves, form = pytree.tree_flatten(args)
        if form != self.form:
            raise TypeError(f"this callable was captured with arguments of the form {self.form}, not {form}")
        for i, (leaf, sample) in enumerate(zip(leaves, self.inputs, strict=False)):
            if not isinstance(leaf, Tensor) or (leaf.shape, leaf.dtype) != (sample.shape, sample.dtype):
                what = f"{leaf.dtype} {tuple(leaf.shape)}" if isinstance(leaf, Tensor) else repr(leaf)
                raise ValueError(
                    f"tensor {i} of the arguments is {what}, but was captured as {sample.dtype} {tuple(sample.shape)}"
                )
            if leaf.requires_grad and not sample.requires_grad and torch.is_grad_enabled():
                raise ValueError(f"tensor {i} of the arguments requires a gradient, but its sample did not")
        return pytree.tree_unflatten(_Replay.apply(self, *leaves, *self.parameters), self.results)


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, graphed: _Graphed, *inputs: Tensor) -> tuple[Tensor, ...]:
        graphed.runs += 1
        ctx.graphed, ctx.run, ctx.tensors = graphed, graphed.runs, inputs
        for sample, tensor in zip(graphed.inputs[: graphed.given], inputs, strict=False):
            _load(sample, tensor)
        graphed.forward_graph.replay()
        outputs = tuple(o.detach() for o in graphed.outputs)
        constant = (o for o, g in zip(outputs, graphed.output_grads, strict=True) if g is None)
        ctx.mark_non_differentiable(*constant)
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        graphed = ctx.graphed
        if ctx.run != graphed.runs:
            raise RuntimeError(
                "a graphed callable ran again before this backward pass, and overwrote what the pass needs; "
                "run backward first, or make two graphed callables"
            )
        for own, grad in zip(graphed.output_grads, grads, strict=True):
            if own is not None:
                _load(own, grad)
        # Autograd may have made the last replay's result a `.grad`, to which it adds this one.
        for tensor, own in zip(ctx.tensors, graphed.input_grads, strict=True):
            before = tensor.grad if own is not None and tensor.is_leaf else None
            if before is not None and before.data_ptr() == own.data_ptr():
                tensor.grad = before.clone()
        graphed.backward_graph.replay()
        return None, *(g if g is None else g.detach() for g in graphed.input_grads)


def _forward(module: nn.Module, graphed: _Graphed) -> Callable[..., Any]:
    before, training = module.forward, module.training

    def forward(*args: Any, **kwargs: Any) -> Any:
        return (graphed if module.training == training else before)(*args, **kwargs)

    return forward


def make_graphed_callables(
    callables: Callable[..., Any] | tuple[Callable[..., Any], ...],
    sample_args: tuple[Any, ...],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: _Pool | None = None,
) -> Any:
    """Functions or modules whose forward and backward passes are replayed, as by torch.cuda.make_graphed_callables.

    `sample_args` is a tuple of tensors, or one per callable if `callables` is a tuple; each tensor requires a gradient
    if the later ones do. A module's `forward` is replaced, and runs as before while `module.training` is not what it
    was here. Results and gradients keep their values until the callable runs again, which it may do only after the
    backward pass. There are no second derivatives. The forward passes share the memory of `pool`, if one is given:
    then the callables must run in the order in which they stand in the tuple.

    Raises RuntimeError under autocast that caches its casts (`cache_enabled=False` is needed), for modules with hooks,
    and with a torch that has no torch.accelerator.Graph; a call raises ValueError if its tensors have other sizes or
    dtypes than the samples, or require gradients that those did not.
    """
    if not hasattr(torch.accelerator, "Graph"):
        raise RuntimeError(f"make_graphed_callables: torch {torch.__version__} has no torch.accelerator.Graph")
    if torch.is_autocast_enabled("netcl") and torch.is_autocast_cache_enabled():
        raise RuntimeError("make_graphed_callables: autocast needs cache_enabled=False here, or graphs keep old casts")
    several = isinstance(callables, tuple)
    functions = callables if isinstance(callables, tuple) else (callables,)
    samples = sample_args if several else (sample_args,)
    graphed = [_Graphed(function, args) for function, args in zip(functions, samples, strict=True)]

    with streams.stream(streams.Stream()):
        for one in graphed:
            for _ in range(num_warmup_iters):
                outputs = one.run()
                given = [torch.empty_like(o) if o.requires_grad else None for o in outputs]
                one.gradients(outputs, given, allow_unused_input)
    torch.accelerator.synchronize()
    for one in graphed:
        one.capture_forward(pool)
    for one in reversed(graphed):
        one.capture_backward(allow_unused_input)

    results: list[Any] = []
    for function, one in zip(functions, graphed, strict=True):
        if isinstance(function, nn.Module):
            function.forward = _forward(function, one)
        results.append(function if isinstance(function, nn.Module) else one)
    return tuple(results) if several else results[0]
