"""The ledger ``book/claims.yml``: complete, well formed, in plain English."""

import re
from pathlib import Path

import pytest
import yaml

from lib import verdicts

CHAPTERS = {
    "rademacher",
    "transformers",
    "pointwise_dimension",
    "initialization",
    "early_stopping",
    "stability",
    "ntk_width",
    "spectral_normalization",
    "pac_bayes",
    "diagnostics",
    "representation_gap",
    "intrinsic_dimension",
    "symbolic_interactions",
    "language_models",
    "open_problems",
}
# Frozen: the statements of the three source articles.
IDS = [f"C{i:02}" for i in range(1, 83)] + [f"G{i:02}" for i in range(1, 29)]
IDS += [f"S{i:02}" for i in range(1, 14)] + ["S14a", "S14b", "S14c"] + [f"S{i:02}" for i in range(15, 27)]
# The chapters that the three articles are spread over; every id not named here is checked by its article's default.
PLACES = {
    "rademacher": "C01 C02 C03 C04 C05 C06 C07 C14 C15",
    "transformers": "C16 C17 C18 C19 C20 C76",
    "pointwise_dimension": "C08 C09 C10 C11 C12 C13 C69 C70 C71 C75",
    "initialization": "C21 C22 C23 C24 C25 C26 C27 C28 C29 C30 C77 C82",
    "early_stopping": "C31 C32 C33 C34 C35 C36 C37 C78",
    "stability": "C38 C39 C40 C41",
    "ntk_width": "C42 C43 C44 C63 C64",
    "spectral_normalization": "C45 C46 C47 C48 C49 C58",
    "pac_bayes": "C67 C68",
    "open_problems": "C80",
    "intrinsic_dimension": "G11 G12 G14 G22 G23",
    "language_models": "S18 S19",
}
DEFAULT = {"C": "diagnostics", "G": "representation_gap", "S": "symbolic_interactions"}
EXCEPTIONS = {"S20": "diagnostics", "S24": "diagnostics"}
FILE = Path(__file__).parents[1] / "book" / "claims.yml"


@pytest.fixture(autouse=True)
def _the_book_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LIB_CLAIMS", raising=False)


def test_every_statement_stands_once_and_in_order() -> None:
    # The loader refuses an id that stands twice; rows of our own (R) follow after the articles.
    ids = list(verdicts.claims())
    assert ids[: len(IDS)] == IDS
    assert all(id.startswith("R") for id in ids[len(IDS) :])


def test_each_row_is_in_its_chapter() -> None:
    place = {id: chapter for chapter, ids in PLACES.items() for id in ids.split()} | EXCEPTIONS
    for id in IDS:
        assert verdicts.claims()[id].chapter == place.get(id, DEFAULT[id[0]]), id


def test_every_chapter_is_known() -> None:
    ledger = verdicts.claims().values()
    named = {c.chapter for c in ledger} | {c.treated_in for c in ledger if c.treated_in}
    named |= {check.chapter for c in ledger for check in c.checks.values()}
    assert named <= CHAPTERS


@pytest.mark.parametrize("id", IDS)
def test_statement_is_plain_english(id: str) -> None:
    claim = verdicts.claims()[id]
    for text in (claim.statement, claim.section):
        assert text.isascii()
        assert text == text.strip()
    assert len(claim.statement.split()) >= 5
    assert claim.statement[-1] in ".?"
    assert claim.statement.count("$") % 2 == 0
    for formula in re.findall(r"\$([^$]*)\$", claim.statement):
        assert formula.count("{") == formula.count("}"), formula
        assert len(re.findall(r"\\[Bb]igl", formula)) == len(re.findall(r"\\[Bb]igr", formula)), formula


def test_kinds_and_places_agree() -> None:
    for claim in verdicts.claims().values():
        assert (claim.treated_in is None) == (claim.kind in verdicts.TESTABLE), claim.id
        assert claim.article != "R" or claim.source, f"{claim.id} needs a source"
        if claim.kind in verdicts.UNTESTABLE:
            assert not claim.statement.endswith("?") or claim.kind == "direction", claim.id


def test_no_statement_is_given_twice() -> None:
    statements = [claim.statement for claim in verdicts.claims().values()]
    assert len(set(statements)) == len(statements)


def test_every_check_gives_a_reason_of_some_length() -> None:
    for claim in verdicts.claims().values():
        for label, check in claim.checks.items():
            assert len(check.reason.split()) >= 3, (claim.id, label)
            assert label.isascii(), (claim.id, label)


def test_articles_are_described() -> None:
    articles = yaml.safe_load(FILE.read_text(encoding="utf-8"))["articles"]
    assert list(articles) == ["C", "G", "S", "R"]
    for article in articles.values():
        assert set(article) == {"title", "description"}
        assert all(text.isascii() and text.strip() for text in article.values())


def test_header_explains_every_kind_and_field() -> None:
    header = FILE.read_text(encoding="utf-8").split("articles:\n")[0]
    fields = ("id", "statement", "article", "section", "kind", "chapter", "treated_in", "box", "source", "checks")
    for word in (*verdicts.TESTABLE, *verdicts.UNTESTABLE, *fields):
        assert re.search(rf"\b{word}\b", header), word


def test_lines_fit_a_screen() -> None:
    assert not [line for line in FILE.read_text(encoding="utf-8").splitlines() if len(line) > 120]
