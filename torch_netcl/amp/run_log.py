"""What a training run says: a row per step, a CSV file of them, and the share of steps that were skipped."""

from __future__ import annotations

import csv
import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_netcl.amp.blame import Blame

__all__ = ["CSV_COLUMNS", "CsvLog", "SkipLog", "SkipMonitor", "StepLog", "read_csv"]

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
# Files of earlier versions, which a resumed run may go on in.
_WITHOUT_BLAME = CSV_COLUMNS[:-1]


@dataclass(frozen=True)
class _Log:
    step: int  # from 0
    lr: float  # of the first parameter group
    grad_l2_pre_clip: float
    grad_l2_post_clip: float
    loss: float
    scaler_scale: float  # that this step's loss was multiplied by


@dataclass(frozen=True)
class StepLog(_Log):
    """A step that was taken. Norms are those of the unscaled gradients."""

    def row(self) -> tuple[Any, ...]:
        """Its values in the order of ``CSV_COLUMNS``."""
        norms = (self.grad_l2_pre_clip, self.grad_l2_post_clip)
        return (self.step, self.lr, *norms, self.loss, 0, "", self.scaler_scale, "")


@dataclass(frozen=True)
class SkipLog(_Log):
    """A step that was not taken: nothing has changed but the scale. What was not measured is NaN."""

    # "non-finite loss", "non-finite gradient", "non-finite gradient norm", or "non-finite update", where finite
    # gradients would have made a weight or the optimizer's state Inf or NaN.
    skip_reason: str
    blame: tuple[Blame, ...] = ()  # the gradients that were not finite

    def row(self) -> tuple[Any, ...]:
        """Its values in the order of ``CSV_COLUMNS``."""
        norms = (self.grad_l2_pre_clip, self.grad_l2_post_clip)
        who = "; ".join(map(str, self.blame))
        return (self.step, self.lr, *norms, self.loss, 1, self.skip_reason, self.scaler_scale, who)


class CsvLog:
    """A CSV file of steps, each row handed to the operating system at once: it survives Ctrl-C and SIGKILL.

    Args:
        path: the file; its folder is made.
        first_step: where the run begins. Rows of earlier steps are kept, so that a run that was resumed goes on in
            its file; 0 begins a new one.

    Raises:
        ValueError: the file is there and is no such log, or a row that would be kept is damaged; it stays as it is.
    """

    def __init__(self, path: str | os.PathLike[str], first_step: int = 0) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = _rows_before(path, first_step) if path.exists() else []
        fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        self._file = open(fresh, "w", newline="", encoding="utf-8")  # noqa: SIM115 - closed by close()
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._writer.writerows([CSV_COLUMNS, *kept])
        self._file.flush()
        fresh.replace(path)  # an interrupted start leaves the old file as it was

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
    """The lines but for a last one that was cut off. Raises ValueError for what is no text."""
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
    """The rows of a :class:`CsvLog` by column; a last line that was cut off is left out.

    Raises ValueError for a file with other columns.
    """
    rows = list(csv.DictReader(_whole_lines(Path(path)), restval=""))
    for row in rows:
        if tuple(row) not in (CSV_COLUMNS, _WITHOUT_BLAME):
            raise ValueError(f"{path} is no log of a training run")
        row.setdefault("blame", "")
    return rows


class SkipMonitor:
    """The share of steps that were skipped, over the last ``window`` of them.

    Before there are as many, the missing ones count as taken: the few skips by which GradScaler finds its first scale
    are no alarm.

    Args:
        window: over how many steps.
        threshold: the share above which :attr:`alert` is True.
        patience: how many steps in a row it may be above before :attr:`exceeded` is True.
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
        """Notes a step."""
        self._skips.append(bool(skipped))
        self._above = self._above + 1 if self.rate > self.threshold else 0

    @property
    def rate(self) -> float:
        """Skipped steps among the last ``window``, 0 to 1."""
        return sum(self._skips) / self.window

    @property
    def alert(self) -> bool:
        """Whether the rate is above the threshold."""
        return self._above > 0

    @property
    def exceeded(self) -> bool:
        """Whether it has been for ``patience`` steps in a row."""
        return self._above >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """The steps noted, for a checkpoint."""
        return {"skips": list(self._skips), "above": self._above}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes up what :meth:`state_dict` gave."""
        self._skips = deque(state["skips"], maxlen=self.window)
        self._above = state["above"]
