"""The book's one picture style: colours, sizes, and the few plot elements that chapters share.

Call :func:`style` once in a chapter's first cell. Pictures are opaque and white, and so stay legible on a dark page.
"""

import io
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import torch
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from mpl_toolkits.mplot3d import Axes3D
from PIL import Image

from lib import validation

# Okabe and Ito (2008), "Color Universal Design": distinguishable with every common form of colour blindness.
BLACK = "#000000"
ORANGE = "#E69F00"
SKY = "#56B4E9"
GREEN = "#009E73"
YELLOW = "#F0E442"
BLUE = "#0072B2"
VERMILLION = "#D55E00"
PURPLE = "#CC79A7"
GREY = "#6B6B6B"
"""Guides, wireframes and notes; not a data colour."""

CYCLE = (BLUE, VERMILLION, GREEN, PURPLE, BLACK, ORANGE, SKY)
"""The order in which series take their colours, most contrast on white first; yellow is left out."""

SIZE = (6.4, 3.8)  # inches, the default
SQUARE = (4.8, 4.8)  # inches, for a picture of the sphere
DPI = 120  # a default picture is 768 pixels wide, as wide as the text of a page

Kind = Literal["shape", "data", "outputs"]
Place = int | tuple[int, int, int]
Dashes = Literal["--", ":", "-."]

# The first figure of the book: where data may lie (red, dense), the data (crosses), what the model can return (blue).
_KINDS: dict[str, dict[str, Any]] = {
    "shape": {"color": VERMILLION, "marker": "o", "s": 5, "linewidths": 0},
    "data": {"color": BLACK, "marker": "x", "s": 46, "linewidths": 1.8},
    "outputs": {"color": BLUE, "marker": "o", "s": 16, "linewidths": 0},
}

RC: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.prop_cycle": cycler(color=CYCLE),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "figure.constrained_layout.use": True,
    "figure.dpi": DPI,
    "figure.facecolor": "white",
    "figure.figsize": SIZE,
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same picture on every machine
    "font.size": 12,  # points, as axis labels and titles
    "grid.color": "#DDDDDD",
    "legend.fontsize": 11,
    "legend.frameon": False,
    "savefig.facecolor": "white",
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
}
"""The style, as matplotlib's settings."""


def style() -> None:
    """Make the book's style the default of every later matplotlib figure; calling it again changes nothing.

    >>> style()
    >>> mpl.rcParams["figure.facecolor"]
    'white'
    """
    mpl.rcParams.update(RC)


def new(size: tuple[float, float] = SIZE) -> Figure:
    """An empty figure in the book's style that pyplot does not know, so that nobody has to close it.

    Args:
        size: width and height in inches, both above 0.

    Raises:
        ValueError: a size that is not above 0.

    >>> new().get_size_inches().tolist()
    [6.4, 3.8]
    """
    width, height = (validation.number("size", side, above=0.0) for side in size)
    with mpl.rc_context(RC):
        return Figure(figsize=(width, height))


