"""A pytest plugin for gpu.py: ``-p benchmarks.gpu_tests --seconds N`` ends the run in time, and says at once why a test
failed, since the process may be ended before pytest sums up."""

from __future__ import annotations

import time

import pytest

END = float("inf")
session: pytest.Session | None = None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --seconds."""
    parser.addoption("--seconds", type=float, default=float("inf"), help="stop after that")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Note when to stop."""
    globals()["session"] = session
    globals()["END"] = time.monotonic() + session.config.getoption("--seconds")


def say(report: pytest.TestReport | pytest.CollectReport, start: int | None, end: int | None) -> None:
    """Say why something failed, in the process that prints: a part of the message, in one line."""
    if report.failed and not hasattr(session.config, "workerinput"):
        crash = getattr(report.longrepr, "reprcrash", None)
        why = (crash.message if crash else str(report.longrepr)).strip().replace("\n", " ")
        print(f"\n[netcl] {report.nodeid}: {why[start:end]}", flush=True)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Say why a file was not read; a traceback ends with the reason."""
    say(report, -200, None)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Say why a test failed. With several processes this is called in the one that prints."""
    say(report, 0, 400)
    if time.monotonic() > END:
        session.shouldstop = "the time is over"
