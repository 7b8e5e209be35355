"""The verdicts: every word can be reached, by the right measurements only, and bad calls are refused."""

import html.parser
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from IPython.core.formatters import DisplayFormatter
from numpy.random import default_rng
from scipy import stats

from lib import verdicts
from lib.verdicts import at_least, at_most, judge

LEDGER = """
articles:
  C: {title: T, description: D}
claims:
  - id: C01
    statement: A slope is -1.
    article: C
    section: S
    kind: claim
    chapter: one
    box: slopes
    checks:
      slope: {margin: 0.1, reason: a tenth matters}
      identity: {margin: 1.0e-9, reason: round-off, chapter: two}
      below: {reason: the class is linear}
  - id: C02
    statement: It is bounded.
    article: C
    section: S
    kind: bound
    chapter: one
    checks:
      risk: {reason: the supremum is exact}
      span: {reason: the span is not defined}
  - id: C03
    statement: Nobody tested this.
    article: C
    section: S
    kind: claim
    chapter: one
    checks: {}
  - id: C04
    statement: A definition.
    article: C
    section: S
    kind: definition
    chapter: one
    treated_in: one
    checks: {}
"""


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "claims.yml"
    path.write_text(LEDGER)
    monkeypatch.setenv("LIB_CLAIMS", str(path))
    verdicts._records.clear()
    yield path
    verdicts._records.clear()


def repeats(mean: float, error: float, n: int = 10) -> np.ndarray:
    """``n`` numbers with exactly this mean and this standard error."""
    shape = np.linspace(-1.0, 1.0, n)
    return mean + shape / shape.std(ddof=1) * error * math.sqrt(n)


# --- the words of an equivalence test


@pytest.mark.parametrize(
    ("mean", "error", "word", "correction_failed"),
    [
        (-1.0, 0.01, "holds", False),
        (-1.06, 0.01, "holds", False),
        (-2.0, 0.01, "holds as corrected", False),
        (-1.5, 0.01, "fails as stated", True),
        (-3.0, 0.01, "fails as stated", True),
        (-1.1, 0.01, "undecided", False),
        (-2.1, 0.01, "undecided", False),
        (-1.0, 0.20, "undecided", False),
        (-1.0, 9.00, "undecided", False),
    ],
)
def test_each_word_of_check(mean: float, error: float, word: str, correction_failed: bool) -> None:
    verdict = judge(stated=-1.0, corrected=-2.0, margin=0.1, repeats=repeats(mean, error))
    assert (verdict.word, verdict.correction_failed) == (word, correction_failed)


def test_without_a_correction_what_lies_apart_fails() -> None:
    verdict = judge(stated=-1.0, margin=0.1, repeats=repeats(-2.0, 0.01))
    assert (verdict.word, verdict.correction_failed) == ("fails as stated", False)


@pytest.mark.parametrize(
    ("stated", "exact", "word"),
    [
        (at_least(1.0), 1e9, "holds"),
        (at_least(1.0), 0.9375, "holds"),
        (at_least(1.0), 0.8, "fails as stated"),
        (at_most(1.0), -1e9, "holds"),
        (at_most(1.0), 1.0625, "holds"),
        (at_most(1.0), 1.2, "fails as stated"),
        ((1.0, 2.0), 1.5, "holds"),
        ((1.0, 2.0), 0.9375, "holds"),
        ((1.0, 2.0), 2.0625, "holds"),
        ((1.0, 2.0), 2.2, "fails as stated"),
        (1.0, 1.0625, "holds"),
        (1.0, 0.9375, "holds"),
        (1.0, 1.125, "fails as stated"),
        (1, 1, "holds"),
    ],
)
def test_the_margin_widens_every_form_of_statement(stated: object, exact: float, word: str) -> None:
    assert judge(stated=stated, margin=0.0625, exact=exact).word == word


def test_an_interval_that_crosses_a_one_sided_limit_is_undecided() -> None:
    assert judge(stated=at_least(1.0), margin=0.1, repeats=repeats(0.9, 0.02)).word == "undecided"
    assert judge(stated=at_least(1.0), corrected=at_most(0.5), margin=0.1, repeats=repeats(0.0, 0.02)).word == (
        "holds as corrected"
    )


