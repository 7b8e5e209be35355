"""nbval for this book: numbers within a cell's tolerance, no picture bytes, and the executed copies of the chapters.

It must be the *root* conftest: pytest would not load one in ``tests/`` for the notebooks in ``book/``.
``pytest --nbval`` runs every cell and compares its outputs with the stored ones, words exactly and numbers within

    "tolerance": {"rel": 1e-3, "abs": 1e-9}        (cell metadata; exact without it)

The same run writes the executed chapters from which the site is built, so that each chapter runs once.
"""

import copy
import importlib.util
import math
import os
import re
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode
from nbval.plugin import IPyNbCell, IPyNbFile

ROOT = Path(__file__).parent

# What the stored outputs were made with (`make refresh`): one thread, the CPU, the CPU's work budget, the chapter's own
# seed. OMP_NUM_THREADS: two kernels with two threads each on two cores are several times slower. The IPython folder of
# our own keeps the start-up files and the history of whoever runs the tests away from the chapters.
KERNEL_ENVIRONMENT = {
    "LIB_DEVICE": "cpu",
    "LIB_BUDGET": "cpu",
    "OMP_NUM_THREADS": "1",
    "JUPYTER_PREFER_ENV_PATH": "1",
    "IPYTHONDIR": str(ROOT / "_build" / "ipython"),
}

# A digit that follows a letter (G05, float64) belongs to a word, and so does a hyphen between two words (1-2).
# The dot after a number is dropped: "5." is torch's way to print 5.0, and the end of a sentence.
_NUMBER = re.compile(r"(?<![\w.#&])([-+−]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\.?(?!\d)")


@cache
def execute_tool() -> ModuleType:
    """``book/tools/execute.py``; ``book`` is no package, so it is loaded by its path."""
    path = ROOT / "book" / "tools" / "execute.py"
    spec = importlib.util.spec_from_file_location("execute", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def same_text(expected: str, got: str, *, rel: float, abs_: float) -> bool:
    """Whether two texts have the same words and, between them, numbers within the tolerance.

    The words nan and inf equal only themselves. Spaces count only where the tolerance is zero: a changed digit moves
    the padding of a column.
    """
    if expected == got:
        return True
    if not (rel or abs_):
        return False
    left, right = _NUMBER.split(expected), _NUMBER.split(got)
    if len(left) != len(right):
        return False
    words = zip(left[::2], right[::2], strict=True)
    numbers = zip(left[1::2], right[1::2], strict=True)
    return all(a.split() == b.split() for a, b in words) and all(
        a == b or _close(float(a.replace("−", "-")), float(b.replace("−", "-")), rel=rel, abs_=abs_) for a, b in numbers
    )


def _close(a: float, b: float, *, rel: float, abs_: float) -> bool:
    return math.isfinite(a) and math.isfinite(b) and math.isclose(a, b, rel_tol=rel, abs_tol=abs_)


def tolerance(cell: NotebookNode) -> dict[str, float]:
    """The tolerance in the cell's metadata; a key that we do not know is an error, not an exact comparison."""
    given = cell.metadata.get("tolerance", {})
    if unknown := set(given) - {"rel", "abs"}:
        raise ValueError(f"unknown keys in the cell's tolerance: {sorted(unknown)}; allowed are rel and abs")
    return {"rel": float(given.get("rel", 0.0)), "abs_": float(given.get("abs", 0.0))}


class Text(str):
    """A text whose equality is :func:`same_text`."""

    tolerance: dict[str, float]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and same_text(str(self), str(other), **self.tolerance)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]  # closeness is not transitive


