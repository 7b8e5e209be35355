r"""Verdicts: does a claim hold here, hold after a correction, or fail, by a margin that was fixed before the run?

The margins live in ``book/claims.yml`` (the environment variable ``LIB_CLAIMS`` names another file). Each call of
:func:`check`, :func:`bound` or :func:`ill_posed` shows one card; :func:`table` ends a chapter.
"""

import html
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from IPython.display import display
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from lib.validation import choice, number

MIN_REPEATS = 5
TESTABLE = ("claim", "theorem", "bound", "code", "recipe")
UNTESTABLE = ("definition", "comparison", "thesis", "limitation", "direction", "pointer", "record")

Values = Tensor | NDArray[np.floating] | Sequence[float]


@dataclass(frozen=True)
class Region:
    """The values that a claim allows, from ``low`` to ``high``; see :func:`at_least` and :func:`at_most`."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"low must be at most high, got {self.low} and {self.high}")

    def __str__(self) -> str:
        low, high = _digits(self.low), _digits(self.high)
        if math.isinf(self.low) or math.isinf(self.high):
            return f"at most {high}" if math.isinf(self.low) else f"at least {low}"
        return low if low == high else f"{low} to {high}"


@dataclass(frozen=True)
class Check:
    """A named check of a claim as the ledger registers it: its margin, the reason, and the chapter that runs it."""

    margin: float | None
    reason: str
    chapter: str


@dataclass(frozen=True)
class Claim:
    """One row of the ledger ``book/claims.yml``; the header of that file explains the fields."""

    id: str
    statement: str
    article: str
    section: str
    kind: str
    chapter: str
    box: str
    checks: Mapping[str, Check]
    treated_in: str | None
    source: str | None


@dataclass(frozen=True)
class Verdict:
    """The outcome of one check: the word, what was stated, and what was measured (its keys depend on ``test``)."""

    test: Literal["repeats", "exact", "bound", "ill-posed"]
    word: str
    measured: Mapping[str, float | int] = field(default_factory=dict)
    stated: Region | None = None
    corrected: Region | None = None
    correction_failed: bool = False
    margin: float | None = None
    id: str = ""
    label: str = ""
    chapter: str = ""
    reason: str = ""
    instead: str = ""

    @property
    def power(self) -> float | None:
        """Margin over standard error; 9.5 at 5 repeats, 6.5 at 10, 5.7 at 20 let 99 % of true claims hold."""
        error = self.measured.get("standard_error")
        return self.margin / error if error and self.margin is not None else None

    @property
    def claimed(self) -> str:
        """What the claim states, and its correction, in words."""
        if self.test == "bound":
            return "lhs at most rhs"
        if self.test == "ill-posed":
            return "without a truth value"
        text = f"{self.stated} ± {_digits(self.margin)}"
        if self.corrected is not None:
            text += f", corrected {self.corrected} ± {_digits(self.margin)}"
        return text + (" (fails too)" if self.correction_failed else "")

    @property
    def found(self) -> str:
        """What was measured, in words."""
        m = {key: _digits(value) for key, value in self.measured.items()}
        if self.test == "repeats":
            return f"{m['mean']} [{m['low']}, {m['high']}] (99 % interval, {m['n']} repeats)"
        if self.test == "exact":
            return f"{m['value']} (no randomness)"
        if self.test == "ill-posed":
            return f"{self.instead} is tested instead"
        return (
            f"broken in {m['violations']} of {m['n']} repeats, least rhs - lhs {m['least_slack']}, "
            f"rhs {m['rhs_low']} to {m['rhs_high']}, trivial {m['trivial']}"
        )

    def record(self) -> dict[str, Any]:
        """Everything as JSON values; the open end of a region and an infinite trivial value are ``None``."""
        regions = {name: getattr(self, name) for name in ("stated", "corrected")}
        return {
            **{name: getattr(self, name) for name in ("id", "label", "chapter", "test", "word", "margin", "power")},
            **{name: r and {"low": _json(r.low), "high": _json(r.high)} for name, r in regions.items()},
            "correction_failed": self.correction_failed,
            "reason": self.reason,
            "instead": self.instead or None,
            "measured": {key: _json(value) for key, value in self.measured.items()},
            "text": {"stated": self.claimed, "measured": self.found},
        }

    def __str__(self) -> str:
        return f"{self._title} — {'; '.join(self._lines)}"

    @property
    def _title(self) -> str:
        return f"{self.id} {self.label}: {self.word}".lstrip(" :")

    @property
    def _lines(self) -> tuple[str, str]:
        return f"stated {self.claimed}", self.found if self.test == "ill-posed" else f"measured {self.found}"

    def _repr_html_(self) -> str:
        return (
            f'<div class="verdict {_css(self.word)}" style="border-left:.3rem solid {_colour(self.word)};'
            f'padding:.2rem .8rem;margin:.4rem 0"><strong>{html.escape(self._title)}</strong><br>'
            f"{'<br>'.join(map(html.escape, self._lines))}</div>"
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, str], dict[str, Any]]:
        # The data travels as metadata: a private mime type would be a build warning and an exact comparison in nbval.
        return {"text/plain": str(self), "text/html": self._repr_html_()}, {"verdict": self.record()}


@dataclass(frozen=True)
class VerdictTable:
    """The checks of a chapter and how they came out, as rows (claim, check, verdict, stated, measured)."""

    chapter: str
    rows: tuple[tuple[str, ...], ...]

    @property
    def headlines(self) -> dict[str, str]:
        """One word per claim, the common word of its checks, or ``mixed``."""
        return {id: headline([row[2] for row in self.rows if row[0] == id]) for id in {row[0]: 0 for row in self.rows}}

    def __str__(self) -> str:
        return "\n".join(" | ".join(row) for row in [("Claim", "Check", "Verdict", "Stated", "Measured"), *self.rows])

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col">{name}</th>' for name in ("Claim", "Check", "Verdict", "Stated", "Measured"))
        body = ""
        for row in self.rows:
            id, label, word, stated, found = map(html.escape, row)
            mark = f'<td style="border-left:.3rem solid {_colour(word)}"><strong>{word}</strong></td>'
            body += f'<tr class="{_css(word)}"><td>{id}</td><td>{label}</td>{mark}<td>{stated}</td>'
            body += f"<td>{found}</td></tr>"
        table = f'<table class="verdicts"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        return f'<div style="overflow-x:auto">{table}</div>'

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, str], dict[str, Any]]:
        data = {"chapter": self.chapter, "headlines": self.headlines}
        return {"text/plain": str(self), "text/html": self._repr_html_()}, {"verdict_table": data}


# What ran in this kernel; running a cell again replaces its verdict.
_records: dict[tuple[str, str], Verdict] = {}


def at_least(value: float | int) -> Region:
    """Every number from ``value`` up; to claim an improvement, state the least improvement that matters, not zero."""
    return Region(_real("at_least", value), math.inf)


def at_most(value: float | int) -> Region:
    """Every number up to ``value``; see :func:`at_least`."""
    return Region(-math.inf, _real("at_most", value))


def judge(
    *, stated: Any, margin: float | int, corrected: Any = None, repeats: Values | None = None, exact: Any = None
) -> Verdict:
    r"""Judge measurements against a statement by an equivalence test; nothing is looked up, shown or recorded.

    .. math::

       I = \bar x \pm t_{0.995,\,n-1}\, s/\sqrt n, \qquad
       S = [\text{low} - \text{margin},\ \text{high} + \text{margin}]

    with :math:`S` from ``stated`` and :math:`C` likewise from ``corrected``. *Holds* if :math:`I \subseteq S`; *holds
    as corrected* if :math:`I \cap S = \emptyset` and :math:`I \subseteq C`; *fails as stated* if :math:`I` meets
    neither; otherwise *undecided*. An ``exact`` number is an interval of length zero and is always decided.

    Args:
        stated: a number, a pair ``(low, high)``, or :func:`at_least` / :func:`at_most`. The margin widens every one:
            ``at_least(x)`` holds above ``x - margin`` and fails below it.
        margin: the least difference that would matter to a reader, in the unit of the statement; above 0 for repeats.
        corrected: the corrected statement, in the same forms, more than two margins away from ``stated``.
        repeats: ``[n]``, at least 5 independent floating-point results of the whole experiment.
        exact: instead of ``repeats``, one number without randomness.

    Returns:
        The verdict, without id and label. The interval is exact for normal repeats, approximate otherwise.

    Cost: O(n) in time and memory.

    Raises:
        TypeError: a value that is not a real number, or repeats that are not floating-point.
        ValueError: NaN or infinity, fewer than 5 repeats, repeats that are all equal, a margin of half the distance
            between ``stated`` and ``corrected`` or more.

    Source: two one-sided tests, Schuirmann (1987), in the form of an interval inclusion; the third word is ours.

    >>> judge(stated=2.0, margin=0.5, repeats=[1.9, 2.0, 2.1, 2.0, 2.0]).word
    'holds'
    >>> judge(stated=1.0, corrected=2.0, margin=0.1, exact=2.0).word
    'holds as corrected'
    """
    if (repeats is None) == (exact is None):
        raise ValueError("repeats or exact must be given, and not both")
    target = _region("stated", stated)
    other = None if corrected is None else _region("corrected", corrected)
    if exact is not None:
        low = high = _real("exact", exact)
        margin = number("tolerance", margin, at_least=0.0)
        measured: dict[str, float | int] = {"value": low}
    else:
        margin = number("margin", margin, above=0.0)
        measured = _interval(_sample("repeats", repeats))
        low, high = measured["low"], measured["high"]
    if other is not None:
        half = max(other.low - target.high, target.low - other.high) / 2
        if margin >= half:
            raise ValueError(f"margin must be below half the distance of stated and corrected ({half:g}), got {margin}")
    word = "undecided"
    if _inside(low, high, target, margin):
        word = "holds"
    elif _apart(low, high, target, margin):
        if other is not None and _inside(low, high, other, margin):
            word = "holds as corrected"
        elif other is None or _apart(low, high, other, margin):
            word = "fails as stated"
    return Verdict(
        *("repeats" if exact is None else "exact", word, measured, target, other),
        correction_failed=word == "fails as stated" and other is not None,
        margin=margin,
    )


def check(
    id: str,
    label: str,
    *,
    stated: Any,
    corrected: Any = None,
    repeats: Values | None = None,
    exact: Any = None,
    tolerance: float | int | None = None,
) -> None:
    """Judge a claim by :func:`judge` with the margin of ``book/claims.yml``, show the card and record it.

    Args:
        id: the claim, such as ``"G05"``.
        label: the name of the check under that claim in the ledger.
        stated: what the claim says, as in :func:`judge`.
        corrected: what the corrected claim says.
        repeats: ``[n]``, at least 5 independent results of the whole experiment (a regression's own standard error
            under-covers: repeat the fit).
        exact: instead of ``repeats``, a number without randomness: an identity, an enumeration, a quadrature.
        tolerance: the numerical error allowed to ``exact``, from 0 up to the margin of the ledger.

    Raises:
        ValueError: an id, label or margin that the ledger does not have, a tolerance above the margin; otherwise as
            :func:`judge`.
        TypeError: as :func:`judge`.
    """
    margin = _registered(id, label).margin
    if margin is None:
        raise ValueError(f"margin of {id} {label!r} is missing in the ledger: fix it before the run, with a reason")
    if exact is None and tolerance is not None:
        raise ValueError("tolerance goes with exact; repeats are judged by the margin of the ledger")
    if exact is not None:
        limit, margin = margin, number("tolerance", tolerance, at_least=0.0)
        if margin > limit:
            raise ValueError(f"tolerance must be at most the margin of the ledger ({limit:g}), got {margin:g}")
    _publish(id, label, judge(stated=stated, margin=margin, corrected=corrected, repeats=repeats, exact=exact))


def bound(id: str, label: str, *, lhs: Values, rhs: Values, trivial: float | int | None = None) -> None:
    r"""Judge a bound that must hold in every repeat, :math:`\text{lhs}_i \le \text{rhs}_i`; show and record it.

    *violated* if a single repeat exceeds it by more than :math:`10^{-12}` of the larger side (rounding); else *holds,
    vacuous* if every :math:`\text{rhs}_i` is at least ``trivial``, *holds, non-vacuous* if every one is below it, and
    *undecided* if some are (judge the two regimes by two checks). Not for a bound on an expectation: check
    ``at_most(0)`` on repeats of lhs - rhs. Nor for a left side that is itself estimated with an error.

    Args:
        id: the claim.
        label: the name of the check, which has no margin in the ledger.
        lhs: ``[n]``, the bounded quantity in at least 5 repeats.
        rhs: ``[n]``, the bound in the same repeats.
        trivial: what holds without any theorem, such as 1 for a 0-1 loss; ``math.inf`` where nothing does.

    Raises:
        TypeError: ``trivial`` is missing, or values that are not floating-point.
        ValueError: an id or a label that the ledger does not have, NaN, infinity, fewer than 5 repeats, different
            lengths, or a margin in the ledger.
    """
    _without_margin(id, label)
    if trivial is None:
        raise TypeError("trivial must be a number: the value that needs no theorem, math.inf where there is none")
    limit = math.inf if trivial == math.inf else _real("trivial", trivial)
    left, right = _sample("lhs", lhs), _sample("rhs", rhs)
    if left.size != right.size:
        raise ValueError(f"rhs must have as many repeats as lhs ({left.size}), got {right.size}")
    violations = int((left - right > 1e-12 * np.maximum(abs(left), abs(right))).sum())
    vacuous = int((right >= limit).sum())
    word = {0: "holds, non-vacuous", right.size: "holds, vacuous"}.get(vacuous, "undecided")
    measured = {
        "least_slack": float((right - left).min()),
        "rhs_low": float(right.min()),
        "rhs_high": float(right.max()),
    }
    measured |= {"n": right.size, "violations": violations, "vacuous": vacuous, "trivial": limit}
    _publish(id, label, Verdict("bound", "violated" if violations else word, measured))


def ill_posed(id: str, label: str, *, instead: str) -> None:
    """Record that a claim has no truth value as stated, and name what is tested ``instead``; show the card.

    Args:
        id: the claim.
        label: the name of the check, which has no margin in the ledger.
        instead: another claim (``"G09"``) or a check of a claim (``"C20.uniform"``) in the ledger.

    Raises:
        ValueError: an id or a label that the ledger does not have, also inside ``instead``; ``instead`` is empty or
            names the check itself; the ledger gives a margin.
        TypeError: ``instead`` is not a string.
    """
    _without_margin(id, label)
    if not isinstance(instead, str):
        raise TypeError(f"instead must be a string, got {type(instead).__name__}")
    other, dot, name = instead.partition(".")
    if not instead or instead in (id, f"{id}.{label}"):
        raise ValueError(f"instead must name another claim or check that is tested instead, got {instead!r}")
    _registered(other, name) if dot else _claim(other)
    _publish(id, label, Verdict("ill-posed", "ill-posed", instead=instead))


def table(chapter: str) -> VerdictTable:
    """Every check that the ledger gives to ``chapter``, in the ledger's order, with its verdict or *not run*.

    A testable claim without any check is listed as *not tested yet*.

    Raises:
        ValueError: a chapter that the ledger does not have.
    """
    ledger = claims()
    known = {c.chapter for c in ledger.values()} | {k.chapter for c in ledger.values() for k in c.checks.values()}
    choice("chapter", chapter, sorted(known))
    rows: list[tuple[str, ...]] = []
    for id, claim in ledger.items():
        for label in (label for label, registered in claim.checks.items() if registered.chapter == chapter):
            v = _records.get((id, label))
            rows.append((id, label, v.word, v.claimed, v.found) if v else (id, label, "not run", "", ""))
        if not claim.checks and claim.chapter == chapter and claim.kind in TESTABLE:
            rows.append((id, "", "not tested yet", "", ""))
    return VerdictTable(chapter, tuple(rows))


def headline(words: Sequence[str]) -> str:
    """The common word of a claim's checks, or ``mixed``.

    >>> headline(["holds", "holds"]), headline(["holds", "undecided"])
    ('holds', 'mixed')
    """
    return words[0] if len(set(words)) == 1 else "mixed"


def claims() -> Mapping[str, Claim]:
    """The ledger by id, in its order, read once and again when the file changes.

    Raises:
        FileNotFoundError: there is no ledger where ``LIB_CLAIMS`` or the repository says.
        ValueError: a file that is no YAML, which the message names; or a row that breaks the schema of the header of
            ``book/claims.yml``; the message names the row.
    """
    path = _path()
    if not path.is_file():
        raise FileNotFoundError(f"no ledger of claims at {path}; set LIB_CLAIMS to the book's claims.yml")
    return _load(path, path.stat().st_mtime_ns)


def _path() -> Path:
    return Path(os.environ.get("LIB_CLAIMS") or Path(__file__).parents[1] / "book" / "claims.yml")


class _UniqueKeys(yaml.SafeLoader):
    """YAML in which a key given twice is an error; the plain loader keeps the last one in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key) for key, _ in node.value]
        if len(set(keys)) < len(keys):
            raise ValueError(f"line {node.start_mark.line + 1} of the ledger gives a key twice: {keys}")
        return super().construct_mapping(node, deep)


