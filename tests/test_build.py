"""The tools that execute, stage and build the book, tried on a small book of their own in a temporary folder."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "tools"))

import execute  # noqa: E402
import ledger  # noqa: E402
import stage  # noqa: E402

CLAIMS = """
articles:
  T: {title: Toys}
claims:
  - {id: T01, statement: "One and one are $1 + 1 = 2$.", article: T, section: "1", kind: theorem, chapter: alpha,
     checks: {sum: {margin: 1.0e-12, reason: rounding}}}
  - {id: T02, statement: Both ways., article: T, section: "1", kind: claim, chapter: alpha,
     checks: {first: {margin: 0.1, reason: r}, second: {margin: 0.1, reason: r}}}
  - {id: T03, statement: It breaks., article: T, section: "2", kind: claim, chapter: beta,
     checks: {only: {margin: 0.1, reason: r}}}
  - {id: T04, statement: Later., article: T, section: "2", kind: claim, chapter: gamma,
     checks: {only: {margin: 0.1, reason: r}}}
  - {id: T05, statement: Also later., article: T, section: "3", kind: claim, chapter: alpha, checks: {}}
  - {id: T06, statement: A word., article: T, section: "3", kind: definition, chapter: alpha, checks: {},
     treated_in: beta, source: perera2026gap}
"""

TOC = """
format: jb-book
root: book/index
parts:
  - caption: Chapters
    numbered: true
    chapters: [{file: book/alpha}, {file: book/beta}]
  - caption: Reference
    chapters: [{file: book/claims}, {file: book/api}, {file: book/bibliography}]
"""

BOX = """# Alpha of *toys*

```{prf:theorem} Toys
:label: T01

$$1 + 1 = 2$$

Source: {cite:t}`perera2026gap`.
```
"""

VERDICTS = """
from IPython.display import HTML, display
for id, label, word in [("T01", "sum", "holds"), ("T02", "first", "holds"), ("T02", "second", "fails as stated")]:
    record = {"id": id, "label": label, "word": word, "text": {"stated": "2 < 3", "measured": "2.0"}}
    display(HTML("<div class='verdict'>card</div>"), metadata={"verdict": record})
