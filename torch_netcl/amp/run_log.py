"""Logs of a training run: a row per step, a CSV file of the rows, and the share of skipped steps."""

from __future__ import annotations

import csv
import math
import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_netcl._files import replacing
from torch_netcl.amp.blame import Blame

__all__ = ["CSV_COLUMNS", "CsvLog", "SkipLog", "SkipMonitor", "StepLog", "log_to", "read_csv"]

#: The columns of the files of `CsvLog`, in order.
CSV_COLUMNS = (
    "step",
    "lr",
    "grad_l2_pre_clip",
    "grad_l2_post_clip",
    "loss",
    "skipped",
    "skip_reason",
    "scaler_scale",
    "blame",
)
# The columns of files of earlier versions, which a resumed run may continue.
_WITHOUT_BLAME = CSV_COLUMNS[:-1]


@dataclass(frozen=True)
class _Log:
    step: int  # from 0
    lr: float  # of the first parameter group
    grad_l2_pre_clip: float
    grad_l2_post_clip: float
    loss: float
    scaler_scale: float  # the factor of this step's loss

    def scalars(self, prefix: str = "train/") -> dict[str, float]:
        """The finite numbers by name, and ``skipped``, 0 or 1, for loggers."""
        names = ("loss", "lr", "grad_l2_pre_clip", "grad_l2_post_clip", "scaler_scale")
        numbers = {name: float(getattr(self, name)) for name in names}
        numbers["skipped"] = float(isinstance(self, SkipLog))
        return {prefix + name: value for name, value in numbers.items() if math.isfinite(value)}


@dataclass(frozen=True)
class StepLog(_Log):
    """A step that was taken. Norms are those of the unscaled gradients."""

    def row(self) -> tuple[Any, ...]:
        """The values in the order of ``CSV_COLUMNS``."""
        norms = (self.grad_l2_pre_clip, self.grad_l2_post_clip)
        return (self.step, self.lr, *norms, self.loss, 0, "", self.scaler_scale, "")


@dataclass(frozen=True)
class SkipLog(_Log):
    """A step that was not taken: only the scale has changed. Values that were not measured are NaN."""

    # "non-finite loss", "non-finite gradient", "non-finite gradient norm", or "non-finite update" if finite gradients
    # would have made a weight or the optimizer's state Inf or NaN.
    skip_reason: str
    blame: tuple[Blame, ...] = ()  # the gradients that were not finite

    def row(self) -> tuple[Any, ...]:
        """The values in the order of ``CSV_COLUMNS``."""
        norms = (self.grad_l2_pre_clip, self.grad_l2_post_clip)
        who = "; ".join(map(str, self.blame))
        return (self.step, self.lr, *norms, self.loss, 1, self.skip_reason, self.scaler_scale, who)


def log_to(logger: Any, log: StepLog | SkipLog, prefix: str = "train/") -> None:
    """Passes the numbers of a step to a logger: TensorBoard's ``SummaryWriter``, ``mlflow``, a run of Weights & Biases,
    or anything else with ``add_scalar(name, value, step)``, ``log_metrics(values, step=)`` or ``log(values, step=)``.

    A skipped step's reason and blame become a text where the logger has ``add_text``. TypeError for another logger.
    """
    values = log.scalars(prefix)
    if hasattr(logger, "add_scalar"):
        for name, value in values.items():
            logger.add_scalar(name, value, log.step)
    elif hasattr(logger, "log_metrics"):
        logger.log_metrics(values, step=log.step)
    elif hasattr(logger, "log"):
        logger.log(values, step=log.step)
    else:
        raise TypeError(f"a logger has add_scalar, log_metrics or log; {type(logger).__name__} has none of them")
    if isinstance(log, SkipLog) and hasattr(logger, "add_text"):
        logger.add_text(f"{prefix}skip", "; ".join([log.skip_reason, *map(str, log.blame)]), log.step)