class Cell(IPyNbCell):
    """One code cell: runs, remembers its outputs, and is compared in the form in which outputs are committed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # nbval waits 5 s for an output, which a busy machine exceeds.
        self.output_timeout = 60
        self.differs = False

    def runtest(self) -> None:
        try:
            super().runtest()
        except Exception as error:
            if not self.differs:
                self.parent.failure = self._failure(error)
            raise
        finally:
            self.parent.outputs[self.cell_num] = self.test_outputs

    def _failure(self, error: Exception) -> dict[str, Any]:
        raised = next((output for output in self.test_outputs or [] if output.output_type == "error"), None)
        return {
            "cell": self.cell_num + 1,
            "line": next(iter(self.cell.source.strip().splitlines()), ""),
            "error": _plain(f"{raised.ename}: {raised.evalue}" if raised else f"{type(error).__name__}: {error}"),
            "traceback": _plain("\n".join(raised.traceback) if raised else ""),
        }

    def compare_outputs(self, test: list[Any], ref: list[Any], skip_compare: Any = None) -> bool:
        test, ref = self._committed(test), self._committed(ref)
        same = super().compare_outputs(test, ref, skip_compare)
        shown = [sum(output.output_type != "stream" for output in outputs) for outputs in (ref, test)]
        if same and shown[0] != shown[1]:
            # A picture without text leaves an output with no data, which nbval passes over.
            self.comparison_traceback.append(f"stored are {shown[0]} outputs besides print, the run gave {shown[1]}")
            same = False
        self.differs = not same
        return bool(same)

    def _committed(self, outputs: list[Any]) -> list[NotebookNode]:
        # Picture bytes, widget views and the like are dropped from what is committed; drop them on both sides.
        cell = copy.deepcopy(self.cell)
        cell.outputs = _numbered(outputs, self.cell_num + 1)
        notebook = nbformat.v4.new_notebook(cells=[cell], metadata=copy.deepcopy(self.parent.nb.metadata))
        return list(execute_tool().committed_form(notebook).cells[0].outputs)

    def sanitize(self, s: Any) -> Any:
        clean = super().sanitize(s)
        if not isinstance(clean, str):
            return clean
        text = Text(clean)
        text.tolerance = tolerance(self.cell)
        return text


class Notebook(IPyNbFile):
    """One notebook; the executed copy of a chapter is written when its last cell has run."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.outputs: dict[int, list[Any] | None] = {}
        self.failure: dict[str, Any] | None = None
        self.key = ""
        self.start = 0.0

    @property
    def is_chapter(self) -> bool:
        return bool(self.path.parent == ROOT / "book")

    def collect(self) -> Iterator[Cell]:
        for item in super().collect():
            yield Cell.from_parent(self, name=item.name, cell_num=item.cell_num, cell=item.cell, options=item.options)

    def setup(self) -> None:
        if self.is_chapter:
            tool = execute_tool()
            self.key = tool.execution_key(self.path, ROOT)
            if not tool.is_current(self.path.stem, ROOT):
                tool.discard(self.path.stem, ROOT)
        self.start = time.perf_counter()
        super().setup()

    def teardown(self) -> None:
        super().teardown()
        if self.is_chapter:
            self._publish()

    def _publish(self) -> None:
        """Write the executed copy, or the failure in its place.

        A difference from the stored outputs alone does not stop it: the run is red anyway, and the page shows what
        the code gives now. After a selection (``-k``) or a stop (``-x``) there is no whole chapter to write.
        """
        tool = execute_tool()
        if self.failure:
            tool.record_failure(self.path.stem, self.key, **self.failure, root=ROOT)
            return
        cells = [cell for cell in self.nb.cells if cell.cell_type == "code"]
        whole = sorted(self.outputs) == list(range(len(cells))) and None not in self.outputs.values()
        # The sources may have changed while the cells ran: such a copy belongs to neither version.
        if not whole or self.key != tool.execution_key(self.path, ROOT):
            return
        executed = copy.deepcopy(self.nb)
        for number, cell in enumerate((cell for cell in executed.cells if cell.cell_type == "code"), start=1):
            # nbval runs cells without history, so the kernel's own count stays at one.
            cell.execution_count = number
            cell.outputs = _numbered(self.outputs[number - 1] or [], number)
        nbformat.validate(executed)
        tool.publish(executed, self.path.stem, self.key, ROOT, seconds=time.perf_counter() - self.start)


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def _numbered(outputs: list[Any], number: int) -> list[NotebookNode]:
    fresh = [nbformat.from_dict(copy.deepcopy(output)) for output in outputs]
    for output in fresh:
        if output.output_type == "execute_result":
            output.execution_count = number
    return fresh


def pytest_configure(config: pytest.Config) -> None:
    if config.option.nbval or config.option.nbval_lax:
        os.environ.update(KERNEL_ENVIRONMENT)
        os.environ.pop("LIB_SEED", None)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> Any:
    collectors = yield
    return [
        Notebook.from_parent(parent, path=file_path) if isinstance(found, IPyNbFile) else found for found in collectors
    ]