"""

FIGURE = """
import matplotlib.pyplot as plt
plt.plot([1, 2], [2, 1])
plt.show()
"""


def code(source: str, **metadata: Any) -> nbformat.NotebookNode:
    return new_code_cell(source.strip(), metadata=metadata)


def alpha() -> nbformat.NotebookNode:
    figure = {"image": {"alt": "A falling line"}, "figure": {"caption": "A line.", "name": "fig-line"}}
    cells = [
        new_markdown_cell(BOX),
        code(VERDICTS),
        code(FIGURE, mystnb=figure),
        new_markdown_cell(
            "See {numref}`fig-line` and {prf:ref}`T01`.\n\n```{exercise-start}\n:label: ex-a\n```\n\nAdd."
        ),
        code("1 + 1"),
        new_markdown_cell("```{exercise-end}\n```\n\n```{solution-start} ex-a\n:label: sol-a\n:class: dropdown\n```"),
        code("2"),
        new_markdown_cell("```{solution-end}\n```"),
    ]
    return new_notebook(cells=cells)


def beta(source: str = "print('fine')") -> nbformat.NotebookNode:
    return new_notebook(cells=[new_markdown_cell("# Beta\n\nSee {numref}`fig-line`."), code("x = 1"), code(source)])


def save(root: Path, **notebooks: nbformat.NotebookNode) -> None:
    for name, notebook in notebooks.items():
        (root / "book" / f"{name}.ipynb").write_text(nbformat.writes(notebook))


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LIB_DEVICE", "LIB_BUDGET", "LIB_SEED", "LIB_CLAIMS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A root with two chapters, a tiny ``lib`` and this book's own configuration, pages and assets."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "sums.py").write_text('"""Sums."""\n')
    (tmp_path / "book").mkdir()
    shutil.copytree(ROOT / "book" / "assets", tmp_path / "book" / "assets")
    for name in ("claims.md", "api.md", "bibliography.md", "references.bib"):
        shutil.copy(ROOT / "book" / name, tmp_path / "book" / name)
    shutil.copy(ROOT / "_config.yml", tmp_path / "_config.yml")
    (tmp_path / "_toc.yml").write_text(TOC)
    (tmp_path / "book" / "index.md").write_text("# Toys\n\n<!-- verdict: T02 | second -->\n")
    (tmp_path / "book" / "claims.yml").write_text(CLAIMS)
    (tmp_path / "requirements.txt").write_text("torch\n")
    save(tmp_path, alpha=alpha(), beta=beta())
    return tmp_path


# --- the key of an executed copy -------------------------------------------------------------------------------------


def key(root: Path) -> str:
    return execute.execution_key(root / "book" / "beta.ipynb", root)


def test_the_key_covers_everything_a_chapter_reads(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [key(book)]

    def changed() -> None:
        keys.append(key(book))
        assert len(set(keys)) == len(keys)

    save(book, beta=beta("print('other')"))
    changed()
    notebook = beta("print('other')")
    notebook.cells[1].metadata["tags"] = ["hide-input"]
    save(book, beta=notebook)
    changed()
    (book / "lib" / "sums.py").write_text('"""Other sums."""\n')
    changed()
    (book / "lib" / "table.csv").write_text("1,2\n")
    changed()
    (book / "book" / "claims.yml").write_text(CLAIMS.replace("0.1", "0.2"))
    changed()
    (book / "requirements.txt").write_text("torch==2\n")
    changed()
    (book / "book" / "other.yml").write_text(CLAIMS)
    monkeypatch.setenv("LIB_CLAIMS", "other.yml")  # relative to the chapter, as in its kernel
    changed()
    (book / "book" / "other.yml").write_text(CLAIMS.replace("0.1", "0.3"))
    changed()
    monkeypatch.setenv("LIB_SEED", "7")
    changed()
    monkeypatch.setenv("LIB_BUDGET", "gpu")
    changed()
    monkeypatch.setattr(execute.data, "data_digest", lambda: "another copy of the data")
    changed()


def test_the_key_ignores_stored_outputs_and_byte_code(book: Path) -> None:
    before = key(book)
    (book / "lib" / "__pycache__").mkdir()
    (book / "lib" / "__pycache__" / "sums.pyc").write_bytes(b"0")
    notebook = beta()
    ids = [cell.id for cell in nbformat.read(book / "book" / "beta.ipynb", as_version=4).cells]
    for cell, id_ in zip(notebook.cells, ids, strict=True):
        cell.id = id_
    notebook.cells[1].outputs = [new_output("stream", name="stdout", text="stored")]
    notebook.cells[1].execution_count = 5
    notebook.metadata["language_info"] = {"name": "python", "version": "3.13.1"}
    save(book, beta=notebook)
    assert key(book) == before


@pytest.mark.filterwarnings("ignore::nbformat.warnings.MissingIDFieldWarning")
def test_the_key_of_a_notebook_without_ids_is_one(book: Path) -> None:
    notebook = beta()
    for cell in notebook.cells:
        del cell["id"]
    (book / "book" / "beta.ipynb").write_text(json.dumps(notebook))
    assert key(book) == key(book)


def test_the_automatic_device_and_the_same_device_by_name_share_a_key(
    book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = execute.compute.device()
    automatic = key(book)
    monkeypatch.setenv("LIB_DEVICE", str(device))
    monkeypatch.setenv("LIB_BUDGET", execute.compute.budget(cpu="cpu", gpu="gpu"))
    assert key(book) == automatic
    monkeypatch.setattr(execute.compute, "device", lambda: "another device")
    assert key(book) != automatic


# --- executing -------------------------------------------------------------------------------------------------------


def test_a_failing_chapter_is_named_and_leaves_the_others(book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(book, beta=beta("# about to fail\nraise ValueError('no such ball')"))
    (book / "_build" / "executed").mkdir(parents=True)
    (book / "_build" / "executed" / "gone.ipynb").write_text("of a chapter that was renamed")
    assert execute.main([], book) == 1
    printed = capsys.readouterr()
    assert "beta, cell 2: # about to fail\n    ValueError: no such ball" in printed.err
    assert "1 executed, 0 current, 1 failed" in printed.out

    executed = book / "_build" / "executed"
    assert sorted(path.name for path in executed.iterdir()) == [
        *("alpha.ipynb", "alpha.key", "beta.failed.json", "timings.json"),
    ]
    assert execute.is_current("alpha", book)
    assert not execute.is_current("beta", book)
    record = execute.failure("beta", book)
    assert record is not None
    assert (record["cell"], record["error"]) == (2, "ValueError: no such ball")
    assert json.loads((executed / "timings.json").read_text()).keys() == {"alpha"}

    # Mended: the record is stale at once, and only this chapter runs again.
    save(book, beta=beta())
    assert execute.failure("beta", book) is None
    assert execute.main([], book) == 0
    assert "1 executed, 1 current, 0 failed" in capsys.readouterr().out
    assert execute.main([], book) == 0
    assert "0 executed, 2 current, 0 failed" in capsys.readouterr().out


def test_a_stale_copy_is_gone_before_its_chapter_runs_and_cannot_be_staged(book: Path) -> None:
    for name in ("alpha", "beta"):
        path = book / "book" / f"{name}.ipynb"
        execute.publish(nbformat.read(path, as_version=4), name, execute.execution_key(path, book), book, seconds=1.0)
    assert stage.chapters(book).keys() == {"alpha", "beta"}
    (book / "lib" / "sums.py").write_text('"""Changed."""\n')
    with pytest.raises(SystemExit, match="not executed on today's sources: alpha, beta"):
        stage.chapters(book)

    save(book, beta=beta("import os; os._exit(3)"))  # a kernel that dies leaves no exception to catch
    assert execute.run(book / "book" / "beta.ipynb", book) is None
    assert not (book / "_build" / "executed" / "beta.ipynb").exists()
    record = execute.failure("beta", book)
    assert record is not None
    assert record["cell"] == 2
    assert "DeadKernelError" in record["error"]


def test_an_unknown_chapter_is_refused_with_the_names_there_are(book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        execute.main(["delta"], book)
    assert "no chapter named delta; there are: alpha, beta" in capsys.readouterr().err


@pytest.mark.bad_input
@pytest.mark.parametrize("workers", ["0", "-1"])
def test_a_run_without_a_worker_is_refused(book: Path, workers: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        execute.main(["--workers", workers], book)
    assert "--workers must be at least 1" in capsys.readouterr().err


def test_a_chapter_named_twice_runs_once(book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute.main(["beta", "beta"], book) == 0
    assert capsys.readouterr().out.endswith("chapters: 1 executed, 0 current, 0 failed\n")


def test_refresh_writes_the_committed_form_of_the_cpu_run(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    show = "import os; print(os.environ['LIB_DEVICE'], os.environ['LIB_BUDGET'], os.environ.get('LIB_SEED'))"
    save(book, beta=beta(show))
    monkeypatch.setenv("LIB_SEED", "3")
    monkeypatch.setenv("LIB_DEVICE", "cpu")  # so that monkeypatch takes back what main() sets
    monkeypatch.setenv("LIB_BUDGET", "gpu")
    assert execute.main(["--refresh", "beta"], book) == 0
    text = (book / "book" / "beta.ipynb").read_text()
    notebook = nbformat.reads(text, as_version=4)
    assert notebook.cells[2].outputs[0].text == "cpu cpu None\n"
    assert [cell.get("execution_count") for cell in notebook.cells] == [None, 1, 2]
    assert text == execute.committed_text(notebook)
    assert execute.is_current("beta", book)  # what refresh executed need not run again


# --- the committed form ----------------------------------------------------------------------------------------------


def noisy() -> nbformat.NotebookNode:
    page = '<img alt="a" src="data:image/png;base64,iVBORw0KGgo="><b>text</b><svg id="x">\n<path/></svg>'
    data = {"text/plain": "<Figure>", "text/html": page, "image/png": "iVBORw0KGgo=", "image/svg+xml": "<svg/>"}
    data["application/vnd.jupyter.widget-view+json"] = {"model_id": "1"}
    cell = code("1 / 0")
    cell.execution_count = 1
    cell.metadata["execution"] = {"iopub.status.busy": "2026-01-01"}
    cell.metadata["tolerance"] = {"rel": 1e-3}
    cell.outputs = [
        new_output("stream", name="stdout", text="one\n"),
        new_output("stream", name="stdout", text="two\n"),
        new_output("stream", name="stderr", text="three\n"),
        new_output("display_data", data, metadata={"image/png": {"width": 3}, "verdict": {"id": "T01"}}),
        new_output("error", ename="ZeroDivisionError", evalue="division by zero", traceback=["/home/me/x.py"]),
    ]
    metadata = {"widgets": {"state": {}}, "language_info": {"name": "python", "version": "3.11.7"}}
    metadata["kernelspec"] = {"name": "my-env", "display_name": "mine"}
    return new_notebook(cells=[cell], metadata=metadata)


def test_the_committed_form_drops_what_differs_between_two_runs() -> None:
    before = noisy()
    form = execute.committed_form(before)
    cell = form.cells[0]
    assert cell.metadata == {"tolerance": {"rel": 1e-3}}
    assert [output.get("text") for output in cell.outputs[:2]] == ["one\ntwo\n", "three\n"]
    shown = cell.outputs[2]
    page = '<img alt="a" src="data:image/png;base64,"><b>text</b><svg></svg>'
    assert shown.data == {"text/plain": "<Figure>", "text/html": page}
    assert shown.metadata == {"verdict": {"id": "T01"}}
    assert cell.outputs[3].traceback == ["ZeroDivisionError: division by zero"]
    assert form.metadata == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python", "version": "3.11"},
    }
    assert before.cells[0].outputs[3].data["image/png"]  # the argument is left alone


def test_the_committed_form_is_its_own_committed_form() -> None:
    text = execute.committed_text(noisy())
    assert execute.committed_text(nbformat.reads(text, as_version=4)) == text
    assert text.endswith("}\n")
    assert "iVBOR" not in text


# --- the ledger ------------------------------------------------------------------------------------------------------


def executed(notebook: nbformat.NotebookNode, records: list[tuple[str, str, str]]) -> nbformat.NotebookNode:
    """The notebook with verdicts in its second cell's outputs, as lib.verdicts leaves them."""
    text = {"stated": "2 < 3", "measured": "2"}
    card = {"text/html": "<div class='verdict'>card</div>"}
    for id_, label, word in records:
        metadata = {"verdict": {"id": id_, "label": label, "word": word, "text": text}}
        notebook.cells[1].outputs.append(new_output("display_data", card, metadata=metadata))
    return notebook


