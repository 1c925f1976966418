"""A pytest plugin for gpu.py: ``-p benchmarks.gpu_tests --seconds N`` ends the run in time, and says at once why a test
failed, since the process may be ended before pytest sums up."""

from __future__ import annotations

import time

import pytest

END = float("inf")
OVER = "the time is over"
session: pytest.Session | None = None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --seconds."""
    parser.addoption("--seconds", type=float, default=float("inf"), help="stop after that")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Note when to stop."""
    globals()["session"] = session
    globals()["END"] = time.monotonic() + session.config.getoption("--seconds")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Say why a test failed. With several processes this is called in the one that prints."""
    if report.failed and hasattr(session.config, "workerinput") is False:
        crash = getattr(report.longrepr, "reprcrash", None)
        why = (crash.message if crash else str(report.longrepr)).strip().replace("\n", " ")
        print(f"\n[netcl] {report.nodeid}: {why[:400]}", flush=True)
    if time.monotonic() > END:
        session.shouldstop = OVER


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """An end in time is no failure."""
    if exitstatus == pytest.ExitCode.INTERRUPTED and session.shouldstop == OVER:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED if session.testsfailed else pytest.ExitCode.OK
