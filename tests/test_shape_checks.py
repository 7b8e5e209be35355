"""The shape annotations of ``lib`` are executed while tests run, and are off where error messages are tested."""

import jaxtyping
import pytest
import torch

from lib import neighbours

ONE_AXIS = torch.zeros(3, dtype=torch.float64)
CLOUD = torch.zeros(3, 2, dtype=torch.float64)


def test_a_wrong_shape_stops_at_the_annotation() -> None:
    with pytest.raises(jaxtyping.TypeCheckError):
        neighbours.nearest(ONE_AXIS, CLOUD)


def test_axes_with_one_name_must_agree() -> None:
    with pytest.raises(jaxtyping.TypeCheckError):
        neighbours.nearest(CLOUD, CLOUD[:, :1])


@pytest.mark.bad_input
def test_under_bad_input_our_validation_answers() -> None:
    with pytest.raises(ValueError, match=r"data must have 2 axes, got shape \(3,\)"):
        neighbours.nearest(ONE_AXIS, CLOUD)


def test_the_checks_are_on_again() -> None:
    assert not jaxtyping.config.jaxtyping_disable
    test_a_wrong_shape_stops_at_the_annotation()