@pytest.fixture
def table() -> tuple[list[ledger.Row], dict[str, ledger.Chapter]]:
    verdicts = [("T01", "sum", "holds"), ("T02", "first", "holds"), ("T02", "second", "fails as stated")]
    chapters = {
        "alpha": ledger.Chapter("alpha", executed(alpha(), verdicts)),
        # Outputs of a failed chapter never count, whatever they say.
        "beta": ledger.Chapter("beta", executed(beta(), [("T03", "only", "holds")]), failed=True),
    }
    return ledger.rows(yaml.safe_load(CLAIMS)["claims"], chapters), chapters


def test_each_claim_has_its_headline(table: tuple[list[ledger.Row], dict[str, ledger.Chapter]]) -> None:
    assert {row.claim["id"]: row.word for row in table[0]} == {
        "T01": "holds",
        "T02": "mixed",
        "T03": "chapter failed",
        "T04": "not tested yet",
        "T05": "not tested yet",
        "T06": "definition",
    }


def test_claims_json_holds_the_verdicts(table: tuple[list[ledger.Row], dict[str, ledger.Chapter]]) -> None:
    data = ledger.data(table[0])
    assert data["counts"] == {"holds": 1, "mixed": 1, "chapter failed": 1, "not tested yet": 2, "definition": 1}
    assert sum(data["counts"].values()) == len(data["claims"])
    second = data["claims"][1]
    assert (second["id"], second["verdict"]) == ("T02", "mixed")
    assert [check["word"] for check in second["checks"]] == ["holds", "fails as stated"]
    assert data["claims"][5]["verdict"] is None
    json.dumps(data)


