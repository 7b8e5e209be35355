"""The picture style: legible colours, opaque small files, and plot elements that draw what they say."""

import io
from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from PIL import Image

from lib import figures

# The rows of the Machado, Oliveira and Fernandes (2009) matrices at severity 1, on linear RGB.
DEFICIENCIES = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


@pytest.fixture(autouse=True)
def default_style():
    with mpl.rc_context():
        yield
    assert plt.get_fignums() == []


def linear(colour: str) -> np.ndarray:
    value = np.array(to_rgb(colour))
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def contrast_on_white(colour: str) -> float:
    return 1.05 / (float(linear(colour) @ [0.2126, 0.7152, 0.0722]) + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ rgb.clip(0, 1)
    f = np.cbrt(xyz / [0.9505, 1.0, 1.089])
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)


@pytest.mark.parametrize("deficiency", [None, *DEFICIENCIES])
def test_the_first_four_series_are_told_apart_by_every_eye(deficiency):
    matrix = np.eye(3) if deficiency is None else np.array(DEFICIENCIES[deficiency])
    seen = [lab(matrix @ linear(colour)) for colour in figures.CYCLE[:4]]
    distances = [float(np.linalg.norm(a - b)) for i, a in enumerate(seen) for b in seen[:i]]
    # 2.3 is the just noticeable difference of two fields side by side; lines need several times that.
    assert min(distances) > 15


def test_series_have_contrast_with_the_page():
    # WCAG 2.1, 1.4.11: 3 to 1 for graphics, 1.4.3: 4.5 to 1 for text.
    assert min(contrast_on_white(colour) for colour in (figures.BLUE, figures.VERMILLION, figures.GREEN)) >= 3
    assert contrast_on_white(figures.GREY) >= 4.5
    assert figures.YELLOW not in figures.CYCLE


def test_style_is_idempotent_and_every_new_figure_follows_it():
    figures.style()
    once = dict(mpl.rcParams)
    figures.style()
    assert dict(mpl.rcParams) == once
    figure = plt.figure()
    assert tuple(figure.get_size_inches()) == figures.SIZE
    assert figure.get_facecolor() == (1, 1, 1, 1)
    plt.close(figure)


def test_new_has_the_style_without_changing_the_defaults():
    before = dict(mpl.rcParams)
    figure = figures.new(figures.SQUARE)
    assert figure.dpi == figures.DPI
    assert figure.get_facecolor() == (1, 1, 1, 1)
    assert dict(mpl.rcParams) == before


def sweep() -> tuple:
    figure = figures.new()
    ax = figures.loglog(figure.subplots(), x="n", y="gap")
    n = np.array([16.0, 64, 256])
    figures.error_band(ax, n, 0.5 / n, 2 / n, centre=1 / n, label="data")
    return figure, ax


def test_png_is_deterministic_opaque_and_small():
    first, second = (figures.png(sweep()[0]) for _ in range(2))
    assert first == second
    picture = Image.open(io.BytesIO(first))
    assert picture.size == (768, 456)
    assert "transparency" not in picture.info
    assert not {"Software", "Creation Time"} & set(picture.info)
    assert pixels(first)[0, 0].tolist() == [255, 255, 255]
    assert len(first) < 20_000


def test_png_keeps_the_series_colours():
    figure = figures.new()
    figure.subplots().fill_between([0, 1], 0, 1, color=figures.BLUE, linewidth=0)
    middle = pixels(figures.png(figure))[200, 400]
    assert np.abs(middle - np.round(255 * np.array(to_rgb(figures.BLUE)))).max() <= 3


def test_the_picture_of_an_inline_cell_stays_under_100_kb():
    figures.style()
    raw = io.BytesIO()
    sweep()[0].savefig(raw, bbox_inches="tight")
    assert len(raw.getvalue()) < 100_000


def test_loglog_labels_do_not_overlap_over_few_decades():
    figure, ax = sweep()
    figure.draw_without_rendering()
    for axis in (ax.xaxis, ax.yaxis):
        labels = axis.get_ticklabels(which="both")
        boxes = [label.get_window_extent() for label in labels if label.get_text() and label.get_visible()]
        low, high = axis.get_view_interval()
        inside = [
            box
            for box, at in zip(boxes, [label.get_position() for label in labels if label.get_text()], strict=True)
            if low <= at[0 if axis is ax.xaxis else 1] <= high
        ]
        assert len(inside) >= 1
        ordered = sorted(inside, key=lambda box: (box.x0, box.y0))
        assert not any(left.overlaps(right) for left, right in pairwise(ordered))


def test_loglog_names_ticks_within_one_decade():
    figure = figures.new()
    ax = figures.loglog(figure.subplots())
    ax.plot([12, 60], [1, 1])
    figure.draw_without_rendering()
    texts = {label.get_text() for label in ax.get_xticklabels(which="minor")}
    assert {"20", "50"} <= texts


def test_loglog_marks_the_given_ticks():
    ax = figures.loglog(figures.new().subplots(), ticks=torch.tensor([16, 32]))
    assert [label.get_text() for label in ax.get_xticklabels()] == ["16", "32"]
    assert ax.get_xticks().tolist() == [16, 32]


