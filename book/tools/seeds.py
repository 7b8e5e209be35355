"""Do the verdicts survive other seeds? Run each chapter again with LIB_SEED = 1..N and count the words that change.

    python book/tools/seeds.py                          every chapter, 20 seeds
    python book/tools/seeds.py NAME ... --seeds 50      only these

The runs use the CPU, its work budget and one thread each, side by side on the cores. ``tests/seeds/NAME.json`` keeps
the record: for each check the committed word, the words over the seeds, and the measured values. A test reads it.
"""

import argparse
import ast
import asyncio
import hashlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import yaml
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[2]
CELL_TIMEOUT = 1800  # seconds

Verdicts = dict[tuple[str, str], dict[str, Any]]


def verdicts(notebook: NotebookNode) -> Verdicts:
    """The records in the outputs' metadata, by claim and label."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    found = [dict(output.metadata["verdict"]) for output in outputs if "verdict" in output.get("metadata", {})]
    return {(record["id"], record["label"]): record for record in found}


def run(path: Path, seed: int | None) -> Verdicts | str:
    """The verdicts of one run, or what stopped it; without a seed the chapter uses its own."""
    environment = {name: value for name, value in os.environ.items() if name != "LIB_SEED"}
    environment |= {"LIB_DEVICE": "cpu", "LIB_BUDGET": "cpu", "OMP_NUM_THREADS": "1"}
    environment |= {"JUPYTER_PREFER_ENV_PATH": "1", "IPYTHONDIR": str(path.parents[1] / "_build" / "ipython")}
    if seed is not None:
        environment["LIB_SEED"] = str(seed)
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=CELL_TIMEOUT,
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    try:
        # Not client.execute: in a thread of its own it leaves an event loop open.
        asyncio.run(client.async_execute(env=environment))
    except CellExecutionError as error:
        return f"{error.ename}: {error.evalue}"
    except (CellTimeoutError, DeadKernelError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return verdicts(notebook)


def code_key(path: Path, root: Path = ROOT) -> str:
    """A digest of what decides a chapter's verdicts: its code, the code of ``lib`` that it uses, and its margins.

    Comments, docstrings and prose are left out, so that a record outlives an improved explanation.
    """
    cells = nbformat.read(path, as_version=4).cells
    sources = [cell.source for cell in cells if cell.cell_type == "code"]
    trees = [_parsed(source, f"{path.stem}, code cell {number}") for number, source in enumerate(sources, start=1)]
    waiting, seen = [name for tree in trees for name in _imports(tree)], set()
    parts = [ast.dump(tree) for tree in trees]
    while waiting:
        source = root / "lib" / f"{waiting.pop()}.py"
        if source in seen or not source.exists():
            continue
        seen.add(source)
        waiting += _imports(ast.parse(source.read_text("utf8")))
    for source in sorted(seen):
        parts.append(f"{source.stem}: {ast.dump(_without_docstrings(ast.parse(source.read_text('utf8'))))}")
    claims = yaml.safe_load((root / "book" / "claims.yml").read_text("utf8"))["claims"]
    margins = {
        f"{row['id']} {label}": check.get("margin")
        for row in claims
        for label, check in row["checks"].items()
        if check.get("chapter", row["chapter"]) == path.stem
    }
    parts.append(json.dumps(margins, sort_keys=True))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _parsed(source: str, where: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise ValueError(f"{where} is no plain Python (magics have no place in a chapter): {error}") from error


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("lib."))
        if isinstance(node, ast.ImportFrom) and node.module == "lib":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lib."):
            yield str(node.module).split(".")[1]


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [sub for sub in node.body if not _is_text(sub)]
    return tree


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def record(committed: Verdicts, runs: dict[int, Verdicts | str]) -> dict[str, Any]:
    """The chapter's record; a run that failed is in ``failures``, a check that a run left out is *not run*."""
    complete = {seed: found for seed, found in sorted(runs.items()) if isinstance(found, dict)}
    checks = []
    for key in sorted({*committed, *(key for found in complete.values() for key in found)}):
        words = {seed: found[key]["word"] if key in found else "not run" for seed, found in complete.items()}
        word = committed[key]["word"] if key in committed else "not run"
        powers = [found[key].get("power") for found in complete.values() if key in found]
        checks.append(
            {
                "id": key[0],
                "label": key[1],
                "word": word,
                "words": dict(sorted(Counter(words.values()).items())),
                "flips": {str(seed): other for seed, other in words.items() if other != word},
                "least_power": min((_short(power) for power in powers if power), default=None),
                "measured": [_measured(found[key]) if key in found else None for found in complete.values()],
            }
        )
    total = len(checks) * len(complete)
    flips = sum(len(check["flips"]) for check in checks)
    return {
        "seeds": list(complete),
        "failures": {str(seed): found for seed, found in sorted(runs.items()) if isinstance(found, str)},
        "flips": flips,
        "rate": _short(flips / total) if total else None,
        "checks": checks,
    }