def test_the_page_links_to_chapters_and_boxes_and_shows_every_check(
    table: tuple[list[ledger.Row], dict[str, ledger.Chapter]],
) -> None:
    page = ledger.page(table[0], {"T": {"title": "Toys"}}, table[1], {"perera2026gap"})
    cards = dict(zip([row.claim["id"] for row in table[0]], page.split("(ledger-")[1:], strict=True))
    assert "{prf:ref}`T01`" in cards["T01"]
    assert "[Alpha of *toys*](alpha.ipynb)" in cards["T01"]
    assert '<td data-label="Stated">2 &lt; 3</td>' in cards["T01"]
    assert '<span class="verdict-word holds">holds</span>' in cards["T01"]
    assert cards["T02"].count('<th scope="row">') == 2
    assert '<span class="verdict-word fails">chapter failed</span>' in cards["T03"]
    assert "chapter *gamma*, not written yet" in cards["T04"]
    assert "[Beta](beta.ipynb) · {cite:t}`perera2026gap`" in cards["T06"]
    assert "ledger-checks" not in cards["T06"]
    assert "<div class='verdict'>card</div>" in ledger.card("T02", "second", *table)
    assert 'T03 only</strong>: <span class="verdict-word fails">chapter failed' in ledger.card("T03", "only", *table)
    with pytest.raises(KeyError, match="third"):
        ledger.card("T02", "third", *table)