def png(figure: Figure, *, colours: int = 64) -> bytes:
    """The figure as a small PNG file: ``colours`` flat colours, no time stamp, the same bytes on every run.

    Args:
        figure: what to draw.
        colours: size of the palette, 2 to 256. Line art needs few; a colour map needs more.

    Returns:
        the file's bytes, typically 8 to 25 kB for a figure of the default size.

    Raises:
        ValueError: ``colours`` outside 2 to 256.

    >>> png(new())[:4]
    b'\\x89PNG'
    """
    validation.count("colours", colours, minimum=2, maximum=256)
    raw, small = io.BytesIO(), io.BytesIO()
    with mpl.rc_context(RC):
        figure.savefig(raw, format="png", metadata={"Software": None})
    picture = Image.open(raw).convert("RGB")
    flat = picture.quantize(colours, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    flat.save(small, "png", optimize=True)
    return small.getvalue()


def loglog(ax: Axes, *, x: str = "", y: str = "", ticks: Any = None) -> Axes:
    """Give both axes a logarithmic scale with labels that do not run into each other; return ``ax``.

    Args:
        ax: the axes.
        x: label of the abscissa.
        y: label of the ordinate.
        ticks: abscissae to mark, in plain numbers, such as the sample sizes of a sweep; powers of ten if omitted.

    Raises:
        ValueError: ticks that are not above 0 and finite.

    >>> ax = loglog(new().subplots(), x="n", ticks=[16, 64])
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['16', '64']
    """
    ax.set_xscale("log")
    ax.set_yscale("log")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_formatter(_between_decades(axis))
    if ticks is not None:
        marks = _array(ticks)
        if not (np.isfinite(marks).all() and (marks > 0).all()):
            raise ValueError(f"ticks must be above 0 and finite, got {marks.tolist()}")
        ax.set_xticks(marks, [f"{mark:g}" for mark in marks])
        ax.set_xticks([], minor=True)
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    return ax


def guide(
    ax: Axes, x: Any, slope: float, *, through: tuple[float, float], label: str | None = None, linestyle: Dashes = "--"
) -> Axes:
    r"""Draw the power law of a given slope through one point, as a broken grey line; return ``ax``.

    .. math:: y(x) = y_0 \, (x / x_0)^{\text{slope}}

    Args:
        ax: axes, in general with two logarithmic scales.
        x: where to draw, ``[k]``, all above 0; list, array or tensor on any device.
        slope: the exponent.
        through: the point :math:`(x_0, y_0)`, both above 0.
        label: the legend's entry; "slope -1" and the like if omitted.
        linestyle: dashed, dotted or both, to tell several guides apart.

    Raises:
        ValueError: an ``x`` or a coordinate of ``through`` that is not above 0.

    >>> ax = guide(new().subplots(), [1, 10], -1.0, through=(1.0, 5.0))
    >>> ax.lines[0].get_ydata().tolist()
    [5.0, 0.5]
    """
    along = _array(x)
    if along.size == 0 or not (np.isfinite(along).all() and along.min() > 0):
        raise ValueError(f"x must be above 0 and finite, got {along.tolist()}")
    slope = validation.number("slope", slope)
    x0, y0 = (validation.number("through", value, above=0.0) for value in through)
    label = f"slope {slope:g}".replace("-", "\N{MINUS SIGN}") if label is None else label
    ax.plot(along, y0 * (along / x0) ** slope, linestyle, color=GREY, linewidth=1.5, zorder=1.5, label=label)
    return ax


def error_band(ax: Axes, x: Any, low: Any, high: Any, *, centre: Any, **line: Any) -> Axes:
    """Draw the curve ``centre`` over the shaded band from ``low`` to ``high``, in one colour; return ``ax``.

    Args:
        ax: the axes.
        x: abscissae, ``[k]``; list, array or tensor on any device, as all that follow.
        low: lower ends, ``[k]``.
        high: upper ends, ``[k]``, none below its ``low``.
        centre: the curve, ``[k]``.
        line: ``color``, ``label`` and the other properties of the curve.

    Raises:
        ValueError: lengths that differ, NaN or infinity in ``x`` or ``centre``, or an upper end below its lower end.
    """
    curves = {name: _array(value) for name, value in (("x", x), ("low", low), ("high", high), ("centre", centre))}
    if curves["x"].ndim != 1 or len({curve.shape for curve in curves.values()}) != 1:
        shapes = ", ".join(f"{name} {curve.shape}" for name, curve in curves.items())
        raise ValueError(f"x and the band's curves must have the same shape [k], got {shapes}")
    for name in ("x", "centre"):
        if not np.isfinite(curves[name]).all():
            raise ValueError(f"{name} must be finite, got NaN or infinity")
    if not (curves["low"] <= curves["high"]).all():
        raise ValueError("high must be at least low everywhere, got an upper end below its lower end (or NaN)")
    (drawn,) = ax.plot(curves["x"], curves["centre"], **line)
    ax.fill_between(curves["x"], curves["low"], curves["high"], alpha=0.25, linewidth=0, color=drawn.get_color())
    return ax


def sphere_axes(
    figure: Figure, *, position: Place = 111, view: tuple[float, float] = (20.0, -50.0), title: str = ""
) -> Axes3D:
    """Three-dimensional axes without a box, around a light wireframe of the unit sphere, for :func:`sphere_points`.

    Args:
        figure: where to add the axes; ``SQUARE`` suits one sphere.
        position: place in the grid, as in ``figure.add_subplot``.
        view: elevation and azimuth of the eye, in degrees.
        title: above the sphere.
    """
    place = (position,) if isinstance(position, int) else tuple(position)
    ax: Axes3D = figure.add_subplot(*place, projection="3d")
    ax.view_init(elev=view[0], azim=view[1])
    ax.set_proj_type("ortho")  # in perspective the near side is less than half of the sphere
    angle = np.linspace(0.0, 2 * np.pi, 73)
    cos, sin = np.cos(angle), np.sin(angle)
    latitudes, longitudes = np.deg2rad([-60, -30, 0, 30, 60]), np.deg2rad(range(0, 180, 30))
    circles = [(np.cos(at) * cos, np.cos(at) * sin, np.full_like(angle, np.sin(at))) for at in latitudes]
    circles += [(np.cos(at) * cos, np.sin(at) * cos, sin) for at in longitudes]
    eye = _eye(ax)
    for circle in circles:
        front = eye @ np.array(circle) >= 0
        # The far half is drawn paler: a wireframe alone looks the same from both sides.
        for half, colour in ((front, "#AAAAAA"), (~front, "#E6E6E6")):
            ax.plot(*np.where(half, circle, np.nan), color=colour, linewidth=0.8, zorder=1)
    ax.set_aspect("equal")
    ax.set_box_aspect((1, 1, 1), zoom=1.5)
    ax.set_axis_off()
    ax.set_title(title)
    return ax


def sphere_points(ax: Axes3D, points: Any, *, kind: Kind, label: str | None = None) -> Axes3D:
    """Add points to :func:`sphere_axes`: the shape (dense, red), the data (crosses) or a model's outputs (blue).

    Points on the far side are drawn paler, as seen from the view that the axes have now.

    Args:
        ax: axes made by :func:`sphere_axes`.
        points: ``[n, 3]``; array or tensor on any device.
        kind: which of the three styles.
        label: the legend's entry.

    Raises:
        ValueError: points that are not ``[n, 3]`` or not finite, or an unknown kind.
    """
    validation.choice("kind", kind, tuple(_KINDS))
    cloud = _array(points)
    if cloud.ndim != 2 or cloud.shape[1] != 3 or not np.isfinite(cloud).all():
        raise ValueError(f"points must have shape [n, 3] and be finite, got shape {cloud.shape}")
    front = cloud @ _eye(ax) >= 0
    layer = {"shape": 2.0, "outputs": 3.0, "data": 4.0}[kind]
    ax.computed_zorder = False
    for half, alpha, name in ((~front, 0.18, None), (front, 1.0, label)):
        ax.scatter(*cloud[half].T, alpha=alpha, label=name, zorder=layer, depthshade=False, **_KINDS[kind])
    return ax


def legend_below(figure: Figure, *, columns: int = 3) -> None:
    """One legend under all axes of the figure, each label once, for pictures that leave no room inside."""
    entries: dict[str, Any] = {}
    for ax in figure.axes:
        handles, labels = ax.get_legend_handles_labels()
        entries = dict(zip(labels, handles, strict=True)) | entries
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=columns)


def _eye(ax: Axes3D) -> Any:
    """The unit vector from the origin towards the eye."""
    elevation, azimuth = np.deg2rad([ax.elev, ax.azim])
    return np.array([np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)])


def _between_decades(axis: Any) -> FuncFormatter:
    """Labels 2 and 5 between powers of ten, where fewer than two powers may be in sight; otherwise none."""

    def label(value: float, _: Any = None) -> str:
        low, high = sorted(axis.get_view_interval())
        lead = round(value / 10 ** np.floor(np.log10(value)))
        return f"{value:g}" if high < 20 * low and lead in (2, 5) else ""

    return FuncFormatter(label)


def _array(value: Any) -> Any:
    """A float array on the CPU, whatever device the value lives on."""
    return np.asarray(value.detach().cpu() if isinstance(value, torch.Tensor) else value, dtype=float)
