"""What a chapter must look like: :func:`violations` lists, in words, each rule that a notebook breaks.

The rules are those of CONTRIBUTING.md; ``test_notebooks.py`` applies them to every chapter, and breaks each of them
once to see that it is found.
"""

import ast
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import yaml
from nbformat import NotebookNode

from lib.verdicts import TESTABLE

# Tags with a meaning here; any other is a slip of the pen and would be ignored in silence by the tool it was meant for.
TAGS = {"hide-input", "hide-output", "hide-cell", "raises-exception", "nbval-ignore-output"}
# Cells whose outputs are not compared, by chapter. A new one needs a line here, with its reason.
# Loading Fashion-MNIST prints which source served, and that differs between machines.
NOT_COMPARED: dict[str, int] = {"intrinsic_dimension": 1}

# Pages and files that the build makes; links may lead to them.
GENERATED = {"../claims.json"}

WORDS = (1000, 2500)
CODE_CELLS = 30
CODE_LINES = 25
EXERCISES = 3
ALT_TEXT = 40
LARGEST_TOLERANCE = 0.1

VERDICT_CALL = re.compile(r"\bverdicts\.(check|bound|ill_posed)\(")
DIRECTIVE = re.compile(r"^(?P<fence>[`:]{3,}|~{3,})\{(?P<name>[\w:-]+)\}[ \t]*(?P<argument>.*)$")
FENCE = re.compile(r"^\s*(?P<fence>`{3,}|~{3,}|:{3,})(?P<rest>[^`]*)$")
ROLE = re.compile(r"\{[\w:-]+\}`[^`]*`")
SOURCE = re.compile(r"\{cite|[Ss]ource|[Dd]erived here")


@dataclass(frozen=True)
class Directive:
    """One MyST directive: its name, argument, options and body, and the label that it defines."""

    name: str
    argument: str
    options: dict[str, str]
    body: str

    @property
    def label(self) -> str | None:
        """The target's name, if the directive defines one."""
        return self.options.get("label") or self.options.get("name")


@dataclass
class Book:
    """Everything that a chapter may refer to."""

    claims: dict[str, dict[str, Any]] = field(default_factory=dict)
    citations: set[str] = field(default_factory=set)
    pages: dict[str, str] = field(default_factory=dict)  # markdown of every page, by file name
    labels: Counter[str] = field(default_factory=Counter)  # how often each target is defined in the book
    files: set[str] = field(default_factory=set)  # paths relative to book/
    reading_order: list[str] = field(default_factory=list)  # chapters in _toc.yml

    @classmethod
    def read(cls, root: Path) -> "Book":
        """Read the sources below ``root``."""
        folder = root / "book"
        book = cls(claims=read_claims(folder / "claims.yml"), reading_order=read_toc(root / "_toc.yml"))
        bibliography = folder / "references.bib"
        if bibliography.exists():
            book.citations = set(re.findall(r"^\s*@\w+\{\s*([^,\s]+)\s*,", bibliography.read_text("utf8"), re.M))
        book.files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} | GENERATED
        for path in sorted(folder.glob("*.md")):
            book.add(path.name, path.read_text("utf8"))
        for path in chapters(root):
            book.add_notebook(path.name, nbformat.read(path, as_version=4))
        return book

    def add(self, name: str, text: str) -> None:
        """Add a page."""
        self.pages[name] = text
        self.files.add(name)
        self.labels.update(labels(text))

    def add_notebook(self, name: str, notebook: NotebookNode) -> None:
        """Add a chapter, with the targets of its figures."""
        self.add(name, prose(notebook))
        for cell in code_cells(notebook):
            figure = cell.metadata.get("mystnb", {}).get("figure", {})
            if figure.get("name"):
                self.labels[figure["name"]] += 1


def chapters(root: Path) -> list[Path]:
    """The book's notebooks."""
    return sorted((root / "book").glob("*.ipynb"))


def read_claims(path: Path) -> dict[str, dict[str, Any]]:
    """``claims.yml`` by id; `lib.verdicts` checks its form."""
    return {row["id"]: row for row in yaml.safe_load(path.read_text("utf8"))["claims"]} if path.exists() else {}


