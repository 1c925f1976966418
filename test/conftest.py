"""Marks what `make test` runs: `quick` tests on the first runtime, `driver` tests on the others. CI runs all tests.
`make test-full` runs those marked `amp` again with float16 on devices without cl_khr_fp16.

Most of a test's time is that of kernels which are compiled. So of the variants of a test (dtypes, shapes, operators) in
KERNELS and COMPILE, every fourth is quick and the others are long.

A test of LONG is neither. It takes ten seconds or more, or is one of many that sweep over operators, dtypes, programs
or calls of which other tests check a part. `make test-long` runs all of them on the first runtime, and `make
test-long-driver` the `long_driver` tests, which are those of RUNTIME and KERNELS, on the others. Those of LONG_DRIVER
are quick on the first runtime and long on the others: PoCL takes three times as long to compile as Intel's runtime.

Two kinds of files depend on the driver. Those of RUNTIME check what drivers do: their calls, errors, queues, caches,
devices. Those of KERNELS compare a family of kernels with the CPU; every eighteenth of their tests is marked, so that
each driver compiles kernels of every family, and every third is at least `long_driver`. Other files check code above
the kernels (dispatch, dtypes, autocast's lists, optimizers' options, graphs of torch.compile, libraries, documents), or
run many samples through the same kernels.
"""

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from unittest import TestCase

import pytest

RUNTIME = {
    "test_builds", "test_device", "test_faults", "test_graph", "test_imitated_gpu", "test_immediate",
    "test_installation_faults", "test_interop", "test_kernels", "test_multi_device", "test_profiler",
    "test_reliability", "test_small_devices", "test_streams", "test_training", "test_warmup",
}  # fmt: skip

KERNELS = {
    "test_attention", "test_convolution", "test_decompositions", "test_distance", "test_embedding",
    "test_factorizations", "test_fft", "test_gemm", "test_grad_scaler", "test_indexing", "test_limits", "test_loss",
    "test_many_dims", "test_matrix_engine", "test_normalization", "test_pointwise", "test_pooling", "test_quantized",
    "test_random", "test_reduce", "test_rnn", "test_sampling", "test_scan", "test_segment_reduce", "test_shape",
    "test_softmax", "test_sort", "test_special", "test_sums_by_index", "test_upsample", "test_vision",
}  # fmt: skip

COMPILE = ("test_compile", "test_flex_attention")

AMP = ("test_amp_", "test_autocast", "test_grad_scaler", "test_training")

LONG = {
    "test_amp_autocast::test_first_use_in_a_process", "test_amp_autocast::test_two_devices_of_which_one_has_fp16",
    "test_amp_docs::test_blocks_run_in_order", "test_amp_recipes::test_one_device_a_process",
    "test_amp_safety::test_program_finishes_its_step", "test_amp_training::test_csv_survives_sigkill",
    "test_attention::test_gpu_shape", "test_attention::test_small_groups", "test_benchmarks::test_balance",
    "test_benchmarks::test_compile", "test_benchmarks::test_gpu", "test_benchmarks::test_loops",
    "test_benchmarks::test_small", "test_benchmarks::test_sweep", "test_benchmarks::test_table_and_json",
    "test_benchmarks::test_thin_launches", "test_benchmarks::test_turns",
    "test_bool_bytes::test_operators", "test_builds::test_an_error_names_the_operator",
    "test_builds::test_order_of_launches", "test_builds::test_what_comes_behind",
    "test_compile::test_a_second_process", "test_compile::test_constants_of_the_cpu", "test_compile::test_integers",
    "test_compile::test_training",
    "test_compile_around::test_optimizer_whose_steps*NAdam", "test_compile_around::test_optimizer_whose_steps*RAdam",
    "test_compile_around::test_the_shape_for_gpus", "test_compile_dynamic::test_every_program",
    "test_compile_dynamic::test_program*dynamic", "test_compile_models", "test_compile_opinfo::test_ones",
    "test_compile_recorded::test_training*CNN", "test_compile_recorded::test_training*encoder",
    "test_compile_recorded::test_training*norms---autocast", "test_convolution::test_channels_last",
    "test_decompositions::*_complex128", "test_decompositions::*_float64", "test_device::test_a_name_means",
    "test_device::test_second_process", "test_device_module::test_all_that_torch_asks_for",
    "test_device_module::test_environment", "test_doc_blocks::test_notebook", "test_doc_blocks::test_page",
    "test_examples::test_amp_off", "test_examples::test_demo_fails_when_a_goal_is_missed",
    "test_examples::test_script_name_digits", "test_examples::test_script_name_gpt",
    "test_factorizations::*_complex128", "test_factorizations::*_float64",
    "test_faults::test_commands_are_repeated", "test_faults::test_each_call_fails_once", "test_faults::test_start",
    "test_flex_attention::test_functions", "test_fuzz_programs",
    "test_garbage::test_operators", "test_imitated_gpu::test_families", "test_imitated_gpu::test_streams",
    "test_immediate::test_order", "test_indexing::test_gpu_shaped_kernels",
    "test_installation_faults", "test_interop::test_types_are_known_of_a_program_from_disk",
    "test_kernels::test_a_long_wait", "test_kernels::test_compile_without_warnings",
    "test_kernels::test_local_memory_is_no_global", "test_kernels::test_no_vectors",
    "test_launch_shapes::test_no_narrow_work_groups", "test_launch_shapes::test_work_is_shared",
    "test_libraries::test_trainer_fp16", "test_matrix_engine::test_a_wrong_engine",
    "test_matrix_engine::test_products_engine", "test_matrix_units::test_none_and_emulated",
    "test_matrix_units::test_units", "test_multi_device::test_two_platforms", "test_narrow_dtypes",
    "test_out_dtypes::test_operators", "test_outputs", "test_pointwise::test_against_cpu_*_bool",
    "test_pointwise::test_against_cpu_*_int64", "test_pointwise::test_against_cpu_*_uint8",
    "test_pooling::test_formats",
    "test_quantized::test_gpu_shaped", "test_refused_dtypes", "test_scalars::test_table",
    "test_serialization::test_a_checkpoint_of_another_process", "test_small_devices", "test_strides",
    "test_training::test_float32_optimizer_*resnet18", "test_tune", "test_upsample::test_grid_sample",
    "test_upsample::test_layouts", "test_versions::test_foreach", "test_versions::test_operators",
    "test_vision::test_gpu_shaped", "test_vision::test_order_of_imports", "test_warmup::test_a_list_fills",
    "test_warmup::test_what_fails_is_named", "test_ways::*kGemmWays",
    "test_wheel_checks::test_a_kernel_of_another_type",
}  # fmt: skip