def test_exact_numbers_are_always_decided() -> None:
    words = {judge(stated=0.0, corrected=1.0, margin=0.25, exact=x).word for x in np.linspace(-1, 2, 301).tolist()}
    assert words == {"holds", "holds as corrected", "fails as stated"}
    assert judge(stated=2.0, margin=0, exact=torch.tensor(2.0)).word == "holds"


def recorded(id: str, label: str) -> verdicts.Verdict:
    return verdicts._records[id, label]


def test_interval_is_the_t_interval_of_scipy() -> None:
    sample = default_rng(0).normal(3.0, 2.0, 7)
    measured = judge(stated=3.0, margin=9.0, repeats=sample).measured
    low, high = stats.t.interval(0.99, 6, loc=sample.mean(), scale=stats.sem(sample))
    assert measured["low"] == pytest.approx(low, rel=1e-12)
    assert measured["high"] == pytest.approx(high, rel=1e-12)
    assert measured["standard_error"] == pytest.approx(stats.sem(sample), rel=1e-12)


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_interval_neither_underflows_nor_overflows(scale: float) -> None:
    sample = np.array([1.0, 2.0, 3.0, 4.0, 5.0]) * scale
    assert judge(stated=0.0, margin=scale, repeats=sample).measured["standard_error"] == pytest.approx(
        scale * math.sqrt(0.5), rel=1e-12
    )


@pytest.mark.parametrize(
    "convert",
    [
        list,
        np.float32,
        torch.tensor,
        lambda x: torch.tensor(x, requires_grad=True),
        lambda x: torch.tensor(x, dtype=torch.bfloat16),
    ],
)
def test_repeats_may_be_list_array_or_tensor(convert: Callable[[object], object]) -> None:
    values = convert([1.0, 1.25, 1.5, 1.75, 2.0])
    assert judge(stated=1.5, margin=9.0, repeats=values).measured["mean"] == 1.5


# --- what the words are worth: their frequency over experiments


DRAWS = 1000


def frequencies(truth: float, n: int, ratio: float, *, corrected: float | None = None) -> dict[str, float]:
    """How often each word comes out when a margin of 1 is ``ratio`` standard errors and 0 was stated."""
    samples = default_rng(n).normal(truth, math.sqrt(n) / ratio, (DRAWS, n))
    words = [judge(stated=0.0, corrected=corrected, margin=1.0, repeats=sample).word for sample in samples]
    return {word: words.count(word) / DRAWS for word in set(words)}


def slack(probability: float) -> float:
    """Four standard deviations of a frequency."""
    return 4 * math.sqrt(probability * (1 - probability) / DRAWS)


def true_claim_holds(n: int, ratio: float) -> float:
    """P(|Z| + t s <= ratio) for independent Z ~ N(0, 1) and s^2 ~ chi^2 / (n - 1), by quadrature over s."""
    t, dof = stats.t.ppf(0.995, n - 1), n - 1
    s = np.linspace(0.0, ratio / t, 20001)[1:]
    density = stats.chi2.pdf(s**2 * dof, dof) * 2 * s * dof
    return float(np.trapezoid((2 * stats.norm.cdf(ratio - t * s) - 1) * density, s))


@pytest.mark.parametrize(("n", "ratio"), [(5, 9.5), (10, 6.5), (20, 5.7)])
def test_true_claims_hold_in_99_of_100_runs_of_the_designed_size(n: int, ratio: float) -> None:
    exact = true_claim_holds(n, ratio)
    assert true_claim_holds(n, ratio - 0.3) < 0.99 <= exact
    assert abs(frequencies(0.0, n, ratio)["holds"] - exact) <= slack(exact)