@lru_cache(maxsize=8)
def _load(path: Path, modified: int) -> Mapping[str, Claim]:
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeys)
    except (yaml.YAMLError, UnicodeDecodeError, TypeError) as error:  # TypeError: a list as a key
        raise ValueError(f"{path} is no YAML that can be read: {error}") from error
    keys = {"articles": dict, "claims": list}
    if not isinstance(document, dict) or {key: type(value) for key, value in document.items()} != keys:
        raise ValueError(f"{path} must hold a mapping articles and a list claims, and nothing else")
    ledger: dict[str, Claim] = {}
    for row in document["claims"]:
        claim = _row(row, document["articles"])
        if claim.id in ledger:
            raise ValueError(f"{claim.id} stands twice in {path}")
        ledger[claim.id] = claim
    return ledger


def _row(row: Any, articles: Mapping[str, Any]) -> Claim:
    where = f"claim {row.get('id') if isinstance(row, dict) else row!r}"

    def need(holds: bool, what: str) -> None:
        if not holds:
            raise ValueError(f"{where} in the ledger: {what}")

    required, optional = ("id", "statement", "article", "section", "kind", "chapter"), ("box", "treated_in", "source")
    need(isinstance(row, dict) and {*required, "checks"} <= set(row), f"the fields are {required} and checks")
    need(set(row) <= {*required, *optional, "checks"}, f"unknown fields {set(row) - {*required, *optional, 'checks'}}")
    for name in filter(row.__contains__, required + optional):
        need(isinstance(row[name], str) and bool(row[name].strip()), f"{name} must be a text, got {row[name]!r}")
    need(re.fullmatch(r"[A-Z]\d\d[a-z]?", row["id"]) is not None, "ids are like G05 or S14a")
    need(
        row["article"] in articles and row["id"][0] == row["article"], f"article is one of {[*articles]}, as in the id"
    )
    need(row["kind"] in TESTABLE + UNTESTABLE, f"kind is one of {TESTABLE + UNTESTABLE}, got {row['kind']!r}")
    untestable = row["kind"] in UNTESTABLE
    need(("treated_in" in row) == untestable, f"treated_in goes with the kinds {UNTESTABLE}, and only with them")
    need(isinstance(row["checks"], dict), "checks maps labels to a margin and a reason; without a check write {}")
    checks = {}
    for label, entry in row["checks"].items():
        where = f"claim {row['id']}, check {label!r}"
        need(
            isinstance(label, str) and bool(label.strip()) and isinstance(entry, dict),
            "a label maps to {margin, reason}",
        )
        need(set(entry) <= {"margin", "reason", "chapter"}, "the fields are margin, reason and chapter")
        margin, reason, chapter = entry.get("margin"), entry.get("reason"), entry.get("chapter", row["chapter"])
        need(isinstance(reason, str) and bool(reason.strip()), "a check needs a reason (for its margin, if it has one)")
        need(isinstance(chapter, str) and bool(chapter.strip()), f"chapter must be a text, got {chapter!r}")
        real = isinstance(margin, int | float) and not isinstance(margin, bool) and 0 < margin < math.inf
        need(
            margin is None or real,
            f"margin must be a number above 0, like 1.0e-12 (for YAML 1e-12 is a text), got {margin!r}",
        )
        checks[label] = Check(margin and float(margin), reason, chapter)
    fields = {**dict.fromkeys(optional), **row, "checks": checks, "box": row.get("box", row["id"])}
    return Claim(**fields)


