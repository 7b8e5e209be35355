"""The house: which module of ``lib`` may import which, one name per subject, and nothing kept for later."""

import ast
from functools import cache
from pathlib import Path

import nbformat
import pytest
import structure
from imports import imported

ROOT = Path(__file__).parents[1]
BASE = {"compute", "validation"}

# Each module with the modules that it may import. A new module needs a line here and its place in CONTRIBUTING.md.
FLOORS: dict[str, dict[str, set[str]]] = {
    "0": {"validation": set(), "compute": {"validation"}},
    "1": {
        "data": BASE,
        "neighbours": BASE,
        "statistics": BASE,
        "one_dimensional": BASE,
        "manifolds": BASE | {"one_dimensional"},
        "models": BASE,
        "training": BASE | {"models"},
        "expectations": BASE | {"one_dimensional", "manifolds"},
        "asymptotics": BASE | {"one_dimensional", "manifolds"},
        "lloyd": BASE | {"neighbours"},
        "quantization": BASE | {"one_dimensional", "manifolds", "neighbours", "lloyd"},
        "diffusion": BASE | {"one_dimensional", "manifolds", "models", "training"},
    },
    "2": {"representation_gap": set(), "intrinsic_dimension": set()},
    "beside": {"verdicts": BASE, "figures": BASE, "explorer": BASE | {"figures"}},
}
for chapter in FLOORS["2"].values():
    chapter |= {*FLOORS["0"], *FLOORS["1"]}
ALLOWED = {module: allowed for floor in FLOORS.values() for module, allowed in floor.items()}
CHAPTERS = sorted(FLOORS["2"])
MODULES = sorted(path.stem for path in (ROOT / "lib").glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_from_floors_below(module: str) -> None:
    assert module in ALLOWED, f"lib/{module}.py is on no floor: give it its place in FLOORS and in CONTRIBUTING.md"
    wrong = imported((ROOT / "lib" / f"{module}.py").read_text("utf8")) - ALLOWED[module]
    assert not wrong, f"lib/{module}.py may not import {', '.join(sorted(wrong))}"


def test_every_module_of_the_table_exists() -> None:
    assert set(ALLOWED) == set(MODULES)


def test_package_itself_imports_nothing() -> None:
    assert not imported((ROOT / "lib" / "__init__.py").read_text("utf8"))


def test_table_has_no_cycle() -> None:
    for module, allowed in ALLOWED.items():
        assert not any(module in ALLOWED[other] for other in allowed), module


@pytest.mark.parametrize(
    ("source", "modules"),
    [
        ("from lib import data, models as m", {"data", "models"}),
        ("from lib.data import digits", {"data"}),
        ("import lib.data as d", {"data"}),
        ("def f():\n    from lib.data import digits", {"data"}),
        ("import library\nfrom torch import nn", set()),
    ],
)
def test_imports_are_seen(source: str, modules: set[str]) -> None:
    assert imported(source) == modules


# --- one name per subject ---------------------------------------------------------------------------------------------


def test_chapters_are_the_notebooks() -> None:
    assert [path.stem for path in structure.chapters(ROOT)] == CHAPTERS


@pytest.mark.parametrize("name", sorted({*CHAPTERS, *(path.stem for path in structure.chapters(ROOT))}))
def test_chapter_has_one_name_in_three_places(name: str) -> None:
    assert (ROOT / "book" / f"{name}.ipynb").exists()
    assert (ROOT / "lib" / f"{name}.py").exists()
    assert (ROOT / "tests" / f"test_{name}.py").exists()
    assert name in structure.read_toc(ROOT / "_toc.yml")


# --- nothing is kept for later ----------------------------------------------------------------------------------------


def uses(node: ast.AST) -> set[str]:
    """The names that a piece of code reads; ``module.name`` counts as ``name``."""
    names = {sub.id for sub in ast.walk(node) if isinstance(sub, ast.Name)}
    return names | {sub.attr for sub in ast.walk(node) if isinstance(sub, ast.Attribute)}


def unused(modules: dict[str, str], code: list[str]) -> list[str]:
    """Public functions and classes, as ``module.name``, that no chapter's code reaches, be it through others."""
    definitions: dict[str, set[str]] = {}
    public, reached = [], set()
    for module, source in modules.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                definitions.setdefault(node.name, set()).update(uses(node) - {node.name})
                if not node.name.startswith("_"):
                    public.append((module, node.name))
            elif not isinstance(node, ast.Import | ast.ImportFrom):
                # Constants and the module's own statements run with the import.
                reached |= uses(node)
    for source in code:
        reached |= uses(ast.parse(source))
    waiting = list(reached)
    while waiting:
        new = definitions.get(waiting.pop(), set()) - reached
        reached |= new
        waiting += new
    return list(dict.fromkeys(f"{module}.{name}" for module, name in public if name not in reached))


@cache
def users() -> list[str]:
    """What the reader sees, and the tools that build it."""
    notebooks = [nbformat.read(path, as_version=4) for path in structure.chapters(ROOT)]
    code = [cell.source for notebook in notebooks for cell in structure.code_cells(notebook)]
    return code + [path.read_text("utf8") for path in sorted((ROOT / "book" / "tools").glob("*.py"))]


def test_nothing_is_kept_for_later() -> None:
    modules = {module: (ROOT / "lib" / f"{module}.py").read_text("utf8") for module in MODULES}
    found = unused(modules, users())
    assert not found, f"shown in no chapter and used by nothing that is: {', '.join(found)}"


def test_unused_is_found_through_others() -> None:
    first = "LIMIT = constant()\ndef constant(): ...\ndef shown(): inner()\ndef inner(): ...\ndef later(): later()\n"
    second = "class Kept: ...\ndef _private(): Kept()\nclass Unkept: ...\ndef outer(): _private(); Unkept()\n"
    modules = {"first": first, "second": second}
    assert unused(modules, ["first.shown(1)"]) == ["first.later", "second.Kept", "second.Unkept", "second.outer"]
    assert unused(modules, ["from second import outer", "shown(outer)"]) == ["first.later"]
    assert unused(modules, []) == [
        "first.shown",
        "first.inner",
        "first.later",
        "second.Kept",
        "second.Unkept",
        "second.outer",
    ]
