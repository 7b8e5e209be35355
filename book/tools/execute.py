"""Execute the chapters into ``_build/executed``: each in a fresh kernel, side by side, and only when an input changed.

    python book/tools/execute.py                     every chapter whose executed copy is not current
    python book/tools/execute.py NAME ...            only these chapters
    python book/tools/execute.py --refresh [NAME]    run on the CPU and write the committed form into book/

Jupyter Book's own cache looks at a notebook's code alone and would publish stale results after a change in ``lib``.
Here the key of a copy covers everything a chapter reads (`execution_key`); a copy with another key is deleted before
its chapter runs, and a failed chapter leaves a record (`failure`) instead of a copy.
"""

import argparse
import asyncio
import copy
import hashlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from lib import compute, data

ROOT = Path(__file__).resolve().parents[2]
CELL_TIMEOUT = 1800  # seconds; a hung cell must not hold a build for ever
GPU_WORKERS = 4  # chapters share one GPU's memory, so fewer of them than cores

_DATA_URI = re.compile(r"(data:image/[\w.+-]+[^,\"'\s<>]*,)[^\"'\s)<>]*")
_INLINE_SVG = re.compile(r"<svg\b.*?</svg>", re.DOTALL)


# --- what a chapter depends on ---------------------------------------------------------------------------------------


def chapters(root: Path = ROOT) -> list[Path]:
    """The chapter notebooks, by name."""
    return sorted((root / "book").glob("*.ipynb"))