@pytest.mark.parametrize(("n", "ratio"), [(5, 9.5), (20, 5.7)])
def test_false_claims_never_hold(n: int, ratio: float) -> None:
    words = frequencies(3.0, n, ratio, corrected=3.0)
    assert set(words) <= {"holds as corrected", "undecided", "fails as stated"}
    assert words["holds as corrected"] >= 0.99 - slack(0.99)
    words = frequencies(3.0, n, ratio, corrected=6.0)
    assert set(words) <= {"fails as stated", "undecided"}
    assert words["fails as stated"] >= 0.99 - slack(0.99)


def test_on_the_edge_a_claim_holds_in_one_run_of_200() -> None:
    # One side of the 99 % interval: at a truth of exactly stated + margin the chance is 1/2 %.
    assert frequencies(1.0, 10, 6.5).get("holds", 0.0) <= 0.005 + slack(0.005)


@given(
    st.lists(st.floats(-3, 3), min_size=5, max_size=12),
    st.floats(0.01, 2.4),
    st.integers(-20, 20),
    st.floats(-10, 10),
    st.randoms(),
)
def test_word_ignores_unit_origin_and_order(
    values: list, margin: float, power: int, shift: float, random: Random
) -> None:
    assume(max(values) - min(values) > 1e-6)

    def word(x: list, c: float, origin: float, width: float) -> str:
        return judge(stated=origin, corrected=origin + 5.0 * c, margin=width * c, repeats=x).word

    original = word(values, 1.0, 0.0, margin)
    # Rounding may decide an interval that ends on an edge.
    assume(original == word(values, 1.0, 0.0, margin * (1 + 1e-9)) == word(values, 1.0, 0.0, margin * (1 - 1e-9)))
    c = 2.0**power
    assert word([c * x for x in values], c, 0.0, margin) == original
    assert word([shift + x for x in values], 1.0, shift, margin) == original
    random.shuffle(values)
    assert word(values, 1.0, 0.0, margin) == original


@given(st.lists(st.floats(-3, 3), min_size=5, max_size=12), st.floats(0.01, 2.0), st.floats(1.01, 9.0))
def test_a_wider_margin_keeps_what_holds_and_never_makes_it_fail(values: list, margin: float, factor: float) -> None:
    assume(min(values) < max(values))
    narrow, wide = (judge(stated=0.0, margin=m, repeats=values).word for m in (margin, factor * margin))
    assert narrow != "holds" or wide == "holds"
    assert wide != "fails as stated" or narrow == "fails as stated"


@given(st.lists(st.floats(-3, 3), min_size=5, max_size=12))
def test_mirror_image(values: list) -> None:
    assume(min(values) < max(values))
    right = judge(stated=at_least(0.5), corrected=-1.0, margin=0.25, repeats=values).word
    assert right == judge(stated=at_most(-0.5), corrected=1.0, margin=0.25, repeats=[-x for x in values]).word


# --- calls against the ledger


def test_check_takes_the_margin_of_the_ledger_and_returns_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    # A returned verdict would be shown a second time by the last line of a cell.
    assert verdicts.check("C01", "slope", stated=-1.0, repeats=repeats(-1.0, 0.01)) is None
    verdict = recorded("C01", "slope")
    assert (verdict.word, verdict.margin, verdict.reason, verdict.chapter) == ("holds", 0.1, "a tenth matters", "one")
    assert verdict.power == pytest.approx(10.0)
    assert capsys.readouterr().out == (
        "C01 slope: holds — stated -1 ± 0.1; measured -1 [-1.0325, -0.967502] (99 % interval, 10 repeats)\n"
    )


def test_running_a_cell_again_replaces_its_verdict() -> None:
    for mean, word in ((-1.0, "holds"), (-2.0, "fails as stated")):
        verdicts.check("C01", "slope", stated=-1.0, repeats=repeats(mean, 0.01))
        assert recorded("C01", "slope").word == word
    assert len(verdicts._records) == 1


def test_exact_uses_its_tolerance() -> None:
    verdicts.check("C01", "identity", stated=0.0, exact=5e-11, tolerance=1e-10)
    assert recorded("C01", "identity").word == "holds"
    verdicts.check("C01", "identity", stated=0.0, exact=5e-10, tolerance=1e-10)
    assert recorded("C01", "identity").word == "fails as stated"
    assert recorded("C01", "identity").chapter == "two"


