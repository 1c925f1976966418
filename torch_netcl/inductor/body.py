"""The statements of a kernel: values, each of which is assigned once, and effects. They are put into loops at the end.

A value belongs to a level: 0, or one above that of the reductions that it depends on. A value that varies within a
reduction is computed in the loop of its level. A later loop that needs it computes it again, or reads what was kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

#: Shapes of kernels (kernel.py).
ELEMENTS, ROWS, COLUMNS = 0, 1, 2
NAMES = re.compile(r"[A-Za-z_]\w*")
#: Stands for the number of lanes that count, which depends on the loop.
LANES = "LANES@"
#: Work of a function, and the work that costs more than to keep a value and to read it again.
COSTLY, _KEPT_WORK = 8, 3


@dataclass
class Statement:
    """``text`` is the value of ``name``, or has an effect if there is no name."""

    text: str
    needs: list[Statement]
    name: str = ""
    type: str = ""
    loop: bool = False  # varies within a reduction
    level: int = 0
    varies: bool = False  # from one element, column or row to another
    ahead: bool = False  # fetches the next row into the cache
    reads: str = ""  # the buffer that a load reads
    work: int = 1  # how much it costs; what costs at least _KEPT_WORK is rather kept than computed again
    buffer: str = ""  # what a store writes to; it is left out if the buffer has been removed
    # A reduction: `text` is in its loop, these lines come before and after it, and `name` is the result.
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    reduces: bool = False
    of: tuple[str, str] = ("", "")  # the kind of the reduction, and the value that is reduced


@dataclass
class Loop:
    """How a kernel runs over the elements that it reduces."""

    open: list[str]
    close: list[str]
    lanes: tuple[str, str]  # how many lanes count outside of the loop, and inside
    kept: str | None  # the length of an array with a value for each round; None if that is too long
    most_kept: int = 0  # how many such arrays there may be


class Body:
    """Collects statements and writes them in loops."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self.named: dict[str, Statement] = {}
        self._same: dict[tuple[str, str], str] = {}

    def needs(self, text: str) -> list[Statement]:
        found = dict.fromkeys(n for n in NAMES.findall(text) if n in self.named)
        return [self.named[n] for n in found]

    def known(self, text: str, type: str) -> str | None:
        """The name of a value that was computed in the same way."""
        return self._same.get((text, type))

    def add(self, statement: Statement) -> Statement:
        statement.level = max([statement.level, *(n.level + n.reduces for n in statement.needs)])
        statement.loop |= any(n.loop and not n.reduces for n in statement.needs)
        statement.varies |= statement.loop or LANES in statement.text or any(n.varies for n in statement.needs)
        self.statements.append(statement)
        if statement.name:
            self.named[statement.name] = statement
            if not statement.reduces:
                self._same[statement.text, statement.type] = statement.name
        return statement

    def value(self, name: str, type: str, text: str, loop: bool = False, work: int = 1) -> Statement:
        return self.add(Statement(text, self.needs(text), name, type, loop, work=work))

    def effect(self, text: str, buffer: str = "", loop: bool = False) -> Statement:
        return self.add(Statement(text, self.needs(text), buffer=buffer, loop=loop))

    def write(
        self, removed: Callable[[str], bool], last_stores: Callable[[str], bool], loop: Loop
    ) -> tuple[list[str], list[str]]:
        """The lines before a kernel's loops, and those within. ``last_stores`` says to which buffers stores come last,
        since they may be read until then."""
        for s in self.statements:
            s.varies |= bool(s.reads and last_stores(s.reads)) or any(n.varies for n in s.needs)
        effects = [s for s in self.statements if (not s.name) and not (s.buffer and removed(s.buffer))]
        wanted = self._closure([s for s in effects])
        reductions = [s for s in wanted if s.reduces]
        top = max([s.level for s in (*effects, *reductions)], default=0)
        for s in effects:
            if s.buffer and s.loop and last_stores(s.buffer):
                s.level = top
            if s.ahead:  # the second loop computes while the row arrives
                s.level = min(1, top)
        return _Writer(self, effects, reductions, top, loop).lines()

    def _closure(self, roots: Iterable[Statement]) -> list[Statement]:
        found: set[int] = set()
        stack = list(roots)
        while stack:
            s = stack.pop()
            if id(s) not in found:
                found.add(id(s))
                stack += s.needs
        return [s for s in self.statements if id(s) in found]


