"""Stage the book in ``_build/src`` and build the site in ``_build/html``, with warnings as errors.

    python book/tools/stage.py                       after book/tools/execute.py

The staging folder is wiped each time and filled with the executed copies of the chapters, the other pages, the ledger
(`ledger.py`) and the list of the library's modules. The site is built from nothing in a folder of its own and moved to
``_build/html`` when it is whole; it is left alone when the inputs are those of the last successful build. A chapter
that failed is published as its text, with the error on top, and the exit status is 1. Where the build itself fails,
there is no ``_build/html``: what lay there belonged to other inputs.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import execute
import ledger
import nbformat
from nbformat.v4 import new_markdown_cell

COUNTS_MARK = "<!-- counts -->"
LEDGER_MARK = "<!-- ledger -->"
RUN_TIME_MARK = "<!-- run time -->"
MODULES_MARK = "<!-- modules -->"
VERDICT_MARK = re.compile(r"<!-- verdict: (\S+) \| (.+?) -->")  # on any page: the card of that check
PAGES = ("*.md", "*.bib")


def chapters(root: Path = execute.ROOT) -> dict[str, ledger.Chapter]:
    """The executed chapters and, as their text, the failed ones.

    Raises:
        SystemExit: a chapter that neither ran nor failed on today's inputs; nothing stale is published.
    """
    found, missing = {}, []
    for path in execute.chapters(root):
        record = execute.failure(path.stem, root)
        if execute.is_current(path.stem, root):
            notebook = nbformat.read(execute.executed_folder(root) / path.name, as_version=4)
            found[path.stem] = ledger.Chapter(path.stem, notebook)
        elif record:
            notebook = failed_page(nbformat.read(path, as_version=4), record["cell"], record["line"], record["error"])
            found[path.stem] = ledger.Chapter(path.stem, notebook, failed=True)
        else:
            missing.append(path.stem)
    if missing:
        sys.exit(
            f"not executed on today's sources: {', '.join(missing)}; run `make book`, or book/tools/execute.py first"
        )
    return found


def failed_page(notebook: nbformat.NotebookNode, cell: int, line: str, error: str) -> nbformat.NotebookNode:
    """The chapter without any output, and with the error below its title."""
    for code in (code for code in notebook.cells if code.cell_type == "code"):
        code.outputs, code.execution_count = [], None
    text = "\n".join([f"In [{cell}]: {line}", error]).replace("```", "'''")
    message = (
        f"::::{{error}} This chapter failed\nCode cell {cell} stopped with an error; no output is shown.\n\n"
        f"```text\n{text}\n```\n::::"
    )
    notebook.cells.insert(1, new_markdown_cell(message, id="chapter-failed"))
    notebook.metadata.pop("widgets", None)
    return notebook


def stage(root: Path = execute.ROOT) -> dict[str, ledger.Chapter]:
    """Wipe and fill ``_build/src``; the chapters that went in."""
    found = chapters(root)
    source, book = root / "_build" / "src", root / "book"
    shutil.rmtree(source, ignore_errors=True)
    (source / "book").mkdir(parents=True)
    for name in ("_config.yml", "_toc.yml"):
        shutil.copy(root / name, source / name)
    for pattern in PAGES:
        for path in sorted(book.glob(pattern)):
            shutil.copy(path, source / "book" / path.name)
    shutil.copytree(book / "assets", source / "book" / "assets")
    for name, chapter in found.items():
        for cell in chapter.notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = cell.source.replace(RUN_TIME_MARK, run_time(chapter.notebook))
        (source / "book" / f"{name}.ipynb").write_text(nbformat.writes(chapter.notebook) + "\n", encoding="utf-8")

    articles, claims = ledger.read(book / "claims.yml")
    table = ledger.rows(claims, found)
    keys = re.findall(r"^@\w+\{([^,\s]+)", (book / "references.bib").read_text(encoding="utf-8"), re.MULTILINE)
    _fill(source / "book" / "claims.md", COUNTS_MARK, ledger.counts(table))
    _fill(source / "book" / "claims.md", LEDGER_MARK, ledger.page(table, articles, found, set(keys)))
    _fill(source / "book" / "api.md", MODULES_MARK, modules(root))
    for page in sorted((source / "book").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        text = VERDICT_MARK.sub(lambda match: ledger.card(match[1], match[2], table, found), text)
        page.write_text(text, encoding="utf-8")
    text = json.dumps(ledger.data(table), indent=1, ensure_ascii=False)
    (source / "claims.json").write_text(text + "\n", encoding="utf-8")
    return found


def run_time(notebook: nbformat.NotebookNode) -> str:
    """How long the run took whose outputs the page shows, and on what; empty for a failed chapter."""
    run = notebook.metadata.get("run_time")
    return f"*Measured run time:* {run['seconds']:.0f} s on one core, device {run['device']}." if run else ""


def modules(root: Path = execute.ROOT) -> str:
    """A section with the documentation of each module of ``lib``."""
    names = sorted(path.stem for path in (root / "lib").glob("*.py") if not path.stem.startswith("_"))
    section = "## lib.{0}\n\n```{{eval-rst}}\n.. automodule:: lib.{0}\n   :members:\n   :ignore-module-all:\n```"
    return "\n\n".join(section.format(name) for name in names)


def _fill(page: Path, mark: str, text: str) -> None:
    content = page.read_text(encoding="utf-8")
    if content.count(mark) != 1:
        sys.exit(f"{page.name} must hold the line {mark} once: the place of the generated part")
    page.write_text(content.replace(mark, text), encoding="utf-8")


# --- the site --------------------------------------------------------------------------------------------------------


def stamp(root: Path = execute.ROOT) -> str:
    """A digest of everything the site is made of: the staged pages, ``lib`` for its documentation, the tools."""
    digest = hashlib.sha256(f"{sys.version_info[:2]} {metadata.version('sphinx')}".encode())
    files = [path for folder in ("_build/src", "lib", "book/tools") for path in sorted((root / folder).rglob("*"))]
    for path in [*files, root / "requirements.txt"]:
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(root)} ".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def build(root: Path = execute.ROOT, *, strict: bool = True) -> bool:
    """Build the staged book; whether ``_build/html`` now shows it."""
    folder, html, stamp_file = root / "_build" / "site", root / "_build" / "html", root / "_build" / "html.stamp"
    inputs = stamp(root)
    if strict and html.joinpath("index.html").exists() and stamp_file.exists() and stamp_file.read_text() == inputs:
        print("site: nothing changed since the last build")
        return True
    stamp_file.unlink(missing_ok=True)
    for stale in (folder, html):
        shutil.rmtree(stale, ignore_errors=True)
    program = str(Path(sys.executable).with_name("jupyter-book"))
    command = [program, "build", "_build/src", "--path-output", "_build/site", "--all", "-n", "--keep-going"]
    # A failed chapter leaves references to its figures open; they must not hide the chapters that ran.
    command += ["-W"] if strict else []
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    result = subprocess.run(command, cwd=root, env=environment, text=True, capture_output=True, check=False)
    output = execute.plain(result.stdout + result.stderr)
    log = root / "_build" / "site.log"
    log.write_text(output, encoding="utf-8")
    built = folder / "_build" / "html"
    if result.returncode != 0 or not built.joinpath("index.html").exists():
        problems = [line for line in output.splitlines() if re.search(r"WARNING|ERROR|CRITICAL|rror:", line)]
        print("\n".join(dict.fromkeys(problems or output.splitlines()[-30:])), file=sys.stderr)
        print(f"site: not built; the whole log is in {log.relative_to(root)}", file=sys.stderr)
        return False
    built.rename(html)
    shutil.rmtree(folder)
    if strict:
        stamp_file.write_text(inputs)
    return True


def main(root: Path = execute.ROOT) -> int:
    failed = sorted(name for name, chapter in stage(root).items() if chapter.failed)
    if not build(root, strict=not failed):
        return 1
    print(f"site: open {root / '_build' / 'html' / 'index.html'}, or run `make serve`")
    if failed:
        print(f"not to be published: {', '.join(failed)} failed, and the site says so", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
