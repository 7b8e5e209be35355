"""The root conftest itself: what ``pytest --nbval`` lets pass, what it finds, and what it leaves behind."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode

ROOT = Path(__file__).parents[1]
FIXTURE = ROOT / "tests" / "fixtures" / "three_cells.ipynb"
STALE = "a copy from an earlier run"


def _load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


hook = _load(ROOT / "conftest.py", "root_conftest")


@dataclass
class Run:
    """One call of pytest: the cells' outcomes by notebook, and the folder of executed copies."""

    folder: Path
    cells: dict[str, list[str]] = field(default_factory=dict)
    output: str = ""

    def executed(self, name: str) -> Path:
        return self.folder / "_build" / "executed" / f"{name}.ipynb"

    def failure(self, name: str) -> Path:
        return self.executed(name).with_suffix(".failed.json")


def _run(folder: Path, *options: str) -> Run:
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-p", "no:cacheprovider", "-q"]
    environment = os.environ | {"LIB_SEED": "7", "LIB_BUDGET": "gpu"}  # the hook must put these right
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(
        [*command, f"--junitxml={report}", *options, *sorted(map(str, (folder / "book").glob("*.ipynb")))],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    run = Run(folder, output=done.stdout + done.stderr)
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        outcome = next((child.tag for child in case if child.tag in {"failure", "error", "skipped"}), "passed")
        notebook = Path(case.attrib["classname"].replace(".ipynb", "")).name.rpartition(".")[2]
        run.cells.setdefault(notebook, []).append(outcome)
    return run


def _project(folder: Path, **changes: Callable[[list[NotebookNode]], None]) -> Path:
    """A folder with the hook and one notebook for each change to the fixture's code cells."""
    (folder / "book" / "tools").mkdir(parents=True)
    (folder / "lib").mkdir()
    for name in ("conftest.py", "pyproject.toml"):  # with pyproject's settings: warnings are errors
        shutil.copy(ROOT / name, folder)
    shutil.copy(ROOT / "book" / "tools" / "execute.py", folder / "book" / "tools")
    for name, change in changes.items():
        notebook = nbformat.read(FIXTURE, as_version=4)
        change([cell for cell in notebook.cells if cell.cell_type == "code"])
        nbformat.write(notebook, folder / "book" / f"{name}.ipynb")
    executed = folder / "_build" / "executed"
    executed.mkdir(parents=True)
    for name in changes:
        (executed / f"{name}.ipynb").write_text(STALE)
        (executed / f"{name}.key").write_text("another key")
    return folder


def _store(cell: NotebookNode, old: str, new: str) -> None:
    """Change a stored output."""
    for output in cell.outputs:
        data = output.get("data", {})
        for holder, key in ((output, "text"), (data, "text/plain"), (data, "text/html")):
            if key in holder:
                holder[key] = holder[key].replace(old, new)
    assert new in json.dumps(cell.outputs)


def _add(cell: NotebookNode, line: str) -> None:
    cell.source = f"{cell.source}\n{line}" if cell.source else line


def _environment(cells: list[NotebookNode]) -> None:
    names = ["LIB_DEVICE", "LIB_BUDGET", "LIB_SEED", "OMP_NUM_THREADS"]
    _add(cells[0], f"import os\nprint(*[os.environ.get(name) for name in {names}])")
    cells[0].outputs[0].text += "cpu cpu None 1\n"


def _changed_numbers(cells: list[NotebookNode]) -> None:
    _store(cells[0], "0.123456", "0.123600")  # relative tolerance 1e-3
    _store(cells[1], "42", "42.001")  # no tolerance
    _store(cells[2], "12.346%", "12.380%")  # in the style of an HTML element


def _numbers_within(cells: list[NotebookNode]) -> None:
    _environment(cells)
    _store(cells[0], "0.123456", "0.123500")
    _store(cells[2], "12.346%", "12.350%")


def _changed_words(cells: list[NotebookNode]) -> None:
    _store(cells[0], "holds", "fails as stated")
    cells[1].metadata.tolerance = {"relative": 0.1}  # misspelt
    _store(cells[2], ">holds<", ">violated<")


def _changed_pictures(cells: list[NotebookNode]) -> None:
    _add(cells[0], 'display({"text/plain": "<Figure>", "image/png": "AAAA"}, raw=True)')
    _add(cells[1], 'display({"image/svg+xml": "<svg></svg>"}, raw=True)')
    cells[2].source = cells[2].source.replace("display(data, raw=True", "dict(data")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All variants in one call: a notebook costs one kernel, a call costs the start of pytest besides."""
    folder = _project(
        tmp_path_factory.mktemp("project"),
        as_stored=lambda cells: None,
        within=_numbers_within,
        numbers=_changed_numbers,
        words=_changed_words,
        pictures=_changed_pictures,
        error=lambda cells: _add(cells[1], 'raise OSError("the disk is full")'),
        part=lambda cells: None,
    )
    return _run(folder, "--deselect", "book/part.ipynb::Cell 2")


@pytest.mark.parametrize(
    ("name", "outcomes"),
    [
        ("as_stored", "passed passed passed"),
        ("within", "passed passed passed"),
        ("numbers", "failure failure failure"),
        ("words", "failure failure failure"),
        ("pictures", "failure failure failure"),
        ("error", "passed failure passed"),
    ],
)
def test_comparison(run: Run, name: str, outcomes: str) -> None:
    assert run.cells[name] == outcomes.split(), run.output


def test_executed_copy_holds_pictures_counts_and_verdict_data(run: Run) -> None:
    notebook = nbformat.read(run.executed("as_stored"), as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == [1, 2, 3]
    assert cells[1].outputs[0].execution_count == 2
    assert cells[2].outputs[0].data["image/png"]
    assert 'src="data:image/png;base64,MC4x' in cells[2].outputs[0].data["text/html"]
    assert cells[2].outputs[0].metadata["verdict"] == {"value": 0.123456}


def test_executed_copy_is_current_for_the_site(run: Run) -> None:
    tool = hook.execute_tool()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIB_DEVICE", "cpu")
        patch.setenv("LIB_BUDGET", "cpu")
        patch.delenv("LIB_SEED", raising=False)
        assert tool.is_current("as_stored", run.folder)


def test_a_mere_difference_still_gives_a_fresh_copy(run: Run) -> None:
    notebook = nbformat.read(run.executed("numbers"), as_version=4)
    assert "0.123456" in notebook.cells[1].outputs[0].text


def test_an_error_leaves_its_record_and_no_copy(run: Run) -> None:
    assert not run.executed("error").exists()
    assert not run.executed("error").with_suffix(".key").exists()
    record = json.loads(run.failure("error").read_text())
    assert record["cell"] == 2
    assert record["error"] == "OSError: the disk is full"
    assert "raise OSError" in record["traceback"]


def test_a_sound_chapter_leaves_no_failure(run: Run) -> None:
    assert not run.failure("as_stored").exists()


def test_a_selection_writes_no_copy_and_leaves_no_stale_one(run: Run) -> None:
    assert run.cells["part"] == ["passed", "passed"], run.output
    assert not run.executed("part").exists()
    assert not run.failure("part").exists()


def test_workers_write_the_chapters_that_they_ran(tmp_path: Path) -> None:
    folder = _project(tmp_path, one=lambda cells: None, two=lambda cells: _add(cells[0], "1 / 0"))
    both = _run(folder, "-n", "2", "--dist", "loadfile")
    assert both.cells == {"one": ["passed"] * 3, "two": ["failure", "passed", "passed"]}, both.output
    assert both.executed("one").exists()
    assert not both.executed("two").exists()
    assert both.failure("two").exists()


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        ("a 1.000 b", "a 1.001 b", True),
        ("a 1.000 b", "a 1.02 b", False),
        ("a 1.000 b", "c 1.000 b", False),
        ("-0.5", "0.5", False),
        ("−0.500", "-0.501", True),
        ("slope -0.0004", "slope  0.0004", True),
        ("1e-05", "1.001e-05", True),
        ("1.23e+04", "12301", True),
        ("1e-05", "1e-04", True),  # both within the absolute tolerance
        ("1e+05", "1e+04", False),
        ("nan", "nan", True),
        ("nan", "1.0", False),
        ("1.0", "nan", False),
        ("inf", "inf", True),
        ("inf", "-inf", False),
        ("inf", "1e308", False),
        ("1e999", "2e999", False),
        ("43.20%", "43.21%", True),
        ("43.20%", "43.20", False),
        ("width:43.20px", "width:43.21px", True),
        ("tensor([1., 2.])", "tensor([1.0001, 2.0000])", True),
        ("1, 2", "1, 2, 3", False),
        ("G05", "G06", False),
        ("float64", "float32", False),
        ("#000100", "#000101", False),
        ("pages 100-200", "pages 100-201", True),
        ("about 5.", "about 5.001.", True),
        ("    1.000\n", "   1.0001\n", True),
        ("holds", "fails as stated", False),
    ],
)
def test_texts_within_a_tolerance(expected: str, got: str, same: bool) -> None:
    assert hook.same_text(expected, got, rel=0.01, abs_=0.001) is same
    assert hook.same_text(got, expected, rel=0.01, abs_=0.001) is same


@pytest.mark.parametrize(("expected", "got"), [("1.0", "1.00"), ("a  b", "a b"), ("-0.0", "0.0")])
def test_texts_are_compared_exactly_without_tolerance(expected: str, got: str) -> None:
    assert not hook.same_text(expected, got, rel=0.0, abs_=0.0)


def test_text_compares_with_its_own_tolerance() -> None:
    text: Any = hook.Text("1.000")
    text.tolerance = {"rel": 0.01, "abs_": 0.0}
    assert text == "1.001"
    assert text != "1.1"
    assert not text == 1.0  # noqa: SIM201
