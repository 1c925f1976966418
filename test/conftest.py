"""Marks the test files that depend on the OpenCL driver: `make test` runs the others on one runtime only.

A file is listed if it checks what drivers do (their calls, errors, queues, caches, devices). It is also listed if it is
the file that compares a family of kernels with the CPU, so that each driver compiles and runs every file of kernels/. A
file is not listed if it checks code above the kernels (dispatch, dtypes, autocast's lists, optimizers' options, graphs
of torch.compile, libraries, documents), or if it runs many samples through kernels that a listed file covers.
"""

from pathlib import Path

import pytest

DRIVER = {
    # the runtime and its driver
    "test_builds", "test_device", "test_faults", "test_held_launches", "test_installation_faults", "test_interop",
    "test_kernels", "test_multi_device", "test_profiler", "test_reliability", "test_warmup",
    # families of kernels
    "test_attention", "test_convolution", "test_embedding", "test_factorizations", "test_fft", "test_gemm",
    "test_grad_scaler", "test_indexing", "test_loss", "test_matrix_engine", "test_normalization", "test_pointwise",
    "test_pooling", "test_random", "test_reduce", "test_rnn", "test_sampling", "test_scan", "test_segment_reduce",
    "test_shape", "test_softmax", "test_sort", "test_special", "test_upsample",
    # all together
    "test_training",
}  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(item.path).stem in DRIVER:
            item.add_marker(pytest.mark.driver)