@pytest.mark.parametrize(
    ("rhs", "word"),
    [
        ([0.5, 0.6, 0.7, 0.8, 0.9], "holds, non-vacuous"),
        ([1.0, 1.1, 1.2, 1.3, 1.4], "holds, vacuous"),
        ([0.5, 0.6, 0.7, 0.8, 1.4], "undecided"),
        ([0.5, 0.6, 0.7, 0.8, 0.05], "violated"),
        ([0.1, 0.6, 0.7, 0.8, 0.9], "holds, non-vacuous"),
        ([0.1 * (1 - 1e-13), 0.6, 0.7, 0.8, 0.9], "holds, non-vacuous"),
        ([0.1 * (1 - 1e-11), 0.6, 0.7, 0.8, 0.9], "violated"),
    ],
)
def test_each_word_of_bound(rhs: list[float], word: str) -> None:
    verdicts.bound("C02", "risk", lhs=[0.1] * 5, rhs=rhs, trivial=1.0)
    assert recorded("C02", "risk").word == word


def test_a_quantity_without_a_trivial_bound() -> None:
    verdicts.bound("C02", "risk", lhs=[0.1] * 5, rhs=[1e9] * 5, trivial=math.inf)
    verdict = recorded("C02", "risk")
    assert verdict.word == "holds, non-vacuous"
    assert verdict.record()["measured"]["trivial"] is None


@pytest.mark.parametrize("instead", ["C01", "C01.slope", "C02.risk"])
def test_ill_posed(instead: str) -> None:
    verdicts.ill_posed("C02", "span", instead=instead)
    verdict = recorded("C02", "span")
    assert (verdict.word, verdict.instead) == ("ill-posed", instead)
    assert str(verdict) == f"C02 span: ill-posed — stated without a truth value; {instead} is tested instead"


# --- what a reader and the ledger page see


def cards() -> list[verdicts.Verdict]:
    verdicts.check("C01", "slope", stated=-1.0, corrected=(-3.0, -2.0), repeats=repeats(-2.0, 0.01))
    verdicts.check("C01", "identity", stated=at_most(0.0), exact=1e-3, tolerance=1e-10)
    verdicts.bound("C02", "risk", lhs=[0.1] * 5, rhs=[0.2] * 5, trivial=1.0)
    verdicts.ill_posed("C02", "span", instead="C02.risk")
    return [*verdicts._records.values(), judge(stated=1.0, corrected=2.0, margin=0.25, exact=9.0)]


