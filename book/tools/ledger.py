"""The ledger of claims: what ``book/claims.yml`` states, joined with the verdicts in the executed chapters.

`stage.py` calls `rows` and writes `counts` and `page` into the ledger's page, and `data` into ``claims.json``.
"""

import html
import re
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from nbformat import NotebookNode

from lib.verdicts import TESTABLE, headline

FAILED = "chapter failed"
UNTESTED = "not tested yet"

# The colour class of each word in book/assets/custom.css; kinds without a verdict stay quiet.
_LOOKS = {
    "holds": "holds",
    "holds, non-vacuous": "holds",
    "holds as corrected": "corrected",
    "fails as stated": "fails",
    "violated": "fails",
    FAILED: "fails",
    "holds, vacuous": "weak",
    "undecided": "weak",
    "ill-posed": "weak",
    "mixed": "weak",
    UNTESTED: "quiet",
}


@dataclass(frozen=True)
class Chapter:
    """An executed chapter, or one that failed (``notebook`` is then its source, without outputs)."""

    name: str
    notebook: NotebookNode
    failed: bool = False

    @property
    def title(self) -> str:
        """The text of the first heading."""
        match = re.search(r"^# +(.+?)\s*$", self.prose, re.MULTILINE)
        return match[1] if match else self.name

    @property
    def prose(self) -> str:
        return "\n\n".join(cell.source for cell in self.notebook.cells if cell.cell_type == "markdown")

    @property
    def labels(self) -> set[str]:
        """The labels of its boxes."""
        return set(re.findall(r"^:label:\s*(\S+)\s*$", self.prose, re.MULTILINE))

    @property
    def verdicts(self) -> dict[tuple[str, str], NotebookNode]:
        """The outputs of `lib.verdicts` by claim and check, the last one of each; a failed chapter has none."""
        outputs = [output for cell in self.notebook.cells for output in cell.get("outputs", [])]
        records = [(output.get("metadata", {}).get("verdict"), output) for output in outputs]
        found = {(record["id"], record["label"]): output for record, output in records if record}
        return {} if self.failed else found


@dataclass(frozen=True)
class Row:
    """A claim, its word (a verdict, or the kind of what cannot be tested) and its checks.

    A check that did not run carries only its label and its word.
    """

    claim: Mapping[str, Any]
    word: str
    checks: list[dict[str, Any]] = field(default_factory=list)


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Articles and claims of ``claims.yml``; `lib.verdicts` checks the file's form whenever a chapter runs."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    return document["articles"], document["claims"]


def rows(claims: list[dict[str, Any]], chapters: Mapping[str, Chapter]) -> list[Row]:
    """One row per claim, in the order of the claims."""
    outputs = {key: output for chapter in chapters.values() for key, output in chapter.verdicts.items()}
    found = []
    for claim in claims:
        checks = []
        for label, registered in claim["checks"].items():
            output = outputs.get((claim["id"], label))
            missing = {"label": label, "word": _missing(registered.get("chapter", claim["chapter"]), chapters)}
            checks.append(dict(output.metadata["verdict"]) if output else missing)
        if checks:
            word = headline([check["word"] for check in checks])
        else:
            word = _missing(claim["chapter"], chapters) if claim["kind"] in TESTABLE else claim["kind"]
        found.append(Row(claim, word, checks))
    return found


def card(id_: str, label: str, table: list[Row], chapters: Mapping[str, Chapter]) -> str:
    """The card of one check as HTML, as its chapter shows it; a plain line where it did not run.

    Raises:
        KeyError: the claims have no such check.
    """
    words = {(row.claim["id"], check["label"]): check["word"] for row in table for check in row.checks}
    for chapter in chapters.values():
        if (id_, label) in chapter.verdicts:
            return str(chapter.verdicts[id_, label].data["text/html"])
    return f'<div class="verdict"><strong>{html.escape(f"{id_} {label}")}</strong>: {_word(words[id_, label])}</div>'


def _missing(chapter: str, chapters: Mapping[str, Chapter]) -> str:
    return FAILED if chapter in chapters and chapters[chapter].failed else UNTESTED