def read_toc(path: Path) -> list[str]:
    """File names, without suffix and folder, in the order of ``_toc.yml``."""
    if not path.exists():
        return []
    found: list[str] = []

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            for key, value in node.items():
                if key in {"file", "root"}:
                    found.append(Path(str(value)).name.removesuffix(".ipynb").removesuffix(".md"))
                else:
                    walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(yaml.safe_load(path.read_text("utf8")))
    return found


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """The code cells, in order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def prose(notebook: NotebookNode) -> str:
    """The markdown cells as one text."""
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def directives(text: str) -> Iterator[Directive]:
    """All directives, outer before inner."""
    lines = text.splitlines()
    for start, line in enumerate(lines):
        match = DIRECTIVE.match(line.strip())
        if not match:
            continue
        body: list[str] = []
        for following in lines[start + 1 :]:
            if following.strip() == match["fence"]:
                break
            body.append(following)
        options = {}
        while body and (option := re.match(r"^\s*:([\w-]+):\s*(.*)$", body[0])):
            options[option[1]] = option[2].strip()
            body.pop(0)
        yield Directive(match["name"], match["argument"].strip(), options, "\n".join(body))


def without_code(text: str) -> str:
    """The text without fenced code, so that an example of syntax is not taken for syntax; directives stay."""
    kept: list[str] = []
    open_fences: list[str] = []
    code = ""
    for line in text.splitlines():
        match = FENCE.match(line)
        fence, rest = (match["fence"], match["rest"].strip()) if match else ("", "")
        if code:
            if fence.startswith(code) and not rest:
                code = ""
            continue
        if open_fences and fence.startswith(open_fences[-1]) and not rest:
            open_fences.pop()
        elif rest.startswith("{") and not re.match(r"\{code(-block|-cell)?\}", rest):
            open_fences.append(fence)
        elif fence and not fence.startswith(":"):
            code = fence
            continue
        kept.append(line)
    return "\n".join(kept)


def labels(text: str) -> list[str]:
    """The targets that a page defines: boxes, exercises, sections, equations."""
    text = without_code(text)
    found = [directive.label for directive in directives(text) if directive.label]
    found += re.findall(r"^\(([^)\s]+)\)=[ \t]*$", text, re.M)
    found += re.findall(r"^\s*(?:.*[^$])?\$\$[ \t]*\(([\w:.-]+)\)[ \t]*$", text, re.M)
    return found


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as MyST makes them."""
    titles = re.findall(r"^#{1,6}[ \t]+(.+?)[ \t]*#*$", without_code(text), re.M)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", title).lower()).replace(" ", "-") for title in titles}


def violations(
    name: str,
    notebook: NotebookNode,
    book: Book,
    *,
    committed_form: Callable[[NotebookNode], NotebookNode] | None = None,
) -> list[str]:
    """What the chapter ``name`` does against the rules, one sentence for each; empty for a sound chapter."""
    found = [*_code(name, notebook), *_stored_outputs(notebook), *_figures(notebook), *_verdicts(name, notebook, book)]
    found += [*_text(notebook), *_exercises(notebook), *_claims(name, notebook, book)]
    found += [*dead_links(f"{name}.ipynb", book), *dead_citations(prose(notebook), book)]
    if committed_form and _canonical(committed_form(notebook)) != _canonical(notebook):
        found.append("the notebook is not in its committed form: run `make refresh`")
    return found


def _canonical(notebook: NotebookNode) -> str:
    return json.dumps(notebook, sort_keys=True)