class Text(html.parser.HTMLParser):
    """The text of a page, and whether each tag is closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.open = "", []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def test_card_says_the_same_in_html_text_and_metadata() -> None:
    for verdict in cards():
        data, metadata = DisplayFormatter().format(verdict)
        assert set(data) == {"text/plain", "text/html"}
        page = Text(data["text/html"]).text
        for part in (verdict.word, verdict.label, verdict.claimed, verdict.found):
            assert part in page
            assert part in data["text/plain"]
        assert set(metadata) == {"verdict"}
        # allow_nan=False: NaN and infinity are no JSON.
        assert json.loads(json.dumps(metadata, allow_nan=False)) == metadata
        assert metadata["verdict"]["word"] == verdict.word
        assert metadata["verdict"]["text"] == {"stated": verdict.claimed, "measured": verdict.found}


def test_metadata_of_a_check() -> None:
    record = cards()[0].record()
    assert set(record) == {
        *("id", "label", "chapter", "test", "word", "stated", "corrected", "correction_failed"),
        *("margin", "power", "reason", "instead", "measured", "text"),
    }
    assert record["stated"] == {"low": -1.0, "high": -1.0}
    assert record["corrected"] == {"low": -3.0, "high": -2.0}
    assert set(record["measured"]) == {"mean", "low", "high", "standard_error", "n"}
    assert cards()[1].record()["stated"] == {"low": None, "high": 0.0}


def test_a_failed_correction_is_said() -> None:
    assert str(cards()[-1]) == (
        "fails as stated — stated 1 ± 0.25, corrected 2 ± 0.25 (fails too); measured 9 (no randomness)"
    )


def test_labels_are_escaped() -> None:
    verdict = verdicts.Verdict("ill-posed", "ill-posed", label="a < b & <script>", instead="C01")
    assert "<script>" not in verdict._repr_html_()
    assert "a < b & <script>" in Text(verdict._repr_html_()).text


def test_table_lists_what_ran_what_did_not_and_what_has_no_check() -> None:
    verdicts.check("C01", "slope", stated=-1.0, repeats=repeats(-1.0, 0.01))
    verdicts.bound("C02", "risk", lhs=[0.1] * 5, rhs=[0.2] * 5, trivial=1.0)
    table = verdicts.table("one")
    assert [row[:3] for row in table.rows] == [
        ("C01", "slope", "holds"),
        ("C01", "below", "not run"),
        ("C02", "risk", "holds, non-vacuous"),
        ("C02", "span", "not run"),
        ("C03", "", "not tested yet"),
    ]
    assert table.headlines == {"C01": "mixed", "C02": "mixed", "C03": "not tested yet"}
    assert [row[:3] for row in verdicts.table("two").rows] == [("C01", "identity", "not run")]
    data, metadata = DisplayFormatter().format(table)
    page = Text(data["text/html"]).text
    for row in table.rows:
        assert all(cell in page and cell in data["text/plain"] for cell in row)
    assert metadata["verdict_table"]["headlines"] == table.headlines


def test_numbers_do_not_depend_on_the_order_of_the_repeats() -> None:
    sample = default_rng(1).normal(size=11)
    texts = {judge(stated=0.0, margin=1.0, repeats=sample[default_rng(i).permutation(11)]).found for i in range(20)}
    assert len(texts) == 1


# --- what is refused


GOOD = {"stated": 0.0, "repeats": [0.0, 0.1, 0.2, 0.3, 0.4]}


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"repeats": [0.0, 0.1, 0.2, 0.3, math.nan]}, ValueError, "repeats must be finite"),
        ({"repeats": [0.0, 0.1, 0.2, 0.3, math.inf]}, ValueError, "repeats must be finite"),
        ({"repeats": torch.tensor([])}, ValueError, "at least 5 independent repeats, got 0"),
        ({"repeats": [0.0, 0.1, 0.2, 0.3]}, ValueError, "at least 5 independent repeats, got 4"),
        ({"repeats": [0.5] * 5}, ValueError, "repeats must differ"),
        ({"repeats": [1, 2, 3, 4, 5]}, TypeError, "repeats must hold real floating-point numbers"),
        ({"repeats": torch.arange(5)}, TypeError, "repeats must hold real floating-point numbers"),
        ({"repeats": torch.zeros(5, dtype=torch.complex64)}, TypeError, "repeats must hold real floating-point"),
        ({"repeats": np.ma.masked_invalid([0.0, 0.1, 0.2, 0.3, 0.4])}, TypeError, "got a masked array"),
        ({"repeats": "abcde"}, TypeError, "repeats must hold real floating-point numbers"),
        ({"repeats": np.zeros((5, 2))}, ValueError, "repeats must have one axis"),
        ({"repeats": None}, ValueError, "repeats or exact must be given"),
        ({"exact": 0.0}, ValueError, "repeats or exact must be given, and not both"),
        ({"margin": 0.0}, ValueError, "margin must be greater than 0"),
        ({"margin": math.nan}, ValueError, "margin must be finite"),
        ({"margin": "1"}, TypeError, "margin must be a real number"),
        ({"stated": math.nan}, ValueError, "stated must be finite"),
        ({"stated": "0"}, TypeError, "stated must be a real number"),
        ({"stated": True}, TypeError, "stated must be a real number"),
        ({"stated": (1.0, 2.0, 3.0)}, ValueError, "stated must be a number, a pair"),
        ({"stated": (2.0, 1.0)}, ValueError, "stated must be a pair with low below high"),
        ({"stated": (0.0, math.inf)}, ValueError, "stated must be finite"),
        ({"corrected": math.inf}, ValueError, "corrected must be finite"),
        ({"corrected": 2.0}, ValueError, "margin must be below half the distance of stated and corrected"),
        ({"corrected": 0.0}, ValueError, "margin must be below half the distance of stated and corrected"),
        ({"stated": at_least(0.0), "corrected": 1.0}, ValueError, "margin must be below half"),
        ({"stated": (0.0, 5.0), "corrected": (4.0, 9.0)}, ValueError, "margin must be below half"),
        ({"repeats": None, "exact": math.nan}, ValueError, "exact must be finite"),
        ({"repeats": None, "exact": torch.tensor(1)}, TypeError, "exact must be a real number"),
        ({"repeats": None, "exact": 0.0, "margin": -1.0}, ValueError, "tolerance must be at least 0"),
    ],
)
def test_judge_refuses(change: dict, error: type[Exception], message: str) -> None:
    assert judge(margin=1.0, **GOOD).word  # the unchanged call is good
    with pytest.raises(error, match=message):
        judge(**{"margin": 1.0, **GOOD, **change})


@pytest.mark.bad_input
@pytest.mark.parametrize(("low", "high"), [(math.nan, 1.0), (0.0, math.nan), (1.0, 0.0)])
def test_regions_refuse(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="low must be at most high"):
        verdicts.Region(low, high)


@pytest.mark.bad_input
@pytest.mark.parametrize("limit", [at_least, at_most])
def test_one_sided_limits_refuse(limit: Callable[[object], object]) -> None:
    with pytest.raises(ValueError, match=f"{limit.__name__} must be finite"):
        limit(math.inf)
    with pytest.raises(TypeError, match=f"{limit.__name__} must be a real number"):
        limit("1")


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: verdicts.check("C99", "slope", **GOOD), "id 'C99' is not a claim"),
        (lambda: verdicts.check("C01", "slop", **GOOD), r"label 'slop' is not a check of C01 .* \['slope'"),
        (lambda: verdicts.check("C01", "below", **GOOD), "margin of C01 'below' is missing"),
        (lambda: verdicts.check("C01", "slope", **GOOD, tolerance=1e-9), "tolerance goes with exact"),
        (lambda: verdicts.check("C01", "slope", stated=0.0, exact=0.0, tolerance=0.2), "tolerance must be at most"),
        (lambda: verdicts.check("C01", "slope", stated=0.0), "repeats or exact must be given"),
        (lambda: verdicts.bound("C01", "slope", lhs=[0.1] * 5, rhs=[0.2] * 5, trivial=1.0), "margin .* must go"),
        (lambda: verdicts.bound("C02", "risk", lhs=[0.1] * 5, rhs=[0.2] * 6, trivial=1.0), "rhs must have as many"),
        (lambda: verdicts.bound("C02", "risk", lhs=[0.1] * 4, rhs=[0.2] * 4, trivial=1.0), "lhs .* at least 5"),
        (lambda: verdicts.bound("C02", "risk", lhs=[0.1] * 5, rhs=[math.nan] * 5, trivial=1.0), "rhs must be finite"),
        (lambda: verdicts.bound("C02", "risk", lhs=[0.1] * 5, rhs=[0.2] * 5, trivial=math.nan), "trivial must be"),
        (lambda: verdicts.ill_posed("C02", "span", instead=""), "instead must name another"),
        (lambda: verdicts.ill_posed("C02", "span", instead="C02"), "instead must name another"),
        (lambda: verdicts.ill_posed("C02", "span", instead="C02.span"), "instead must name another"),
        (lambda: verdicts.ill_posed("C02", "span", instead="C01.slop"), "label 'slop'"),
        (lambda: verdicts.ill_posed("C02", "span", instead="C01."), "label ''"),
        (lambda: verdicts.ill_posed("C02", "span", instead="C77"), "id 'C77'"),
        (lambda: verdicts.ill_posed("C01", "slope", instead="C02"), "margin .* must go"),
        (lambda: verdicts.table("three"), "chapter must be one of 'one', 'two'"),
    ],
)
def test_calls_against_the_ledger_refuse(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
    assert not verdicts._records


@pytest.mark.bad_input
def test_missing_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="trivial must be a number"):
        verdicts.bound("C02", "risk", lhs=[0.1] * 5, rhs=[0.2] * 5)
    with pytest.raises(TypeError, match="tolerance must be a real number, got NoneType"):
        verdicts.check("C01", "identity", stated=0.0, exact=0.0)
    with pytest.raises(TypeError, match="instead must be a string, got NoneType"):
        verdicts.ill_posed("C02", "span", instead=None)
    with pytest.raises(TypeError, match="id must be a string, got list"):
        verdicts.check(["C01"], "slope", **GOOD)


@pytest.mark.bad_input
@pytest.mark.parametrize("text", [b"claims: [", b"[a]: 1", b"\xff"])
def test_a_ledger_that_is_no_yaml_is_named(ledger: Path, text: bytes) -> None:
    ledger.write_bytes(text)
    with pytest.raises(ValueError, match=f"{ledger.name} is no YAML"):
        verdicts.claims()


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("margin: 0.1,", "margin: 0.0,", "margin must be a number above 0"),
        ("margin: 0.1,", "margin: -0.1,", "margin must be a number above 0"),
        ("margin: 0.1,", "margin: 1e-1,", "1e-12 is a text"),
        ("margin: 0.1,", "margin: .nan,", "margin must be a number above 0"),
        (", reason: a tenth matters", "", "C01, check 'slope'.* needs a reason"),
        ("reason: a tenth matters", "reason: ' '", "needs a reason"),
        ("reason: a tenth matters", "because: it matters", "the fields are margin, reason and chapter"),
        ("chapter: two", "chapter: 2", "chapter must be a text"),
        ("box: slopes", "boxes: slopes", "unknown fields"),
        ("box: slopes", "box: ''", "box must be a text"),
        ("kind: claim", "kind: rumour", "kind is one of"),
        ("    treated_in: one\n", "", "treated_in goes with"),
        ("kind: bound", "kind: thesis", "treated_in goes with"),
        ("id: C02", "id: C1", "ids are like G05"),
        ("id: C02", "id: G02", "article is one of"),
        ("id: C02", "id: C01", "C01 stands twice"),
        ("box: slopes", "kind: bound", "gives a key twice"),
        ("      below:", "      slope:", "gives a key twice"),
        ("section: S", "section: ", "section must be a text"),
        ("checks: {}", "checks: ", "checks maps labels"),
        ("articles:", "article:", "must hold a mapping articles"),
        ("claims:\n", "claims: {}\nmore:\n", "must hold a mapping articles"),
    ],
)
def test_ledger_is_validated(ledger: Path, old: str, new: str, message: str) -> None:
    assert old in LEDGER
    ledger.write_text(LEDGER.replace(old, new, 1))
    with pytest.raises(ValueError, match=message):
        verdicts.claims()


@pytest.mark.bad_input
def test_ledger_may_be_missing_or_change(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(verdicts.claims()) == ["C01", "C02", "C03", "C04"]
    assert verdicts.claims() is verdicts.claims()
    assert (verdicts.claims()["C01"].box, verdicts.claims()["C02"].box) == ("slopes", "C02")
    ledger.write_text(LEDGER.replace("margin: 0.1,", "margin: 0.25,"))
    assert verdicts.claims()["C01"].checks["slope"].margin == 0.25
    monkeypatch.setenv("LIB_CLAIMS", str(ledger.parent / "none.yml"))
    with pytest.raises(FileNotFoundError, match="LIB_CLAIMS"):
        verdicts.claims()


def test_headline() -> None:
    assert verdicts.headline(["violated"]) == "violated"
    assert verdicts.headline(["holds", "violated", "holds"]) == "mixed"