@pytest.mark.parametrize("slope", [-2.0, -0.5, 1.0])
def test_guide_has_the_slope_and_passes_through_the_point(slope):
    ax = figures.guide(figures.new().subplots(), torch.tensor([2.0, 8.0, 32.0]), slope, through=(8.0, 3.0))
    x, y = (np.asarray(data) for data in ax.lines[0].get_data())
    assert np.diff(np.log(y)) / np.diff(np.log(x)) == pytest.approx([slope, slope])
    assert y[1] == pytest.approx(3.0)
    assert ax.lines[0].get_label() == f"slope {slope:g}".replace("-", "\N{MINUS SIGN}")


def test_error_band_takes_tensors_and_keeps_one_colour():
    x = torch.arange(1.0, 4.0, requires_grad=True)
    ax = figures.error_band(figures.new().subplots(), x, x - 1, x + 1, centre=x, color=figures.GREEN, label="data")
    assert ax.lines[0].get_ydata().tolist() == [1.0, 2.0, 3.0]
    assert mpl.colors.same_color(ax.lines[0].get_color(), ax.collections[0].get_facecolor()[0][:3])
    low, high = ax.collections[0].get_datalim(ax.transData).get_points()[:, 1]
    assert (low, high) == (0.0, 4.0)
    assert ax.get_legend_handles_labels()[1] == ["data"]


def test_sphere_draws_the_near_half_strong_and_the_far_half_pale():
    figure = figures.new(figures.SQUARE)
    ax = figures.sphere_axes(figure, view=(0.0, 0.0))
    for line in ax.lines:
        xyz = np.array(line.get_data_3d())
        np.testing.assert_allclose(np.nanmax(np.linalg.norm(xyz, axis=0)), 1.0)
    # The eye is on the x axis.
    figures.sphere_points(ax, torch.tensor([[1.0, 0, 0], [-1.0, 0, 0]]), kind="data", label="data")
    near, far = sorted(ax.collections, key=lambda points: -points.get_alpha())
    assert near.get_alpha() == 1.0
    assert far.get_alpha() < 0.5
    assert near._offsets3d[0].tolist() == [1.0]
    assert far._offsets3d[0].tolist() == [-1.0]
    assert ax.get_legend_handles_labels()[1] == ["data"]


def test_spheres_stand_side_by_side():
    figure = figures.new()
    left, right = (figures.sphere_axes(figure, position=(1, 2, place), title=str(place)) for place in (1, 2))
    figure.draw_without_rendering()
    assert left.get_position().x1 <= right.get_position().x0 + 1e-9
    assert [left.get_title(), right.get_title()] == ["1", "2"]


def test_legend_below_names_each_label_once():
    figure = figures.new()
    axes = figure.subplots(1, 2)
    for ax in axes:
        ax.plot([0, 1], label="shape")
    figures.legend_below(figure)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["shape"]


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda ax: figures.new((0.0, 1.0)), "size"),
        (lambda ax: figures.png(ax.figure, colours=1), "colours"),
        (lambda ax: figures.loglog(ax, ticks=[0.0, 1.0]), "ticks must be above 0"),
        (lambda ax: figures.loglog(ax, ticks=[1.0, float("nan")]), "ticks must be above 0"),
        (lambda ax: figures.guide(ax, [0.0, 1.0], -1.0, through=(1.0, 1.0)), "x must be above 0"),
        (lambda ax: figures.guide(ax, [], -1.0, through=(1.0, 1.0)), "x must be above 0"),
        (lambda ax: figures.guide(ax, [1.0, float("nan")], -1.0, through=(1.0, 1.0)), "x must be above 0"),
        (lambda ax: figures.guide(ax, [1.0], float("inf"), through=(1.0, 1.0)), "slope"),
        (lambda ax: figures.guide(ax, [1.0], -1.0, through=(0.0, 1.0)), "through"),
        (lambda ax: figures.error_band(ax, [1, 2], [0, 0], [1, 1, 1], centre=[0, 0]), r"low \(2,\), high \(3,\)"),
        (lambda ax: figures.error_band(ax, [1], [2], [1], centre=[1]), "high must be at least low"),
        (lambda ax: figures.error_band(ax, [1], [float("nan")], [1], centre=[1]), "high must be at least low"),
        (lambda ax: figures.error_band(ax, [float("nan")], [0], [1], centre=[1]), "x must be finite"),
        (lambda ax: figures.error_band(ax, [1], [0], [1], centre=[float("nan")]), "centre must be finite"),
        (lambda ax: figures.error_band(ax, [1], [0], [1], centre=[1, 2]), r"centre \(2,\)"),
        (lambda ax: figures.sphere_points(ax, np.ones((3, 2)), kind="data"), r"points must have shape \[n, 3\]"),
        (lambda ax: figures.sphere_points(ax, np.full((3, 3), np.nan), kind="data"), "be finite"),
        (lambda ax: figures.sphere_points(ax, np.ones((3, 3)), kind="dots"), "kind must be one of"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(figures.new().subplots())