def _code(name: str, notebook: NotebookNode) -> Iterator[str]:
    cells = code_cells(notebook)
    counts = [cell.execution_count for cell in cells]
    if counts != list(range(1, len(cells) + 1)):
        yield f"execution counts are {counts}, not 1..{len(cells)}: run `make refresh`"
    if len(cells) > CODE_CELLS:
        yield f"{len(cells)} code cells; {CODE_CELLS} are allowed"
    yield from _set_up(cells)
    ignored = 0
    for number, cell in enumerate(cells, start=1):
        lines = len(cell.source.strip().splitlines())
        if lines > CODE_LINES:
            yield f"cell {number}: {lines} lines of code; {CODE_LINES} are allowed"
        tags = set(cell.metadata.get("tags", []))
        if unknown := tags - TAGS:
            yield f"cell {number}: unknown tag {', '.join(sorted(unknown))}"
        if re.search(r"^\s*#\s*(NBVAL_|PYTEST_VALIDATE_)", cell.source, re.M):
            yield f"cell {number}: an nbval marker in a comment; use a cell tag"
        ignored += "nbval-ignore-output" in tags
        yield from _tolerance(number, cell)
    if ignored != NOT_COMPARED.get(name, 0):
        yield f"{ignored} cells are not compared; {NOT_COMPARED.get(name, 0)} are agreed in tests/structure.py"


def _set_up(cells: list[NotebookNode]) -> Iterator[str]:
    """The first cell: imports, then ``compute.setup(seed)``, which prints device, precision and budget."""
    if not cells:
        yield "there is no code cell"
        return
    try:
        body = ast.parse(cells[0].source).body
    except SyntaxError:
        body = []
    rest = [node for node in body if not isinstance(node, ast.Import | ast.ImportFrom)]
    call = ast.unparse(rest[-1]) if rest else ""
    others = [node for node in rest[:-1] if not isinstance(node, ast.Expr)]
    if not re.fullmatch(r"compute\.setup\(\d+\)", call) or others or len(rest) == len(body):
        yield "cell 1: must be the standard set-up: imports, then compute.setup(seed)"
    printed = "".join(output.get("text", "") for output in cells[0].outputs)
    if not re.fullmatch(r"device cpu \| verdicts in float64 \| CPU budget \| seed \d+\n", printed):
        yield "cell 1: must print the one line of compute.setup, from a run on the CPU in the CPU's budget"


def _tolerance(number: int, cell: NotebookNode) -> Iterator[str]:
    given = cell.metadata.get("tolerance")
    if given is None:
        return
    if not isinstance(given, dict) or not given or set(given) - {"rel", "abs"}:
        yield f"cell {number}: tolerance must have the keys rel and abs, got {given!r}"
    elif not all(isinstance(value, int | float) and value >= 0 for value in given.values()):
        yield f"cell {number}: a tolerance must be a number from 0, got {given!r}"
    elif given.get("rel", 0) > LARGEST_TOLERANCE:
        yield f"cell {number}: a relative tolerance of {given['rel']} compares nothing"


def _stored_outputs(notebook: NotebookNode) -> Iterator[str]:
    for number, cell in enumerate(code_cells(notebook), start=1):
        everything = json.dumps(cell.outputs)
        kinds = {kind for output in cell.outputs for kind in output.get("data", {})}
        if any(kind.startswith("image/") for kind in kinds) or re.search(r"data:image/[\w+.-]+;base64,\w", everything):
            yield f"cell {number}: stored picture"
        if "application/vnd.jupyter.widget-view+json" in kinds:
            yield f"cell {number}: stored widget view"
        if re.search(r"\d+%\|.*\||\b(?:it|s)/(?:it|s)\b|[█▏▎▍▌▋▊▉]", _text_of(cell)) or r"\r" in everything:
            yield f"cell {number}: progress bar in the stored output"
        if any(output.get("name") == "stderr" for output in cell.outputs):
            yield f"cell {number}: noise on stderr in the stored output"
        raised = any(output.output_type == "error" for output in cell.outputs)
        if raised != ("raises-exception" in cell.metadata.get("tags", [])):
            yield f"cell {number}: stored exception without the tag raises-exception, or the tag without exception"


def _text_of(cell: NotebookNode) -> str:
    texts = [output.get("text", "") for output in cell.outputs]
    texts += [text for output in cell.outputs for text in output.get("data", {}).values() if isinstance(text, str)]
    return "\n".join(texts)