def _measured(verdict: dict[str, Any]) -> float | None:
    """The number that the verdict is about: the mean, the exact value, or the least slack of a bound."""
    measured = verdict.get("measured", {})
    return next((_short(measured[name]) for name in ("mean", "value", "least_slack") if name in measured), None)


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def measure(path: Path, seeds: int, workers: int, root: Path = ROOT) -> dict[str, Any]:
    """Run the chapter with its own seed and with the seeds 1..N, and make its record."""
    key = code_key(path, root)

    def one(seed: int | None) -> Verdicts | str:
        start = time.perf_counter()
        found = run(path, seed)
        outcome = found if isinstance(found, str) else f"{len(found)} checks"
        print(
            f"{path.stem}, seed {seed or 'of the chapter'}: {outcome}, {time.perf_counter() - start:.0f} s", flush=True
        )
        return found

    with ThreadPoolExecutor(workers) as pool:
        committed, *others = pool.map(one, [None, *range(1, seeds + 1)])
    if isinstance(committed, str):
        raise RuntimeError(f"{path.stem} fails with its own seed: {committed}")
    if key != code_key(path, root):
        raise RuntimeError(f"the sources of {path.stem} changed while it ran: the record would belong to neither")
    return {"chapter": path.stem, "key": key} | record(committed, dict(enumerate(others, start=1)))


def write(chapter: dict[str, Any], root: Path = ROOT) -> Path:
    """Store the record under the chapter's name."""
    path = root / "tests" / "seeds" / f"{chapter['chapter']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    # One line per check: a readable diff.
    lines = [f"  {json.dumps(check, ensure_ascii=False)}" for check in chapter["checks"]]
    head = json.dumps({name: value for name, value in chapter.items() if name != "checks"}, ensure_ascii=False)
    partial.write_text(head[:-1] + ',\n "checks": [\n' + ",\n".join(lines) + "\n]}\n", "utf8")
    partial.replace(path)
    return path


def table(chapter: dict[str, Any]) -> str:
    """The record for people."""
    lines = [f"{chapter['chapter']}: {len(chapter['seeds'])} seeds, {chapter['flips']} flips"]
    for check in chapter["checks"]:
        values = [value for value in check["measured"] if value is not None]
        span = f"{min(values):.4g} .. {max(values):.4g}" if values else ""
        others = ", ".join(f"{word} (seed {seed})" for seed, word in check["flips"].items())
        lines.append(f"  {check['id']:5} {check['label']:44.44} {check['word']:20} {span:24} {others}")
    lines += [f"  seed {seed} failed: {error}" for seed, error in chapter["failures"].items()]
    return "\n".join(lines)


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description="Run chapters again with other seeds.")
    parser.add_argument("names", nargs="*", help="chapters, by name; all if omitted")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="runs at a time (default: the cores)")
    options = parser.parse_args(arguments)
    available = {path.stem: path for path in sorted((root / "book").glob("*.ipynb"))}
    if unknown := sorted(set(options.names) - set(available)):
        parser.error(f"no chapter named {', '.join(unknown)}; there are: {', '.join(available) or 'none'}")
    if min(options.seeds, options.workers) < 1:
        parser.error("--seeds and --workers must be at least 1")
    bad = 0
    for name in dict.fromkeys(options.names or available):
        chapter = measure(available[name], options.seeds, options.workers, root)
        write(chapter, root)
        print(table(chapter), flush=True)
        bad += chapter["flips"] + len(chapter["failures"])
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