# --- the site --------------------------------------------------------------------------------------------------------


def test_a_failed_chapter_is_published_as_its_text_with_the_error(
    book: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    strictness = []
    monkeypatch.setattr(stage, "build", lambda root, *, strict: strictness.append(strict) or True)
    source = book / "book" / "alpha.ipynb"
    alpha_key = execute.execution_key(source, book)
    execute.publish(nbformat.read(source, as_version=4), "alpha", alpha_key, book, seconds=1.0)
    stored = beta("raise RuntimeError")
    stored.cells[1].outputs = [new_output("stream", name="stdout", text="of an earlier run")]
    save(book, beta=stored)
    beta_key = execute.execution_key(book / "book" / "beta.ipynb", book)
    execute.record_failure("beta", beta_key, cell=2, line="raise RuntimeError", error="RuntimeError: lost", root=book)

    assert stage.main(book) == 1
    assert strictness == [False]
    assert "not to be published: beta failed" in capsys.readouterr().err
    page = (book / "_build" / "src" / "book" / "beta.ipynb").read_text()
    assert "of an earlier run" not in page
    cells = nbformat.reads(page, as_version=4).cells
    assert cells[0].source.startswith("# Beta")
    assert "Code cell 2 stopped" in cells[1].source
    assert "RuntimeError: lost" in cells[1].source
    assert "chapter failed" in (book / "_build" / "src" / "book" / "claims.md").read_text()


def test_the_site_is_built_whole_and_only_after_a_change(book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute.main([], book) == 0
    assert stage.main(book) == 0
    html = book / "_build" / "html"
    assert "fine" in (html / "book" / "beta.html").read_text()
    page = (html / "book" / "alpha.html").read_text()
    for text in ('alt="A falling line"', "Theorem 1", "Exercise 1", 'class="solution dropdown admonition"'):
        assert text in page
    assert "<div class='verdict'>card</div>" in (html / "book" / "index.html").read_text()
    rows = (html / "book" / "claims.html").read_text()
    assert 'href="alpha.html#T01"' in rows
    assert 'verdict-word weak">mixed' in rows
    assert json.loads((html / "claims.json").read_text())["counts"]["holds"] == 1
    assert 'id="module-lib.sums"' in (html / "book" / "api.html").read_text()
    assert loaded_from_elsewhere(html) == set()
    assert not (book / "_build" / "site").exists()

    built = html.stat().st_ino
    capsys.readouterr()
    assert stage.main(book) == 0
    assert "nothing changed" in capsys.readouterr().out
    assert html.stat().st_ino == built

    with (book / "book" / "index.md").open("a") as page_file:
        page_file.write("\n{ref}`no-such-place`\n")
    assert stage.main(book) == 1  # a warning is an error, and nothing stale stays
    assert "no-such-place" in capsys.readouterr().err
    assert not html.exists()


def loaded_from_elsewhere(html: Path) -> set[str]:
    """Addresses of scripts, styles, fonts and pictures outside the site."""
    pages = [path.read_text() for path in html.rglob("*.html")]
    tags = [tag for page in pages for tag in re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", page)]
    found = {url for tag in tags for url in re.findall(r"""(?:src|href)=["']((?:https?:)?//[^"']+)""", tag)}
    for style in html.rglob("*.css"):
        found.update(re.findall(r"""url\(["']?((?:https?:)?//[^)"']+)""", style.read_text()))
    return found