def _figures(notebook: NotebookNode) -> Iterator[str]:
    for number, cell in enumerate(code_cells(notebook), start=1):
        plain = [str(output.get("data", {}).get("text/plain", "")) for output in cell.outputs]
        figures = sum(text.startswith(("<Figure size", "<IPython.core.display.Image")) for text in plain)
        options = cell.metadata.get("mystnb", {})
        alt, caption = options.get("image", {}).get("alt", ""), options.get("figure", {}).get("caption", "")
        if figures > 1:
            yield f"cell {number}: {figures} figures; one is allowed"
        if figures:
            if len(alt) < ALT_TEXT or re.fullmatch(r"\S+", alt):
                yield f"cell {number}: figure without alt text of {ALT_TEXT} characters (mystnb.image.alt)"
            if not caption:
                yield f"cell {number}: figure without caption (mystnb.figure.caption)"
        elif alt or caption:
            yield f"cell {number}: alt text or caption, and no figure"
        for picture in re.findall(r"<img\b[^>]*>", _text_of(cell)):
            if not re.search(r"""\balt=(["'])[^"']*\w""", picture):
                yield f"cell {number}: picture in HTML without alt text"


def _verdicts(name: str, notebook: NotebookNode, book: Book) -> Iterator[str]:
    ran: Counter[tuple[str, str]] = Counter()
    for number, cell in enumerate(code_cells(notebook), start=1):
        stored = [output.metadata["verdict"] for output in cell.outputs if "verdict" in output.get("metadata", {})]
        if VERDICT_CALL.search(cell.source):
            if not stored:
                yield f"cell {number}: verdict cell without a stored verdict"
            if "nbval-ignore-output" in cell.metadata.get("tags", []):
                yield f"cell {number}: verdict cell that is not compared"
        for verdict in stored:
            ran[verdict["id"], verdict["label"]] += 1
            if verdict["word"] == "undecided":
                yield f"cell {number}: {verdict['id']} {verdict['label']!r} is undecided: the experiment is too weak"
    registered = [
        (claim, label)
        for claim, row in book.claims.items()
        for label, check in row["checks"].items()
        if check.get("chapter", row["chapter"]) == name
    ]
    for claim, label in sorted({*ran, *registered}):
        if ran[claim, label] != 1 or (claim, label) not in registered:
            what = "of" if (claim, label) in registered else "not of"
            yield f"check {claim} {label!r}, {what} this chapter in claims.yml, ran {ran[claim, label]} times"


def _text(notebook: NotebookNode) -> Iterator[str]:
    words = count_words(notebook)
    if not WORDS[0] <= words <= WORDS[1]:
        yield f"{words} words of prose; {WORDS[0]} to {WORDS[1]} are allowed"


def count_words(notebook: NotebookNode) -> int:
    """Words of prose: without code, mathematics, directive syntax and the solutions of exercises."""
    kept, in_solution = [], False
    for cell in notebook.cells:
        # A solution with executed cells stands between two gates, which may share a cell with other text.
        source = without_code(cell.source) if cell.cell_type == "markdown" else ""
        for part in re.split(r"(?m)^(?=[`:~]{3,}\{solution-(?:start|end)\})", source):
            if re.match(r"[`:~]{3,}\{solution-start\}", part):
                in_solution = True
            elif re.match(r"[`:~]{3,}\{solution-end\}", part):
                in_solution = False
            if not in_solution:
                kept.append(part)
    text = "\n".join(kept)
    for directive in directives(text):
        if directive.name == "solution":
            text = text.replace(directive.body, "")
    text = re.sub(r"\$\$.*?\$\$|\$[^$\n]+\$|<!--.*?-->", " ", text, flags=re.S)
    text = re.sub(r"(?m)^\s*(?:[`:~]{3,}.*|:[\w-]+:.*|\([^)\s]+\)=|%.*)$", " ", text)
    text = re.sub(r"\{[\w:]+\}`[^`]*`|`[^`]*`|\]\([^)]*\)", " ", text)
    return len(re.findall(r"[^\W\d_][\w'’-]*", text))


