"""Seeded faults: does a test or a chapter turn red when a constant, a sign or an exponent in ``lib`` is wrong?

    python tests/mutants.py                       all faults of mutants.yml
    python tests/mutants.py --only quantization   those whose file or note contains the word
    python tests/mutants.py --no-chapters         unit tests only

Each fault is put into a copy of the repository, never into the working tree. The unit tests that import the faulty
module run first, up to the first red one; the chapters that use it run for the faults that survive. The table says
what caught each fault; the exit status is 1 if one survives, or if its old text does not stand exactly once in its
file.
"""

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

import nbformat
import yaml
from imports import imported

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = (".git", ".venv", "_build", "__pycache__", ".*_cache", ".hypothesis", "*.egg-info", ".ipynb_checkpoints")
SURVIVED = "SURVIVED"


@dataclass(frozen=True)
class Mutant:
    """A fault: ``old`` stands once in ``file`` and becomes ``new``."""

    file: str
    old: str
    new: str
    note: str

    @property
    def module(self) -> str:
        return Path(self.file).stem


class NoMutantError(ValueError):
    """The fault cannot be put in, or the copy cannot tell whether it was found."""


def read(path: Path) -> list[Mutant]:
    """The faults of ``mutants.yml``."""
    return [Mutant(**row) for row in yaml.safe_load(path.read_text("utf8"))]


def mutated(mutant: Mutant, root: Path) -> str:
    """The faulty source, which must parse and differ from the sound one in more than its comments."""
    source = (root / mutant.file).read_text("utf8")
    if (times := source.count(mutant.old)) != 1:
        raise NoMutantError(f"{mutant.file}: {mutant.old!r} stands {times} times, not once")
    faulty = source.replace(mutant.old, mutant.new)
    if ast.dump(_without_docstrings(faulty)) == ast.dump(_without_docstrings(source)):
        raise NoMutantError(f"{mutant.file}: {mutant.new!r} changes no code")
    return faulty


def _without_docstrings(source: str) -> ast.Module:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [sub for sub in node.body if not _is_text(sub)]
    return tree


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def reaching(module: str, root: Path) -> set[str]:
    """The module and every module of ``lib`` that builds on it."""
    users = {path.stem: imported(path.read_text("utf8")) for path in (root / "lib").glob("*.py")}
    found = {module}
    while new := {name for name, used in users.items() if used & found} - found:
        found |= new
    return found


def unit_tests(module: str, root: Path) -> list[str]:
    """The module's doctests and the test files that import it, its namesake first, then those that build on it."""
    importing = {path: imported(path.read_text("utf8")) for path in sorted((root / "tests").glob("test_*.py"))}
    direct = [path for path, used in importing.items() if module in used]
    direct.sort(key=lambda path: path.stem != f"test_{module}")
    reached = reaching(module, root)
    indirect = [path for path, used in importing.items() if used & reached and path not in direct]
    return [f"lib/{module}.py", *(path.relative_to(root).as_posix() for path in direct + indirect)]


