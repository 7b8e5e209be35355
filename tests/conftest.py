"""Shape annotations are executed while tests run; tests of error messages see the library as its users do."""

from collections.abc import Iterator

import jaxtyping
import pytest


@pytest.fixture(autouse=True)
def _our_validation_answers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Under the marker ``bad_input`` the shape checks are off.

    Otherwise the annotation raises first, and the missing validation that users would meet stays hidden.
    """
    switched_off = request.node.get_closest_marker("bad_input") is not None
    jaxtyping.config.update("jaxtyping_disable", switched_off)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
