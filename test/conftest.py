"""Marks what `make test` runs: `quick` tests on the first runtime, `driver` tests on the others. CI runs all tests.
`make test-full` runs those marked `amp` again with float16 on devices without cl_khr_fp16.

A test of LONG is neither. It takes ten seconds or more, and sweeps over operators, programs or calls of which other
tests check a part.

Two kinds of files depend on the driver. Those of RUNTIME check what drivers do: their calls, errors, queues, caches,
devices. Those of KERNELS compare a family of kernels with the CPU; every third of their tests is marked, so that each
driver compiles kernels of every family. Other files check code above the kernels (dispatch, dtypes, autocast's lists,
optimizers' options, graphs of torch.compile, libraries, documents), or run many samples through the same kernels.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

RUNTIME = {
    "test_builds", "test_device", "test_faults", "test_held_launches", "test_immediate", "test_installation_faults",
    "test_interop", "test_kernels", "test_multi_device", "test_profiler", "test_reliability", "test_small_devices",
    "test_streams", "test_training", "test_warmup",
}  # fmt: skip

KERNELS = {
    "test_attention", "test_convolution", "test_decompositions", "test_embedding", "test_factorizations", "test_fft",
    "test_gemm", "test_grad_scaler", "test_indexing", "test_limits", "test_loss", "test_matrix_engine",
    "test_normalization", "test_pointwise", "test_pooling", "test_quantized", "test_random", "test_reduce", "test_rnn",
    "test_sampling", "test_scan", "test_segment_reduce", "test_shape", "test_softmax", "test_sort", "test_special",
    "test_sums_by_index", "test_upsample", "test_vision",
}  # fmt: skip

AMP = ("test_amp_", "test_autocast", "test_grad_scaler", "test_training")

LONG = {
    "test_amp_autocast::test_first_use_in_a_process", "test_amp_autocast::test_two_devices_of_which_one_has_fp16",
    "test_amp_docs::test_blocks_run_in_order", "test_amp_safety::test_program_finishes_its_step",
    "test_amp_training::test_csv_survives_sigkill", "test_attention::test_gpu_shape",
    "test_attention::test_small_groups", "test_benchmarks::test_compile", "test_benchmarks::test_gpu",
    "test_benchmarks::test_loops", "test_benchmarks::test_small", "test_benchmarks::test_table_and_json",
    "test_benchmarks::test_turns", "test_bool_bytes::test_operators", "test_compile::test_training",
    "test_compile_around::test_the_shape_for_gpus", "test_compile_dynamic::test_every_program",
    "test_compile_opinfo::test_ones", "test_convolution::test_channels_last",
    "test_examples::test_demo_fails_when_a_goal_is_missed", "test_examples::test_script_name_gpt",
    "test_faults::test_each_call_fails_once", "test_garbage::test_operators", "test_indexing::test_gpu_shaped_kernels",
    "test_installation_faults::test_links_with_the_process_id",
    "test_installation_faults::test_nothing_is_written_where_it_would_not_be_read",
    "test_installation_faults::test_processes_at_once", "test_installation_faults::test_two_processes_with_one_id",
    "test_kernels::test_compile_without_warnings", "test_launch_shapes::test_no_narrow_work_groups",
    "test_matrix_engine::test_products_engine", "test_matrix_units::test_units",
    "test_multi_device::test_two_platforms", "test_out_dtypes::test_operators", "test_versions::test_foreach",
    "test_versions::test_operators",
}  # fmt: skip


# The launches with small work-groups so far. They are found again after each later test.
narrow: set[str] = set()


@pytest.fixture(autouse=os.environ.get("NETCL_DEVICE_CLASS") == "gpu")
def no_narrow_work_groups() -> Iterator[None]:
    """In the shape for GPUs, a launch of many work-items has groups of 32 or more (test_launch_shapes.py)."""
    yield
    import torch

    new = set(torch.ops.netcl._narrow_launches()) - narrow if hasattr(torch, "netcl") else set()
    narrow.update(new)
    assert not new, f"work-groups of fewer than 32 items: {sorted(new)}"


def is_long(item: pytest.Item) -> bool:
    file, test = Path(item.path).stem, item.name
    return any(file == name.partition("::")[0] and test.startswith(name.partition("::")[2]) for name in LONG)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    counts: dict[str, int] = {}
    for item in items:
        file = Path(item.path).stem
        if file.startswith(AMP):
            item.add_marker(pytest.mark.amp)
        if is_long(item):
            item.add_marker(pytest.mark.long)
            continue
        item.add_marker(pytest.mark.quick)
        counts[file] = counts.get(file, -1) + 1
        if file in RUNTIME or (file in KERNELS and counts[file] % 3 == 0):
            item.add_marker(pytest.mark.driver)