def execution_key(notebook_path: Path, root: Path = ROOT) -> str:
    """A digest of everything that the outputs of a chapter depend on, except its stored outputs.

    The notebook's cells and metadata, every file of ``lib``, the ledger of claims, the shipped and the external data,
    the requirements, the ``LIB_*`` variables and the device and budget that they resolve to. An explicit
    ``LIB_DEVICE=cpu`` and the automatic choice of the CPU give one key, so that on a machine without a GPU the site of
    ``make book`` reuses what ``make test`` executed.
    """
    parts = {"notebook": _source_digest(notebook_path), "python": ".".join(map(str, sys.version_info[:2]))}
    for path in _input_files(root):
        parts[path.relative_to(root).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
    ledger = notebook_path.parent / os.environ.get("LIB_CLAIMS", "")  # from where the kernel starts
    if ledger.is_file():
        parts["ledger"] = hashlib.sha256(ledger.read_bytes()).hexdigest()
    parts |= {f"env {name}": value for name, value in _settings().items()}
    parts["external data"] = data.data_digest()
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _source_digest(notebook_path: Path) -> str:
    """Digest of cells and metadata; what a run writes (outputs, counts, timing, version) is out.

    So are the cells' ids: where a notebook has none, nbformat invents others at each reading.
    """
    notebook = committed_form(nbformat.read(notebook_path, as_version=4))
    for name in ("language_info", "run_time"):
        notebook.metadata.pop(name, None)
    for cell in notebook.cells:
        cell.pop("id", None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return hashlib.sha256(json.dumps(notebook, sort_keys=True).encode()).hexdigest()


def _input_files(root: Path) -> Iterator[Path]:
    for path in sorted((root / "lib").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path
    for path in sorted((root / "book" / "data").rglob("*")):
        if path.is_file():
            yield path
    yield from (path for path in (root / "book" / "claims.yml", root / "requirements.txt") if path.exists())


def _settings() -> dict[str, str]:
    settings = {name: value for name, value in os.environ.items() if name.startswith("LIB_") and value}
    settings["LIB_DEVICE"] = str(compute.device())
    settings["LIB_BUDGET"] = compute.budget(cpu="cpu", gpu="gpu")
    return settings


# --- the executed copies ---------------------------------------------------------------------------------------------


def executed_folder(root: Path = ROOT) -> Path:
    return root / "_build" / "executed"


def is_current(name: str, root: Path = ROOT) -> bool:
    """Whether the executed copy of chapter ``name`` belongs to today's inputs."""
    folder = executed_folder(root)
    key, copy_ = folder / f"{name}.key", folder / f"{name}.ipynb"
    return key.exists() and copy_.exists() and key.read_text() == execution_key(root / "book" / f"{name}.ipynb", root)


def discard(name: str, root: Path = ROOT) -> None:
    """Delete what an earlier run of the chapter left, the key first, so that nothing stale can be published."""
    for ending in ("key", "ipynb", "failed.json"):
        (executed_folder(root) / f"{name}.{ending}").unlink(missing_ok=True)


def publish(notebook: NotebookNode, name: str, key: str, root: Path = ROOT, *, seconds: float) -> None:
    """Store the executed chapter; ``key`` is `execution_key` as it was *before* the run, which took ``seconds``."""
    notebook = copy.deepcopy(notebook)
    notebook.metadata["run_time"] = {"seconds": round(seconds, 1), "device": compute.device().type}
    notebook.metadata.pop("widgets", None)  # no widget runtime in the site: the explorer brings its own picture
    discard(name, root)
    _write(executed_folder(root) / f"{name}.ipynb", nbformat.writes(notebook) + "\n")
    _write(executed_folder(root) / f"{name}.key", key)


def record_failure(
    name: str, key: str, *, cell: int, error: str, line: str = "", traceback: str = "", root: Path = ROOT
) -> None:
    """Store that the chapter failed: ``cell`` counts code cells from 1, as the reader sees them."""
    discard(name, root)
    record = {"key": key, "cell": cell, "line": line, "error": error, "traceback": traceback}
    _write(executed_folder(root) / f"{name}.failed.json", json.dumps(record, indent=1) + "\n")


def failure(name: str, root: Path = ROOT) -> dict[str, Any] | None:
    """The record of the chapter's failed run, if it failed on today's inputs."""
    path = executed_folder(root) / f"{name}.failed.json"
    if not path.exists():
        return None
    record: dict[str, Any] = json.loads(path.read_text())
    return record if record["key"] == execution_key(root / "book" / f"{name}.ipynb", root) else None


def _write(path: Path, text: str) -> None:
    """Write beside the target and rename: a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


# --- the committed form ----------------------------------------------------------------------------------------------


def committed_form(notebook: NotebookNode) -> NotebookNode:
    """The notebook as it is committed: text outputs and execution counts, and nothing that differs between two runs.

    Dropped: picture bytes (also inside HTML), widget views and state, timing, tracebacks, the patch version of Python.
    The result is its own committed form, which the structure test uses.
    """
    notebook = copy.deepcopy(notebook)
    notebook.metadata.pop("widgets", None)
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    language = notebook.metadata.get("language_info", {})
    if "version" in language:
        language["version"] = ".".join(language["version"].split(".")[:2])
    for cell in notebook.cells:
        for name in ("execution", "ExecuteTime", "collapsed", "scrolled"):
            cell.metadata.pop(name, None)
        if cell.cell_type == "code":
            cell.outputs = _joined_streams([_committed_output(output) for output in cell.outputs])
    return notebook


def committed_text(notebook: NotebookNode) -> str:
    """The bytes of a committed chapter, as text."""
    return nbformat.writes(committed_form(notebook)) + "\n"


def without_pictures(html: str) -> str:
    """HTML with each embedded picture's bytes removed and the tag around them left."""
    return _INLINE_SVG.sub("<svg></svg>", _DATA_URI.sub(r"\1", html))


def _committed_output(output: NotebookNode) -> NotebookNode:
    if output.output_type == "error":
        output.traceback = [f"{output.ename}: {output.evalue}"]
    for mime in list(output.get("data", {})):
        if mime.startswith("image/") or mime.startswith("application/vnd.jupyter.widget"):
            del output.data[mime]
            output.metadata.pop(mime, None)
        elif mime == "text/html":
            output.data[mime] = without_pictures(output.data[mime])
    return output


def _joined_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Two prints arrive as one message or as two, depending on the clock."""
    joined: list[NotebookNode] = []
    for output in outputs:
        if output.output_type == "stream" and joined and joined[-1].get("name") == output.name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


# --- running ---------------------------------------------------------------------------------------------------------


def run(notebook_path: Path, root: Path = ROOT) -> float | None:
    """Execute one chapter and publish or record the outcome; seconds, or None if it failed."""
    name, key = notebook_path.stem, execution_key(notebook_path, root)
    discard(name, root)
    notebook = nbformat.read(notebook_path, as_version=4)
    reached = 0

    def remember(cell: NotebookNode, cell_index: int) -> None:
        nonlocal reached
        reached = cell_index

    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=CELL_TIMEOUT,
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
        on_cell_start=remember,
        resources={"metadata": {"path": str(notebook_path.parent)}},
    )
    log = root / "_build" / "kernels" / f"{name}.log"  # what a kernel writes beside its cells' outputs
    log.parent.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    try:
        with log.open("w") as stream:
            asyncio.run(client.async_execute(env=_kernel_environment(root), stdout=stream, stderr=stream))
    except (CellExecutionError, CellTimeoutError, DeadKernelError, RuntimeError) as error:
        source = notebook.cells[reached].source.strip() if notebook.cells else ""
        record_failure(
            name,
            key,
            cell=sum(cell.cell_type == "code" for cell in notebook.cells[: reached + 1]),
            line=source.splitlines()[0] if source else "",
            error=_summary(error),
            traceback=plain(getattr(error, "traceback", "")) or f"the kernel's log is in {log.relative_to(root)}",
            root=root,
        )
        return None
    seconds = time.perf_counter() - start
    publish(notebook, name, key, root, seconds=seconds)
    return seconds


def _kernel_environment(root: Path) -> dict[str, str]:
    settings = root / "_build" / "ipython"
    settings.mkdir(parents=True, exist_ok=True)
    # One thread per kernel: two kernels with two threads each on two cores are several times slower.
    # An IPython folder of our own: neither the reader's start-up files nor a locked history reach a chapter.
    return os.environ | {
        "OMP_NUM_THREADS": "1",
        "JUPYTER_PREFER_ENV_PATH": "1",
        "IPYTHONDIR": str(settings),
    }


def plain(text: str) -> str:
    """The text without a terminal's colour codes."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def _summary(error: Exception) -> str:
    if isinstance(error, CellExecutionError):
        return f"{error.ename}: {plain(error.evalue)}"
    if isinstance(error, CellTimeoutError):
        return f"Timeout: the cell ran longer than {CELL_TIMEOUT} s"
    return f"{type(error).__name__}: {error}"


def execute(paths: list[Path], root: Path = ROOT, workers: int | None = None) -> dict[str, float | None]:
    """Run the chapters side by side, the longest first; name to seconds, None for a failed one."""
    workers = workers or _workers()
    timings = _timings(root)
    paths = sorted(paths, key=lambda path: -timings.get(path.stem, float("inf")))
    results: dict[str, float | None] = {}

    def one(path: Path) -> None:
        results[path.stem] = seconds = run(path, root)
        print(f"{path.stem:32} {'FAILED' if seconds is None else f'{seconds:6.1f} s'}", flush=True)

    with ThreadPoolExecutor(max_workers=max(1, min(workers, len(paths)))) as pool:
        list(pool.map(one, paths))
    timings |= {name: round(seconds, 1) for name, seconds in results.items() if seconds is not None}
    _write(executed_folder(root) / "timings.json", json.dumps(timings, indent=1, sort_keys=True) + "\n")
    return results


def _workers() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if compute.device().type == "cpu" else min(cores, GPU_WORKERS)


def _timings(root: Path) -> dict[str, float]:
    path = executed_folder(root) / "timings.json"
    return json.loads(path.read_text()) if path.exists() else {}


def remove_orphans(root: Path = ROOT) -> None:
    """Delete the copies of chapters that no longer exist."""
    names = {path.stem for path in chapters(root)}
    for path in executed_folder(root).glob("*.ipynb"):
        if path.stem not in names:
            discard(path.stem, root)


def report_failures(names: list[str], root: Path = ROOT) -> None:
    for name in sorted(names):
        record = failure(name, root)
        if record:
            print(f"\n{name}, cell {record['cell']}: {record['line']}\n    {record['error']}", file=sys.stderr)
            if record["traceback"]:
                print("    " + record["traceback"].strip().replace("\n", "\n    "), file=sys.stderr)


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description="Execute the chapters of the book.")
    parser.add_argument("names", nargs="*", help="chapters, by name; all if omitted")
    parser.add_argument("--refresh", action="store_true", help="rewrite the committed notebooks, on the CPU")
    parser.add_argument("--workers", type=int, help="chapters at a time (default: one per core)")
    options = parser.parse_args(arguments)
    available = {path.stem: path for path in chapters(root)}
    unknown = sorted(set(options.names) - set(available))
    if unknown:
        parser.error(f"no chapter named {', '.join(unknown)}; there are: {', '.join(available) or 'none'}")
    if options.workers is not None and options.workers < 1:
        parser.error("--workers must be at least 1")
    if options.refresh:
        # The committed outputs are those of the CPU budget and of the chapter's own seed.
        os.environ |= {"LIB_DEVICE": "cpu", "LIB_BUDGET": "cpu"}
        os.environ.pop("LIB_SEED", None)

    remove_orphans(root)
    names = list(dict.fromkeys(options.names or available))
    wanted = [available[name] for name in names if options.refresh or not is_current(name, root)]
    results = execute(wanted, root, options.workers) if wanted else {}
    if options.refresh:
        for name, seconds in results.items():
            if seconds is not None:
                executed = nbformat.read(executed_folder(root) / f"{name}.ipynb", as_version=4)
                _write(available[name], committed_text(executed))
    failed = [name for name, seconds in results.items() if seconds is None]
    report_failures(failed, root)
    executed, current = len(results) - len(failed), len(names) - len(results)
    print(f"chapters: {executed} executed, {current} current, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
