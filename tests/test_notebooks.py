"""The chapters keep the rules of ``structure.py``, and each of those rules finds the fault that it is there for."""

import copy
import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest
import structure
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ROOT = Path(__file__).parents[1]
CHAPTERS = structure.chapters(ROOT)


@cache
def execute_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("execute", ROOT / "book" / "tools" / "execute.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def book() -> structure.Book:
    return structure.Book.read(ROOT)


# --- the book ---------------------------------------------------------------------------------------------------------


def test_the_book_has_chapters() -> None:
    assert CHAPTERS, "no notebook in book/: the rules below were applied to nothing"


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapter_keeps_the_rules(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    found = structure.violations(path.stem, notebook, book(), committed_form=execute_tool().committed_form)
    assert not found, "\n".join(["", *found])


def test_book_keeps_the_rules() -> None:
    found = structure.book_violations(book())
    assert not found, "\n".join(["", *found])


def test_exceptions_are_those_of_chapters_that_exist() -> None:
    assert set(structure.NOT_COMPARED) <= {path.stem for path in CHAPTERS}


# --- each rule, broken once -------------------------------------------------------------------------------------------

VERDICT = {"id": "T01", "label": "sum", "word": "holds"}
FILLER = "\n\n".join(" ".join(["plain words about the subject of the chapter"] * 20) for _ in range(8))
ALT = "A straight line that falls from the upper left to the lower right corner"

OPENING = f"""# Toys

{FILLER}

(toy-law)=
## The law of toys

```{{prf:theorem}} Sum (T01)
:label: T01

One and one are

$$1 + 1 = 2$$ (eq-sum)

Source: {{cite:t}}`toy2020`.
```

T02 is a thesis. See {{prf:ref}}`T01`, {{eq}}`eq-sum`, {{numref}}`the figure <fig-line>`, [the law](toy-law),
[the law](#toy-law), [the top](#toys), [notation](notation.md), [a symbol](notation.md#symbols), {{doc}}`notation`,
[a page](https://example.org/page#part) and {{cite:p}}`toy2020, play2021`.

````
[an example of a link](nowhere.md), which is none, and {{cite}}`nobody`
````
"""

EXERCISES = """## Exercises

```{exercise} One
:label: ex-one

Add.
```

````{solution} ex-one
:label: sol-one
:class: dropdown

Two.
````

```{exercise-start} Two
:label: ex-two
```

Print two.

```{exercise-end}
```

```{exercise} Three
:label: ex-three

Subtract.
```

:::{solution} ex-three
:class: dropdown

None is left.
:::

```{solution-start} ex-two
:class: dropdown
```
"""

BEFORE, SETUP, CHECK, FIGURE, AFTER, SOLUTION, END = range(7)


def _code(source: str, number: int, *outputs: NotebookNode, **metadata: Any) -> NotebookNode:
    return new_code_cell(source, execution_count=number, outputs=list(outputs), metadata=metadata)


def _print(text: str) -> NotebookNode:
    return new_output("stream", name="stdout", text=text)


def _show(text: str, **data: str) -> NotebookNode:
    return new_output("display_data", data={"text/plain": text, **data})


def _sound() -> NotebookNode:
    card = _show("T01 sum: holds", **{"text/html": "<div>T01 sum: holds</div>"})
    card.metadata["verdict"] = dict(VERDICT)
    return new_notebook(
        metadata={"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        cells=[
            new_markdown_cell(OPENING),
            _code(
                "import torch\n\nfrom lib import compute, figures, verdicts\n\nfigures.use_style()\ncompute.setup(0)",
                1,
                _print("device cpu | verdicts in float64 | CPU budget | seed 0\n"),
            ),
            _code('verdicts.check("T01", "sum", stated=2.0, exact=2.0, tolerance=0.0)', 2, card),
            _code(
                "plt.plot([2, 1])\nplt.show()",
                3,
                _show("<Figure size 640x480 with 1 Axes>"),
                tags=["hide-input"],
                tolerance={"rel": 1e-3},
                mystnb={"image": {"alt": ALT}, "figure": {"caption": "A line.", "name": "fig-line"}},
            ),
            new_markdown_cell(EXERCISES),
            _code("print(2)", 4, _print("2\n")),
            new_markdown_cell("```{solution-end}\n```"),
        ],
    )


def _toy_book(notebook: NotebookNode) -> structure.Book:
    row = {"chapter": "toys", "kind": "theorem", "checks": {"sum": {"margin": 0.1, "reason": "small"}}}
    thesis = {"chapter": "toys", "kind": "thesis", "treated_in": "toys", "checks": {}}
    other = {"chapter": "dolls", "kind": "claim", "checks": {"hair": {"margin": 0.1, "reason": "long"}}}
    claims: dict[str, dict[str, Any]] = {"T01": row, "T02": thesis, "T03": other}
    toys = structure.Book(claims=claims, citations={"toy2020", "play2021"})
    toys.add("notation.md", "# Notation\n\n## Symbols\n\nSee [the chapter](toys.ipynb).\n")
    toys.add_notebook("toys.ipynb", notebook)
    return toys


def _violations(notebook: NotebookNode, toys: structure.Book | None = None) -> list[str]:
    committed_form = execute_tool().committed_form
    found = structure.violations("toys", notebook, toys or _toy_book(notebook), committed_form=committed_form)
    return found + structure.book_violations(toys or _toy_book(notebook))


def test_sound_chapter_has_no_violation() -> None:
    assert _violations(_sound()) == []


def _replace(index: int, old: str, new: str) -> Callable[[NotebookNode], None]:
    def change(notebook: NotebookNode) -> None:
        assert old in notebook.cells[index].source
        notebook.cells[index].source = notebook.cells[index].source.replace(old, new)

    return change


def _metadata(index: int, **new: Any) -> Callable[[NotebookNode], None]:
    return lambda notebook: notebook.cells[index].metadata.update(new)


def _output(index: int, *outputs: NotebookNode, keep: bool = True) -> Callable[[NotebookNode], None]:
    def change(notebook: NotebookNode) -> None:
        notebook.cells[index].outputs = [*(notebook.cells[index].outputs if keep else []), *outputs]

    return change


def _many_cells(notebook: NotebookNode) -> None:
    notebook.cells += [_code("1", number, _print("x\n")) for number in range(5, 32)]


def _word(word: str) -> Callable[[NotebookNode], None]:
    return lambda notebook: notebook.cells[CHECK].outputs[0].metadata.verdict.update(word=word)


def _exception(notebook: NotebookNode) -> None:
    error = new_output("error", ename="ValueError", evalue="no", traceback=["ValueError: no"])
    notebook.cells[SOLUTION].outputs = [error]


def _alt(text: str) -> Callable[[NotebookNode], None]:
    return lambda notebook: notebook.cells[FIGURE].metadata.mystnb.image.update(alt=text)


def _second_figure(notebook: NotebookNode) -> None:
    notebook.cells[FIGURE].outputs.append(_show("<Figure size 640x480 with 2 Axes>"))


UNRUN = "execution counts are [1, 2, 3, None], not 1..4: run `make refresh`"
FORM = "the notebook is not in its committed form: run `make refresh`"
ALT_RULE = "cell 3: figure without alt text of 40 characters (mystnb.image.alt)"
SETUP_RULE = "cell 1: must be the standard set-up: imports, then compute.setup(seed)"
PRINT_RULE = "cell 1: must print the one line of compute.setup, from a run on the CPU in the CPU's budget"
NO_RUN = "check T01 'sum', of this chapter in claims.yml, ran 0 times"
PICTURE = {"image/png": "aGVsbG8="}

BROKEN: dict[str, tuple[Callable[[NotebookNode], Any], list[str]]] = {
    "no count": (lambda nb: nb.cells[SOLUTION].update(execution_count=None), [UNRUN]),
    "no verdict": (
        _output(CHECK, keep=False),
        ["cell 2: verdict cell without a stored verdict", NO_RUN],
    ),
    "verdict as text only": (
        _output(CHECK, _print("T01 sum: holds\n"), keep=False),
        ["cell 2: verdict cell without a stored verdict", NO_RUN],
    ),
    "undecided": (_word("undecided"), ["cell 2: T01 'sum' is undecided: the experiment is too weak"]),
    "unregistered check": (
        lambda nb: nb.cells[CHECK].outputs[0].metadata.verdict.update(label="product"),
        ["check T01 'product', not of this chapter in claims.yml, ran 1 times", NO_RUN],
    ),
    "verdict not compared": (
        _metadata(CHECK, tags=["nbval-ignore-output"]),
        ["1 cells are not compared; 0 are agreed in tests/structure.py", "cell 2: verdict cell that is not compared"],
    ),
    "not compared": (
        _metadata(SOLUTION, tags=["nbval-ignore-output"]),
        ["1 cells are not compared; 0 are agreed in tests/structure.py"],
    ),
    "unknown tag": (_metadata(SOLUTION, tags=["hide_input"]), ["cell 4: unknown tag hide_input"]),
    "nbval skip": (_metadata(SOLUTION, tags=["nbval-skip"]), ["cell 4: unknown tag nbval-skip"]),
    "marker in comment": (
        _replace(SOLUTION, "print", "# NBVAL_IGNORE_OUTPUT\nprint"),
        ["cell 4: an nbval marker in a comment; use a cell tag"],
    ),
    "tolerance key": (
        _metadata(SOLUTION, tolerance={"relative": 0.1}),
        ["cell 4: tolerance must have the keys rel and abs, got {'relative': 0.1}"],
    ),
    "tolerance value": (
        _metadata(SOLUTION, tolerance={"rel": -1.0}),
        ["cell 4: a tolerance must be a number from 0, got {'rel': -1.0}"],
    ),
    "wide tolerance": (
        _metadata(SOLUTION, tolerance={"rel": 0.5}),
        ["cell 4: a relative tolerance of 0.5 compares nothing"],
    ),
    "no alt": (lambda nb: nb.cells[FIGURE].metadata.mystnb.pop("image"), [ALT_RULE]),
    "alt is a path": (_alt("a/" * 30), [ALT_RULE]),
    "short alt": (_alt("A line"), [ALT_RULE]),
    "no caption": (
        lambda nb: nb.cells[FIGURE].metadata.mystnb.figure.pop("caption"),
        ["cell 3: figure without caption (mystnb.figure.caption)"],
    ),
    "alt without figure": (
        _metadata(SOLUTION, mystnb={"image": {"alt": ALT}}),
        ["cell 4: alt text or caption, and no figure"],
    ),
    "two figures": (_second_figure, ["cell 3: 2 figures; one is allowed"]),
    "HTML picture without alt": (
        _output(SOLUTION, _show("x", **{"text/html": '<img src="data:image/png;base64,">'})),
        ["cell 4: picture in HTML without alt text"],
    ),
    "stored picture": (_output(SOLUTION, _show("x", **PICTURE)), ["cell 4: stored picture", FORM]),
    "stored picture in HTML": (
        _output(SOLUTION, _show("x", **{"text/html": '<img alt="a" src="data:image/png;base64,aGVsbG8=">'})),
        ["cell 4: stored picture", FORM],
    ),
    "stored widget": (
        _output(SOLUTION, _show("x", **{"application/vnd.jupyter.widget-view+json": "model"})),
        ["cell 4: stored widget view", FORM],
    ),
    "not committed form": (_metadata(SOLUTION, collapsed=True), [FORM]),
    "progress bar": (
        _output(SOLUTION, _print(" 50%|█████     | 5/10 [00:01<00:01, 4.9it/s]\n"), keep=False),
        ["cell 4: progress bar in the stored output"],
    ),
    "carriage return": (_output(SOLUTION, _print("1\r2\r"), keep=False), ["cell 4: progress bar in the stored output"]),
    "stderr": (
        _output(SOLUTION, new_output("stream", name="stderr", text="a warning\n")),
        ["cell 4: noise on stderr in the stored output"],
    ),
    "exception": (
        _exception,
        ["cell 4: stored exception without the tag raises-exception, or the tag without exception"],
    ),
    "tag without exception": (
        _metadata(SOLUTION, tags=["raises-exception"]),
        ["cell 4: stored exception without the tag raises-exception, or the tag without exception"],
    ),
    "long cell": (
        lambda nb: nb.cells[SOLUTION].update(source="\n".join(["print(2)"] * 26)),
        ["cell 4: 26 lines of code; 25 are allowed"],
    ),
    "many cells": (_many_cells, ["31 code cells; 30 are allowed"]),
    "set-up": (_replace(SETUP, "compute.setup(0)", "compute.setup(seed)"), [SETUP_RULE]),
    "code in set-up": (_replace(SETUP, "figures.use_style()", "x = 1"), [SETUP_RULE]),
    "set-up on a GPU": (
        _output(SETUP, _print("device cuda | verdicts in float64 | GPU budget | seed 0\n"), keep=False),
        [PRINT_RULE],
    ),
    "set-up prints nothing": (_output(SETUP, keep=False), [PRINT_RULE]),
    "few words": (_replace(BEFORE, FILLER, "short"), ["34 words of prose; 1000 to 2500 are allowed"]),
    "many words": (_replace(BEFORE, FILLER, "word " * 2500), ["2533 words of prose; 1000 to 2500 are allowed"]),
    "two exercises": (
        _replace(AFTER, EXERCISES[EXERCISES.index("```{exercise} Three") : EXERCISES.index("```{solution-start")], ""),
        ["2 exercises; at least 3 are needed"],
    ),
    "no solution": (
        _replace(AFTER, EXERCISES[EXERCISES.index(":::{solution}") : EXERCISES.index("```{solution-start")], ""),
        ["exercise ex-three without solution"],
    ),
    "solution of nothing": (
        _replace(AFTER, ":::{solution} ex-three", ":::{solution} ex-tree"),
        ["exercise ex-three without solution", "solution of ex-tree, which is no exercise of the chapter"],
    ),
    "open solution": (
        _replace(AFTER, ":label: sol-one\n:class: dropdown", ":label: sol-one"),
        ["the solution of ex-one is not folded (:class: dropdown)"],
    ),
    "exercise without label": (
        _replace(AFTER, ":label: ex-one\n", ""),
        ["exercise 'One' without label", "solution of ex-one, which is no exercise of the chapter"],
    ),
    "no box": (
        _replace(BEFORE, "{prf:theorem} Sum", "{note} Sum"),
        ["claim T01 without a box {prf:...} labelled T01"],
    ),
    "no source": (_replace(BEFORE, "Source: {cite:t}`toy2020`.", ""), ["claim T01: its box names no source"]),
    "unnamed claim": (_replace(BEFORE, "Sum (T01)", "Sum"), ["claim T01 is not named in the text"]),
    "unnamed thesis": (_replace(BEFORE, "T02 is a thesis", "This is a thesis"), ["claim T02 is not named in the text"]),
    "label twice": (_replace(AFTER, ":label: sol-one", ":label: toy-law"), ["label toy-law is used 2 times"]),
    "dead box": (_replace(BEFORE, "{prf:ref}`T01`", "{prf:ref}`T04`"), ["dead reference to T04"]),
    "dead equation": (_replace(BEFORE, "{eq}`eq-sum`", "{eq}`eq-product`"), ["dead reference to eq-product"]),
    "dead figure": (_replace(BEFORE, "<fig-line>", "<fig-curve>"), ["dead reference to fig-curve"]),
    "dead label": (_replace(BEFORE, "(toy-law),", "(toy-rule),"), ["dead link to toy-rule"]),
    "dead anchor": (_replace(BEFORE, "(#toys)", "(#dolls)"), ["dead link to #dolls"]),
    "dead file": (_replace(BEFORE, "(notation.md)", "(annotation.md)"), ["dead link to annotation.md"]),
    "dead part": (_replace(BEFORE, "notation.md#symbols", "notation.md#signs"), ["dead link to notation.md#signs"]),
    "dead document": (_replace(BEFORE, "{doc}`notation`", "{doc}`annotation`"), ["dead link to annotation"]),
    "dead citation": (
        _replace(BEFORE, "toy2020, play2021", "toy2020, play2022"),
        ["citation play2022 does not resolve"],
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_rule_finds_its_fault_and_no_other(fault: str) -> None:
    change, expected = BROKEN[fault]
    notebook = _sound()
    change(notebook)
    assert _violations(notebook) == expected


def test_claim_without_check_is_found() -> None:
    notebook = _sound()
    toys = _toy_book(notebook)
    toys.claims["T01"]["checks"] = {}
    assert _violations(notebook, toys) == [
        "check T01 'sum', not of this chapter in claims.yml, ran 1 times",
        "claim T01 has no check in claims.yml",
    ]


def test_check_for_another_chapter_runs_there() -> None:
    notebook = _sound()
    toys = _toy_book(notebook)
    toys.claims["T03"]["checks"]["hair"]["chapter"] = "toys"
    assert _violations(notebook, toys) == ["check T03 'hair', of this chapter in claims.yml, ran 0 times"]


def test_dead_link_of_another_page_is_found() -> None:
    notebook = _sound()
    toys = _toy_book(notebook)
    toys.add("index.md", "[gone](gone.md) and {cite}`nobody`")
    assert _violations(notebook, toys) == [
        "index.md: dead link to gone.md",
        "index.md: citation nobody does not resolve",
    ]


def test_violations_does_not_change_the_notebook() -> None:
    notebook = _sound()
    before = copy.deepcopy(notebook)
    _violations(notebook)
    assert notebook == before


def test_words_are_those_that_a_reader_reads() -> None:
    text = "Two words $x + y$ and `code` and [three](link.md).\n\n```python\nno = words\n```\n\n$$\nnone\n$$"
    assert structure.count_words(new_notebook(cells=[new_markdown_cell(text)])) == 5
    assert structure.count_words(new_notebook(cells=[new_code_cell("no words here")])) == 0
    solved = "Read this.\n\n```{solution} ex\n:class: dropdown\n\nNot this.\n```\n\nAnd this."
    assert structure.count_words(new_notebook(cells=[new_markdown_cell(solved)])) == 4
    gates = ["Read.\n\n```{solution-start} ex\n```\n\nNot this.", "Nor this.", "```{solution-end}\n```\n\nAgain."]
    assert structure.count_words(new_notebook(cells=[new_markdown_cell(gate) for gate in gates])) == 2


def test_reading_order(tmp_path: Path) -> None:
    (tmp_path / "_toc.yml").write_text(
        "root: book/index\nparts:\n- chapters:\n  - file: book/one\n  - file: book/two.md\n"
    )
    assert structure.read_toc(tmp_path / "_toc.yml") == ["index", "one", "two"]
