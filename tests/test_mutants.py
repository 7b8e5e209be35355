"""The list of seeded faults fits the sources, and its runner tells a fault that is caught from one that survives."""

from pathlib import Path

import mutants
import pytest

ROOT = Path(__file__).parents[1]
LIST = mutants.read(ROOT / "tests" / "mutants.yml")
# What holds no mathematics: a fault here is a matter of the unit tests alone.
NO_FAULTS_NEEDED = {"__init__", "compute", "validation", "figures", "explorer", "data"}


@pytest.mark.parametrize("mutant", LIST, ids=lambda mutant: f"{mutant.module}: {mutant.note}")
def test_fault_can_be_put_in(mutant: mutants.Mutant) -> None:
    assert mutants.mutated(mutant, ROOT)
    assert mutant.note
    assert mutants.unit_tests(mutant.module, ROOT)[1:], f"no test imports lib.{mutant.module}"


def test_every_module_with_mathematics_has_a_fault() -> None:
    modules = {path.stem for path in (ROOT / "lib").glob("*.py")} - NO_FAULTS_NEEDED
    assert modules == {mutant.module for mutant in LIST}


def test_notes_tell_faults_apart() -> None:
    assert len({mutant.note for mutant in LIST}) == len(LIST)


# --- the runner, on a repository of two functions ---------------------------------------------------------------------

SOURCE = '"""Toys."""\n\n\ndef double(x):\n    return 2 * x\n\n\ndef triple(x):\n    return 3 * x\n'
USER = '"""A module above."""\n\nfrom lib.toys import triple\n\n\ndef nine(x):\n    return triple(triple(x))\n'
TEST = "from lib.toys import double\n\n\ndef test_two():\n    assert double(2.0) == 4\n"
TEST_ABOVE = """
from lib import above, toys


def test_four():
    assert toys.double(4) == 8


def test_nine():
    assert above.nine(1) == 9
"""
CAUGHT = mutants.Mutant("lib/toys.py", "2 * x", "x + 2", "sum for product")
ABOVE = mutants.Mutant("lib/toys.py", "3 * x", "x**3", "power for product")
HIDDEN = mutants.Mutant("lib/toys.py", "return 2 * x", "return 2.0 * x", "float for integer")


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("toys")
    for name in ("lib", "tests", "book"):
        (root / name).mkdir()
    (root / "lib" / "__init__.py").touch()
    (root / "lib" / "toys.py").write_text(SOURCE)
    (root / "lib" / "above.py").write_text(USER)
    (root / "pytest.ini").write_text("[pytest]\naddopts = --doctest-modules\n")
    (root / "tests" / "test_toys.py").write_text(TEST)
    (root / "tests" / "test_above.py").write_text(TEST_ABOVE)
    return root


def test_tests_of_a_module_are_found(toys: Path) -> None:
    assert mutants.unit_tests("toys", toys) == ["lib/toys.py", "tests/test_toys.py", "tests/test_above.py"]
    assert mutants.unit_tests("above", toys) == ["lib/above.py", "tests/test_above.py"]
    assert mutants.reaching("toys", toys) == {"toys", "above"}


def test_runner(toys: Path, tmp_path: Path) -> None:
    copy = mutants.Copy(toys, tmp_path)
    mutants.check_copy(copy, ["toys"], timeout=60, with_chapters=False)
    assert copy.try_out(CAUGHT, timeout=60) == "tests/test_above.py::test_four"
    assert copy.try_out(ABOVE, timeout=60) == "tests/test_above.py::test_nine"
    assert copy.try_out(HIDDEN, timeout=60) == mutants.SURVIVED
    assert (copy.root / "lib" / "toys.py").read_text() == SOURCE
    assert (toys / "lib" / "toys.py").read_text() == SOURCE


def test_runner_refuses_a_copy_that_is_red(toys: Path, tmp_path: Path) -> None:
    copy = mutants.Copy(toys, tmp_path)
    (copy.root / "lib" / "toys.py").write_text(SOURCE.replace("2 * x", "x"))
    with pytest.raises(mutants.NoMutantError, match=r"red without any fault: tests/test_above\.py::test_four"):
        mutants.check_copy(copy, ["toys"], timeout=60, with_chapters=False)


def test_runner_refuses_a_copy_in_which_nothing_is_seen(
    toys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = mutants.Copy(toys, tmp_path)
    monkeypatch.setattr(copy, "pytest", lambda arguments, timeout: None)
    with pytest.raises(mutants.NoMutantError, match=r"does not import lib/toys\.py from the copy"):
        mutants.check_copy(copy, ["toys"], timeout=60, with_chapters=False)


@pytest.mark.parametrize(
    ("mutant", "message"),
    [
        (mutants.Mutant("lib/toys.py", "x\n", "y\n", "twice"), "stands 2 times, not once"),
        (mutants.Mutant("lib/toys.py", "4 * x", "5 * x", "never"), "stands 0 times, not once"),
        (mutants.Mutant("lib/toys.py", "Toys.", "Dolls.", "docstring"), "changes no code"),
    ],
)
def test_a_fault_that_does_not_fit_is_refused(toys: Path, mutant: mutants.Mutant, message: str) -> None:
    with pytest.raises(mutants.NoMutantError, match=message):
        mutants.mutated(mutant, toys)