class _Writer:
    def __init__(self, body: Body, effects: list[Statement], reductions: list[Statement], top: int, loop: Loop) -> None:
        self.body, self.top, self.loop = body, top, loop
        self.loops: list[list[Statement]] = []
        for level in range(top + 1):
            ends = [s for s in effects if s.loop and s.level == level]
            ends += [s for s in reductions if s.level == level]
            self.loops.append(ends)
        self.flat_effects = [s for s in effects if not s.loop]
        self.all = [*effects, *reductions]
        self.in_loop: list[set[int]] = []
        self.keeps: dict[int, str] = {}

    def _loop_members(self, ends: list[Statement], level: int) -> list[Statement]:
        """What the loop of a level computes: all that its ends need, up to values that an earlier loop keeps."""
        found: set[int] = set()
        stack = list(ends)
        while stack:
            s = stack.pop()
            if id(s) in found:
                continue
            found.add(id(s))
            if s.level < level and s.name and any(id(s) in m for m in self.in_loop) and self._keep(s):
                continue
            stack += [n for n in s.needs if n.loop and not n.reduces]
        return [s for s in self.body.statements if id(s) in found]

    def _keep(self, s: Statement) -> bool:
        if id(s) not in self.keeps:
            if self.loop.kept is None or len(self.keeps) >= self.loop.most_kept or self._work(s) < _KEPT_WORK:
                return False
            self.keeps[id(s)] = f"kept_{s.name}"
        return True

    def _work(self, s: Statement) -> int:
        """What it costs to compute a value in a later loop."""
        found: dict[int, int] = {}
        stack = [s]
        while stack:
            n = stack.pop()
            if id(n) in found:
                continue
            found[id(n)] = 1 if id(n) in self.keeps else n.work
            if id(n) not in self.keeps:
                stack += [m for m in n.needs if m.loop and not m.reduces]
        return sum(found.values())

    def lines(self) -> tuple[list[str], list[str]]:
        members: list[list[Statement]] = []
        for level, ends in enumerate(self.loops):
            members.append(self._loop_members(ends, level) if ends else [])
            self.in_loop.append({id(s) for s in members[-1]})
        out: list[str] = []
        kept = [s for s in self.body.statements if id(s) in self.keeps]
        out += [f"{s.type} {self.keeps[id(s)]}[{self.loop.kept}];" for s in kept]
        flat = [s for s in self.body._closure(self.all) if not s.loop and not s.reduces and s.name]
        fixed = [self._text(s) for s in flat if not s.varies]
        flat = [s for s in flat if s.varies]
        for level in range(self.top + 1):
            out += [self._text(s) for s in flat if s.level == level]
            out += [s.text.replace(LANES, self.loop.lanes[0]) for s in self.flat_effects if s.level == level]
            out += self._loop(level, members[level])
        return fixed, out

    def _loop(self, level: int, members: list[Statement]) -> list[str]:
        if not members:
            return []
        reductions = [s for s in members if s.reduces]
        inside: list[str] = []
        keeping = False
        for s in members:
            kept = self.keeps.get(id(s))
            keeping |= kept is not None
            if kept and any(id(s) in m for m in self.in_loop[:level]):
                inside.append(f"const {s.type} {s.name} = {kept}[place];")
                continue
            inside.append(self._text(s, 1))
            if kept:
                inside.append(f"{kept}[place] = {s.name};")
        if keeping:
            inside.append("place++;")
        loop = [*self.loop.open, *(f"  {line}" for line in inside), *self.loop.close]
        if keeping:  # the counter is the loop's own
            loop = ["{", "  int place = 0;", *(f"  {line}" for line in loop), "}"]
        return [
            *(line for s in reductions for line in s.before),
            *loop,
            *(line for s in reductions for line in s.after),
        ]

    def _text(self, s: Statement, inside: int = 0) -> str:
        text = s.text.replace(LANES, self.loop.lanes[inside])
        return f"const {s.type} {s.name} = {text};" if s.name and not s.reduces else text