def chapters(module: str, root: Path) -> list[str]:
    """The chapters whose code uses the module, if only through others."""
    reached = reaching(module, root)
    found = []
    for path in sorted((root / "book").glob("*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        if imported("\n".join(cell.source for cell in cells if cell.cell_type == "code")) & reached:
            found.append(path.relative_to(root).as_posix())
    return found


class Copy:
    """A copy of the repository in which faults are tried one after the other."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = folder / "copy"
        shutil.copytree(root, self.root, ignore=shutil.ignore_patterns(*LEFT_OUT))
        # The editable install points to the original: the copy must come first, in pytest and in the kernels. Without
        # bytecode: a fault of the same length, written in the same second, would run the sound module's bytecode.
        self.environment = os.environ | {
            "PYTHONPATH": str(self.root),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
        }
        self.environment.pop("PYTEST_ADDOPTS", None)
        for directory in (self.root, self.root / "book"):
            line = "import lib, pathlib; print(pathlib.Path(lib.__file__).resolve().parents[1])"
            found = self._python("-c", line, cwd=directory).stdout.strip()
            if Path(found) != self.root.resolve():
                raise NoMutantError(f"lib comes from {found} and not from the copy: no fault would be seen")

    def _python(self, *arguments: str, cwd: Path, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=cwd,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )

    def pytest(self, arguments: Sequence[str], timeout: float) -> str | None:
        """The first red test, or ``None`` if all are green."""
        command = ["-m", "pytest", "-x", "-q", "-rfE", "--no-header", "--tb=no", "-p", "no:cacheprovider", *arguments]
        try:
            done = self._python(*command, cwd=self.root, timeout=timeout)
        except subprocess.TimeoutExpired:
            return f"time-out after {timeout:.0f} s"
        if done.returncode == 0:
            return None
        red = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.sub(r"\x1b\[[0-9;]*m", "", done.stdout), re.M)
        if done.returncode != 1 or not red:
            raise NoMutantError(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return red[1]

    def verdict(self, module: str, timeout: float, with_chapters: bool = True) -> str | None:
        """What turns red for the copy as it is: unit tests first, the chapters only if these are green."""
        for arguments in batches(module, self.root, with_chapters):
            if red := self.pytest(arguments, timeout):
                return red
        return None

    def try_out(self, mutant: Mutant, timeout: float, with_chapters: bool = True) -> str:
        """Put the fault in, see what finds it, and take it out again."""
        path = self.root / mutant.file
        sound = path.read_text("utf8")
        path.write_text(mutated(mutant, self.root), "utf8")
        try:
            return self.verdict(mutant.module, timeout, with_chapters) or SURVIVED
        finally:
            path.write_text(sound, "utf8")


def batches(module: str, root: Path, with_chapters: bool) -> Iterator[list[str]]:
    """Arguments of the calls of pytest for a fault in ``module``, the cheapest call first."""
    yield unit_tests(module, root)
    if with_chapters:
        for path in chapters(module, root):
            yield ["--nbval", "--nbval-current-env", path]


def check_copy(copy: Copy, modules: Sequence[str], timeout: float, with_chapters: bool) -> None:
    """The sound copy is green, and a module that cannot be imported is red: otherwise the table would mean nothing."""
    calls = {tuple(arguments) for module in modules for arguments in batches(module, copy.root, with_chapters)}
    # A file that several modules share runs once.
    units = sorted({argument for call in calls if call[0] != "--nbval" for argument in call})
    for arguments in [units, *sorted(list(call) for call in calls if call[0] == "--nbval")]:
        start = time.perf_counter()
        if red := copy.pytest(arguments, timeout):
            raise NoMutantError(f"red without any fault: {red}")
        print(f"green without a fault: {' '.join(arguments)} ({time.perf_counter() - start:.0f} s)", flush=True)
    broken = copy.root / "lib" / f"{modules[0]}.py"
    sound = broken.read_text("utf8")
    broken.write_text('raise RuntimeError("a fault that everything must see")\n', "utf8")
    try:
        for arguments in batches(modules[0], copy.root, with_chapters):
            try:
                seen = copy.pytest(arguments, timeout) is not None
            except NoMutantError as error:  # a test file that cannot be collected
                seen = "a fault that everything must see" in str(error)
            if not seen:
                raise NoMutantError(f"{' '.join(arguments)} does not import lib/{modules[0]}.py from the copy")
    finally:
        broken.write_text(sound, "utf8")


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="a word in the file or the note of the faults to try")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for one call of pytest")
    parser.add_argument("--no-chapters", action="store_true", help="unit tests only")
    options = parser.parse_args(arguments)
    mutants = [m for m in read(root / "tests" / "mutants.yml") if options.only in m.file or options.only in m.note]
    with_chapters = not options.no_chapters
    try:
        if not mutants:
            raise NoMutantError("no such fault in mutants.yml")
        for mutant in mutants:
            mutated(mutant, root)
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            copies: Queue[Copy] = Queue()
            for number in range(options.workers):
                copies.put(Copy(root, Path(folder) / str(number)))
            first = copies.get()
            check_copy(first, sorted({mutant.module for mutant in mutants}), options.timeout, with_chapters)
            copies.put(first)

            def one(mutant: Mutant) -> str:
                copy = copies.get()
                try:
                    caught = copy.try_out(mutant, options.timeout, with_chapters)
                finally:
                    copies.put(copy)
                print(f"{mutant.file:28} {mutant.note:60} {caught}", flush=True)
                return caught

            print(f"{'file':28} {'fault':60} caught by", flush=True)
            with ThreadPoolExecutor(options.workers) as pool:
                results = list(pool.map(one, mutants))
    except NoMutantError as error:
        print(error, file=sys.stderr)
        return 1
    survivors = results.count(SURVIVED)
    print(f"{len(results)} faults, {len(results) - survivors} caught, {survivors} survived")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