def _claim(id: str) -> Claim:
    if not isinstance(id, str):
        raise TypeError(f"id must be a string, got {type(id).__name__}")
    ledger = claims()
    if id not in ledger:
        raise ValueError(f"id {id!r} is not a claim of {_path()}")
    return ledger[id]


def _registered(id: str, label: str) -> Check:
    known = _claim(id).checks
    if label not in known:
        raise ValueError(f"label {label!r} is not a check of {id} in {_path()}; it has {list(known)}")
    return known[label]


def _without_margin(id: str, label: str) -> None:
    if _registered(id, label).margin is not None:
        raise ValueError(f"margin of {id} {label!r} in {_path()} must go: only check() compares with a margin")


def _publish(id: str, label: str, verdict: Verdict) -> None:
    registered = _registered(id, label)
    verdict = replace(verdict, id=id, label=label, chapter=registered.chapter, reason=registered.reason)
    _records[id, label] = verdict
    # Outside IPython this prints the plain text.
    display(verdict)  # type: ignore[no-untyped-call]


def _real(name: str, value: Any) -> float:
    if isinstance(value, Tensor) and value.ndim == 0 and value.is_floating_point():
        value = value.item()
    return number(name, float(value) if isinstance(value, np.floating) else value)


def _region(name: str, value: Any) -> Region:
    if isinstance(value, Region):
        return value
    if isinstance(value, tuple):
        if len(value) != 2:
            raise ValueError(f"{name} must be a number, a pair (low, high), at_least(x) or at_most(x), got {value}")
        low, high = _real(name, value[0]), _real(name, value[1])
        if low >= high:
            raise ValueError(f"{name} must be a pair with low below high, got {value}")
        return Region(low, high)
    return Region(_real(name, value), _real(name, value))


