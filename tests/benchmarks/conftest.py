"""The library beside the tool a reader would use instead: one thread, in alternation, agreement first.

    pytest tests/benchmarks -o addopts=

A ratio is the median CPU time of ``lib`` over that of the peer, so that below 1 ``lib`` is faster. Nothing here is
asserted on time, because machines differ; what is asserted is that both give the same answer.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from threadpoolctl import threadpool_limits

ROWS = pytest.StashKey[list[dict[str, Any]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[ROWS] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "benchmarks" in item.path.parts:
            item.add_marker(pytest.mark.filterwarnings("ignore"))  # the peers' warnings are theirs
            item.add_marker(pytest.mark.benchmark(timer=time.process_time))


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def compare(benchmark: Any, request: pytest.FixtureRequest, one_thread: None) -> Callable[..., None]:
    """``compare(workload, peer, ours, theirs, agree, gate=, aim=)`` times both, one after the other in each round."""

    def run(
        workload: str,
        peer: str,
        ours: Callable[[], Any],
        theirs: Callable[[], Any],
        agree: Callable[[Any, Any], None],
        *,
        gate: float | None,
        aim: float,
        rounds: int = 5,
    ) -> None:
        # Here, not in the fixture: only thread pools of libraries that are loaded by now can be limited.
        with threadpool_limits(1):
            agree(ours(), theirs())  # also the warm-up
            seconds = []

            def peer_first() -> None:
                start = time.process_time()
                theirs()
                seconds.append(time.process_time() - start)

            benchmark.pedantic(ours, setup=peer_first, rounds=rounds)
        mine, other = benchmark.stats.stats.median, statistics.median(seconds)
        row = {
            "workload": workload, "peer": peer, "ratio": mine / other, "gate": gate, "aim": aim,
            "lib_seconds": mine, "peer_seconds": other,
        }  # fmt: skip
        benchmark.extra_info.update(row)
        request.config.stash[ROWS].append(row)

    return run


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    rows = config.stash.get(ROWS, [])
    if not rows:
        return
    terminalreporter.section("lib / peer, CPU time on one thread (differences within 30 % are noise)")
    terminalreporter.line(f"{'workload':34} {'peer':28} {'lib s':>8} {'peer s':>8} {'ratio':>6} {'goal':>6} {'aim':>5}")
    for row in rows:
        gate = "none" if row["gate"] is None else f"{row['gate']:.2f}"
        terminalreporter.line(
            f"{row['workload']:34} {row['peer']:28} {row['lib_seconds']:8.3f} {row['peer_seconds']:8.3f} "
            f"{row['ratio']:6.2f} {gate:>6} {row['aim']:5.2f}"
        )