def _exercises(notebook: NotebookNode) -> Iterator[str]:
    text = without_code(prose(notebook))
    found = list(directives(text))
    exercises = [directive for directive in found if directive.name in {"exercise", "exercise-start"}]
    solutions = {directive.argument: directive for directive in found if directive.name.startswith("solution")}
    if len(exercises) < EXERCISES:
        yield f"{len(exercises)} exercises; at least {EXERCISES} are needed"
    for exercise in exercises:
        if not exercise.label:
            yield f"exercise {exercise.argument!r} without label"
        elif exercise.label not in solutions:
            yield f"exercise {exercise.label} without solution"
        elif "dropdown" not in solutions[exercise.label].options.get("class", ""):
            yield f"the solution of {exercise.label} is not folded (:class: dropdown)"
    for orphan in set(solutions) - {exercise.label for exercise in exercises} - {""}:
        yield f"solution of {orphan}, which is no exercise of the chapter"


def _claims(name: str, notebook: NotebookNode, book: Book) -> Iterator[str]:
    """Each testable claim has its box, with a source, and a check; each claim is named where the reader sees it."""
    text = without_code(prose(notebook))
    boxes = {directive.label: directive.body for directive in directives(text) if directive.name.startswith("prf:")}
    visible = ROLE.sub("", re.sub(r"(?m)^\s*:[\w-]+:.*$|^\([^)\s]+\)=$", "", text))
    for claim, row in book.claims.items():
        testable = row["kind"] in TESTABLE
        if (row["chapter"] if testable else row["treated_in"]) != name:
            continue
        if not re.search(rf"(?<![\w.]){claim}(?!\w)", visible):
            yield f"claim {claim} is not named in the text"
        if testable:
            box = row.get("box", claim)
            if box not in boxes:
                yield f"claim {claim} without a box {{prf:...}} labelled {box}"
            elif not SOURCE.search(boxes[box]):
                yield f"claim {claim}: its box names no source"
            if not row["checks"]:
                yield f"claim {claim} has no check in claims.yml"


def dead_links(page: str, book: Book) -> list[str]:
    """Links of a page that lead nowhere inside the book; the world outside is not asked."""
    text = without_code(book.pages[page])
    roles = re.findall(r"\{(?:prf:ref|ref|numref|eq|exercise:ref)\}`(?:[^`<]*<)?([^`<>]+)>?`", text)
    dead = [f"dead reference to {target}" for target in roles if target.strip() not in book.labels]
    roles = re.findall(r"\{(?:doc|download)\}`(?:[^`<]*<)?([^`<>]+)>?`", text)
    dead += [f"dead link to {target}" for target in roles if not _file(target.strip().lstrip("/"), book)]
    for target in re.findall(r"\]\(<?([^)\s>]*)>?(?:\s+\"[^\"]*\")?\)", text):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, fragment = target.partition("#")
        if not path:
            alive = fragment in book.labels or fragment in anchors(text)
        elif _file(path, book):
            known = anchors(book.pages.get(path, "")) | set(labels(book.pages.get(path, "")))
            alive = not fragment or fragment in known
        else:
            alive = path in book.labels and not fragment
        if not alive:
            dead.append(f"dead link to {target}")
    return dead


def _file(target: str, book: Book) -> bool:
    return any(target + suffix in book.files for suffix in ("", ".md", ".ipynb"))


def dead_citations(text: str, book: Book) -> list[str]:
    """Citation keys without an entry in the bibliography."""
    cited = re.findall(r"\{(?:cite|footcite)(?::\w+)?\}`([^`]+)`", without_code(text))
    keys = {key.strip() for group in cited for key in group.split(",")}
    return [f"citation {key} does not resolve" for key in sorted(keys - book.citations)]


def book_violations(book: Book) -> list[str]:
    """What only the whole book shows: labels used twice, and links of the pages that are no chapters."""
    found = [f"label {label} is used {count} times" for label, count in sorted(book.labels.items()) if count > 1]
    for page in sorted(book.pages):
        if page.endswith(".md"):
            problems = dead_links(page, book) + dead_citations(book.pages[page], book)
            found += [f"{page}: {problem}" for problem in problems]
    return found