def _sample(name: str, values: Any) -> NDArray[np.float64]:
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name} must be given without a mask, got a masked array: drop the masked repeats, and say so")
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        # numpy has no bfloat16.
        values = values.double().numpy() if values.is_floating_point() else values.numpy()
    array = np.asarray(values)
    if array.dtype.kind != "f":
        raise TypeError(f"{name} must hold real floating-point numbers, got {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"{name} must have one axis, the repeats, got shape {array.shape}")
    if array.size < MIN_REPEATS:
        raise ValueError(f"{name} must hold at least {MIN_REPEATS} independent repeats, got {array.size}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    return array.astype(np.float64)


def _interval(sample: NDArray[np.float64]) -> dict[str, float | int]:
    if sample.min() == sample.max():
        raise ValueError("repeats must differ: equal repeats are no repeats; a number without randomness goes to exact")
    n = sample.size
    mean = math.fsum(sample) / n
    # hypot neither under- nor overflows where squares would.
    error = math.hypot(*(sample - mean)) / math.sqrt(n * (n - 1))
    half = float(stats.t.ppf(0.995, n - 1)) * error
    return {"mean": mean, "low": mean - half, "high": mean + half, "standard_error": error, "n": n}


def _inside(low: float, high: float, region: Region, margin: float) -> bool:
    return low - region.low >= -margin and high - region.high <= margin


def _apart(low: float, high: float, region: Region, margin: float) -> bool:
    return high - region.low < -margin or low - region.high > margin


def _digits(value: float | int | None) -> str:
    return f"{value or 0.0:.6g}"


def _json(value: float | int) -> float | int | None:
    return value if math.isfinite(value) else None


def _css(word: str) -> str:
    return "verdict-" + re.sub("[^a-z]+", "-", word)


def _colour(word: str) -> str:
    # Each has a contrast of 3:1 on white and on black; the word always stands beside it.
    if word in ("violated", "fails as stated"):
        return "#d03b00"
    if word == "holds, vacuous":
        return "#9a6700"
    if word == "holds as corrected":
        return "#0072b2"
    return "#007a5a" if word.startswith("holds") else "#767676"