class CsvLog:
    """A CSV file of steps. Each row is passed to the operating system at once, so it survives Ctrl-C and SIGKILL.

    Args:
        path: the file; its folder is created.
        first_step: the run's first step. Rows of earlier steps are kept, so that a resumed run continues its file; 0
            begins a new file.

    Raises:
        ValueError: the file exists and is no such log, or a row that would be kept is damaged; the file is not changed.
    """

    def __init__(self, path: str | os.PathLike[str], first_step: int = 0) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = _rows_before(path, first_step) if path.exists() else []
        with replacing(path) as fresh:  # an interrupted start leaves the old file unchanged
            self._file = open(fresh, "w", newline="", encoding="utf-8")  # noqa: SIM115 - closed by close()
            try:
                self._writer = csv.writer(self._file, lineterminator="\n")
                self._writer.writerows([CSV_COLUMNS, *kept])
                self._file.flush()
            except BaseException:
                self._file.close()
                raise

    def add(self, log: StepLog | SkipLog) -> None:
        """Writes one row."""
        self._writer.writerow([f"{v:.9g}" if isinstance(v, float) else v for v in log.row()])
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> CsvLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _whole_lines(path: Path) -> list[str]:
    """The lines, except a last one that is incomplete. Raises ValueError if the file is not text."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            return [line for line in file if line.endswith("\n")]
    except UnicodeDecodeError:
        raise ValueError(f"{path} is no CSV file; nothing was changed") from None


def _rows_before(path: Path, first_step: int) -> list[list[str]]:
    """The rows of steps before ``first_step``. Raises ValueError for a file that CsvLog has not written."""
    lines = _whole_lines(path)
    if not lines:
        if path.stat().st_size > 0 and not ",".join(CSV_COLUMNS).startswith(path.read_text(encoding="utf-8")):
            raise ValueError(f"{path} is no log of a training run; nothing was changed. Name another file")
        return []
    header, *rows = csv.reader(lines)
    if tuple(header) not in (CSV_COLUMNS, _WITHOUT_BLAME):
        raise ValueError(
            f"{path} is no log of a training run: it begins with {','.join(header)!r}, not with "
            f"{','.join(CSV_COLUMNS)!r}. Nothing was changed. Name another file"
        )
    kept = []
    for number, row in enumerate(rows, start=2):
        if not first_step:
            break
        try:
            step = int(row[0])
            [float(row[k]) for k in (1, 2, 3, 4, 7)]
            if len(row) != len(header) or row[5] not in ("0", "1"):
                raise ValueError
        except (ValueError, IndexError):
            raise ValueError(
                f"{path}: row {number} is no row of a training run: {','.join(row)!r}. Nothing was changed. Take "
                "the row out, or name another file"
            ) from None
        if step < first_step:
            kept.append([*row, *[""] * (len(CSV_COLUMNS) - len(row))])
    return kept


def read_csv(path: str | os.PathLike[str]) -> list[dict[str, str]]:
    """The rows of a :class:`CsvLog` by column, except a last line that is incomplete.

    Raises ValueError for a file with other columns.
    """
    rows = list(csv.DictReader(_whole_lines(Path(path)), restval=""))
    for row in rows:
        if tuple(row) not in (CSV_COLUMNS, _WITHOUT_BLAME):
            raise ValueError(f"{path} is no log of a training run")
        row.setdefault("blame", "")
    return rows


class SkipMonitor:
    """The share of skipped steps among the last ``window`` steps.

    Before there are so many, the missing steps count as taken: the few skips by which GradScaler finds its first
    scale should not raise an alarm.

    Args:
        window: the number of steps that count.
        threshold: the share above which :attr:`alert` is True.
        patience: after how many steps in a row above the threshold :attr:`exceeded` is True.
    """

    def __init__(self, window: int = 1000, threshold: float = 0.05, patience: int = 100) -> None:
        if window < 1 or patience < 1:
            raise ValueError(f"window and patience must be at least 1, not {window} and {patience}")
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold must be from 0 to 1, not {threshold}")
        self.window, self.threshold, self.patience = window, threshold, patience
        self._skips: deque[bool] = deque(maxlen=window)
        self._above = 0

    def add(self, skipped: bool) -> None:
        """Records a step."""
        self._skips.append(bool(skipped))
        self._above = self._above + 1 if self.rate > self.threshold else 0

    @property
    def rate(self) -> float:
        """The share of skipped steps among the last ``window``, 0 to 1."""
        return sum(self._skips) / self.window

    @property
    def alert(self) -> bool:
        """Whether the rate is above the threshold."""
        return self._above > 0

    @property
    def exceeded(self) -> bool:
        """Whether the rate has been above the threshold for ``patience`` steps in a row."""
        return self._above >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """The recorded steps, for a checkpoint."""
        return {"skips": list(self._skips), "above": self._above}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a state of :meth:`state_dict`."""
        self._skips = deque(state["skips"], maxlen=self.window)
        self._above = state["above"]