def data(table: list[Row]) -> dict[str, Any]:
    """The content of ``claims.json``."""
    return {
        "counts": dict(_counts(table)),
        "claims": [
            {
                **{key: value for key, value in row.claim.items() if key != "checks"},
                "verdict": None if row.word == row.claim["kind"] else row.word,
                "checks": row.checks,
            }
            for row in table
        ],
    }


def page(table: list[Row], articles: Mapping[str, Any], chapters: Mapping[str, Chapter], citations: Set[str]) -> str:
    """The generated part of the ledger page, in MyST; ``citations`` are the keys of the bibliography."""
    parts: list[str] = []
    for key, article in articles.items():
        claims = [row for row in table if row.claim["article"] == key]
        if claims:
            parts += [f"## {article['title']}", article.get("description", "")]
            parts += [_card(row, chapters, citations) for row in claims]
    return "\n\n".join(parts)


def _counts(table: list[Row]) -> Counter[str]:
    return Counter(row.word for row in table)


def counts(table: list[Row]) -> str:
    """How many statements have which word, as an HTML table: verdicts first, then the rest."""
    lines = "".join(
        f'<tr><th scope="row">{_word(word)}</th><td>{number}</td></tr>'
        for word, number in sorted(_counts(table).items(), key=lambda item: (item[0] not in _LOOKS, -item[1], item[0]))
    )
    head = '<thead><tr><th scope="col">Verdict or kind</th><th scope="col">Statements</th></tr></thead>'
    return f'<table class="ledger-counts">{head}<tbody>{lines}</tbody></table>'


def _card(row: Row, chapters: Mapping[str, Chapter], citations: Set[str]) -> str:
    claim = row.claim
    lines = [
        f"(ledger-{claim['id'].lower()})=",
        "",
        "::::{div} ledger-claim",
        f"**{claim['id']}** {_word(row.word)}",
        "",
        claim["statement"].strip(),
        "",
        ":::{div} ledger-source",
        " · ".join([claim["kind"], claim["section"], *_places(claim, chapters, citations)]),
        ":::",
    ]
    if row.checks:
        lines += ["", _checks(row.checks)]
    return "\n".join([*lines, "", "::::"])


def _places(claim: Mapping[str, Any], chapters: Mapping[str, Chapter], citations: Set[str]) -> list[str]:
    """Where the book treats the claim: its box and its chapters, as links where they exist; and its source."""
    places = []
    chapter = chapters.get(claim["chapter"])
    box = claim.get("box", claim["id"])
    if chapter and box in chapter.labels:
        places.append(f"{{prf:ref}}`{box}`")
    names = [claim["chapter"], claim.get("treated_in"), *(check.get("chapter") for check in claim["checks"].values())]
    places += [_link(name, chapters) for name in dict.fromkeys(filter(None, names))]
    if source := claim.get("source"):
        places.append(f"{{cite:t}}`{source}`" if source in citations else source)
    return places


def _link(name: str, chapters: Mapping[str, Chapter]) -> str:
    if name in chapters:
        return f"[{chapters[name].title}]({name}.ipynb)"
    return f"chapter *{name.replace('_', ' ')}*, not written yet"


def _checks(checks: list[dict[str, Any]]) -> str:
    """The checks as an HTML table without blank lines, which would end the block; on a phone CSS stacks its cells."""
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Check", "Stated", "Measured", "Verdict"))
    body = ""
    for check in checks:
        text = check.get("text", {})
        cells = "".join(
            f'<td data-label="{name.capitalize()}">{html.escape(text.get(name, "—"))}</td>'
            for name in ("stated", "measured")
        )
        verdict = f'<td data-label="Verdict">{_word(check["word"])}</td>'
        body += f'<tr><th scope="row">{html.escape(check["label"])}</th>{cells}{verdict}</tr>'
    return f'<table class="ledger-checks"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _word(word: str) -> str:
    return f'<span class="verdict-word {_LOOKS.get(word, "quiet")}">{html.escape(word)}</span>'