LONG_DRIVER = {
    "test_attention::test_blocks", "test_attention::test_gradients_have",
    "test_decompositions::test_eigh", "test_decompositions::test_lstsq", "test_decompositions::test_matrix_exp",
    "test_factorizations::test_errors", "test_gemm::test_mm_shapes", "test_gemm::test_non_finite",
    "test_graph::test_training", "test_interop::test_arrays_share", "test_kernels::test_a_terminal",
    "test_kernels::test_each_kernel_is_compiled_once", "test_many_dims::test_every_operator_kind",
    "test_multi_device::test_two_parts", "test_normalization::test_layer_norm", "test_pooling::test_integers",
    "test_profiler::test_plan_log", "test_reduce::test_every_operator", "test_reduce::test_var",
    "test_reliability::test_training_does_not_leak", "test_segment_reduce::test_against_cpu",
    "test_softmax::test_rows_larger", "test_sort::test_topk_of_long", "test_special::test_edges",
    "test_training::test_autocast_*_resnet", "test_training::test_autocast_fp16_name_gpt",
    "test_training::test_autocast_fp16_name_lstm", "test_training::test_float32_optimizer",
    "test_training::test_inf_skips_*_resnet",
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


def is_in(tests: set[str], item: pytest.Item) -> bool:
    name = f"{Path(item.path).stem}::{item.name}"
    return any(fnmatch(name, pattern + ("*" if "::" in pattern else "::*")) for pattern in tests)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of which no test is marked are not imported."""
    driver = config.getoption("markexpr") in ("driver", "long_driver")
    return True if driver and collection_path.suffix and collection_path.stem not in RUNTIME | KERNELS else None


def running_test() -> Callable | None:
    """What torch.testing's extract_test_fn returns, which reads the source of each function on the stack for it."""
    frame = sys._getframe(1)
    while frame:
        case = frame.f_locals.get("self")
        if isinstance(case, TestCase):
            *_, class_name, name = case.id().rsplit(".", 2)
            if class_name == type(case).__name__ and name.startswith("test"):
                return getattr(case, name).__func__
        frame = frame.f_back
    return None


def spare_tracebacks() -> None:
    """Nine tenths of a test of an operator would be tracebacks that nobody reads: torch.manual_seed makes one for each
    kind of device that is not there."""
    for name in ("common_utils", "opinfo.core"):
        if module := sys.modules.get(f"torch.testing._internal.{name}"):
            module.extract_test_fn = running_test
    if torch := sys.modules.get("torch"):
        for module in (torch.cuda, torch.xpu, torch.mtia):
            if not module.is_available():
                module.manual_seed_all = lambda seed: None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    spare_tracebacks()
    counts: dict[str, int] = {}
    variants: dict[Callable, int] = {}
    for item in items:
        file = Path(item.path).stem
        if file.startswith(AMP):
            item.add_marker(pytest.mark.amp)
        if is_in(LONG, item):
            item.add_marker(pytest.mark.long)
            if file in RUNTIME or file in KERNELS:
                item.add_marker(pytest.mark.long_driver)
            continue
        function = inspect.unwrap(item.function)
        variants[function] = variants.get(function, -1) + 1
        sampled = file in KERNELS or file.startswith(COMPILE)
        item.add_marker(pytest.mark.long if sampled and variants[function] % 4 else pytest.mark.quick)
        counts[file] = counts.get(file, -1) + 1
        if file in RUNTIME or (file in KERNELS and counts[file] % 3 == 0):
            long = is_in(LONG_DRIVER, item) or (file in KERNELS and counts[file] % 18 != 0)
            item.add_marker(pytest.mark.long_driver if long else pytest.mark.driver)
