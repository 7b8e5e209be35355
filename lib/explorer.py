"""One interactive picture, two lives: controls that recompute in Jupyter, precomputed frames in the built book."""

import base64
import html
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import ipywidgets
import matplotlib as mpl
from matplotlib import pyplot as plt

from lib import figures

MAX_FRAMES = 12
"""The most frames that one picture may have, over all combinations of its options."""

MAX_FRAME_BYTES = 30_000
"""The largest frame, in bytes of its PNG file."""

FALLBACK = "This is the picture's first frame. It moves in the built book and in a running notebook."
"""Shown where no script runs; the book's script hides it."""


@dataclass(frozen=True)
class Frame:
    """One state of the picture: the chosen values in words, the PNG file, and its description."""

    choice: str
    png: bytes = field(repr=False)
    alt: str


@dataclass(frozen=True)
class Explorer:
    """What :func:`explorer` returns; Jupyter and the book display it by themselves.

    Attributes:
        name: stem of the element ids in the page.
        options: the values of each control.
        frames: one per combination of values, the last option varying fastest.
        caption: the text under the picture, or None.
    """

    name: str
    options: Mapping[str, tuple[Any, ...]]
    frames: tuple[Frame, ...] = field(repr=False)
    caption: str | None
    _render: Callable[[Mapping[str, Any]], Frame] = field(repr=False)

    def html(self) -> str:
        """The picture for a page without a kernel: all frames, the first one shown, and native controls.

        The controls are hidden until the book's ``explorer.js`` runs; without it the first frame stands alone.
        The same input gives the same text, character by character, apart from the pictures' bytes.
        """
        controls = "".join(self._control(option) for option in self.options)
        frames = "".join(_image(frame, hidden=number > 0) for number, frame in enumerate(self.frames))
        return (
            f'<figure class="explorer" id="explorer-{self.name}">'
            f'<div class="explorer-frames">{frames}</div>'
            f'<div class="explorer-controls" hidden>{controls}</div>'
            f"{_text(self.frames[0].choice, self.caption)}"
            f'<p class="explorer-fallback">{FALLBACK}</p></figure>'
        )

    def widget(self) -> ipywidgets.VBox:
        """The picture for a live kernel: one control per option; each change calls ``draw`` again."""
        controls = {option: _widget_control(option, values) for option, values in self.options.items()}
        picture = ipywidgets.HTML(self._live(self.frames[0]))

        def redraw(_: Any) -> None:
            try:
                picture.value = self._live(self._render({name: control.value for name, control in controls.items()}))
            except Exception as error:
                # Jupyter shows a callback's exception only in its log: the reader would go on seeing the old picture.
                picture.value = f"<pre>{html.escape(f'{type(error).__name__}: {error}')}</pre>"
                raise

        for control in controls.values():
            control.observe(redraw, names="value")
        return ipywidgets.VBox([*controls.values(), picture])

    def _live(self, frame: Frame) -> str:
        return f'<figure class="explorer">{_image(frame)}{_text(frame.choice, self.caption)}</figure>'

    def _control(self, option: str) -> str:
        """A range input for numbers, radio buttons for words; both answer to the arrow keys."""
        values = self.options[option]
        words = [_words(value) for value in values]
        label, key = html.escape(_label(option)), f"explorer-{self.name}-{option.replace('_', '-')}"
        if _is_scale(values):
            steps = html.escape(json.dumps(words, ensure_ascii=False))
            return (
                f'<div class="explorer-control"><label for="{key}">{label}</label>'
                f'<input type="range" id="{key}" min="0" max="{len(values) - 1}" step="1" value="0" '
                f'autocomplete="off" data-values="{steps}" aria-valuetext="{html.escape(words[0])}">'
                f'<output for="{key}">{html.escape(words[0])}</output></div>'
            )
        buttons = "".join(
            f'<label><input type="radio" name="{key}" value="{index}" autocomplete="off"{" checked" * (index == 0)}>'
            f"{html.escape(word)}</label>"
            for index, word in enumerate(words)
        )
        return f'<fieldset class="explorer-control"><legend>{label}</legend>{buttons}</fieldset>'

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Both lives at once: JupyterLab takes the widget, the book is told to take the HTML."""
        model = self.widget().model_id
        return {
            "text/plain": repr(self),
            "text/html": self.html(),
            "application/vnd.jupyter.widget-view+json": {
                "version_major": 2,
                "version_minor": 0,
                "model_id": model,
            },
        }


def explorer(
    draw: Callable[..., object],
    *,
    options: Mapping[str, Sequence[Any]],
    alt: str | Callable[..., str],
    name: str,
    caption: str | None = None,
    size: tuple[float, float] = figures.SIZE,
    colours: int = 64,
) -> Explorer:
    """A picture with one control per option: recomputed in Jupyter, a set of ready frames in the built book.

    Args:
        draw: called as ``draw(figure, **choice)`` with an empty figure and one value per option; draws on that figure.
            Randomness needs a generator made inside ``draw``, or a frame depends on what was drawn before it.
        options: for each keyword of ``draw`` its values, at least 2, the first one shown first. Numbers in
            increasing or decreasing order get a slider, anything else gets buttons.
        alt: what the picture shows, for those who do not see it: a sentence (the chosen values are added to it) or
            ``alt(**choice)``, called after ``draw`` with the same choice.
        name: lower-case words joined by hyphens; once per page.
        caption: text under the picture.
        size: width and height in inches.
        colours: size of each frame's palette, as in :func:`lib.figures.png`.

    Returns:
        an object that displays itself; its frames are drawn at once, so that an error stops the cell that made it.

    Raises:
        TypeError: ``draw`` is not callable, ``options`` no mapping, the caption or an alternative text no string.
        ValueError: a bad name; no option, or one that cannot be a keyword; fewer than 2 values or two with the same
            label; more than 12 frames; a frame over 30 kB; an empty alternative text; a ``draw`` that opens figures of
            its own.

    >>> def draw(figure, n):
    ...     figure.subplots().plot([0, n])
    >>> shown = explorer(draw, options={"n": [1, 2, 4]}, alt="A line from 0 up to n.", name="line")
    >>> [frame.choice for frame in shown.frames]
    ['n = 1', 'n = 2', 'n = 4']
    """
    if not callable(draw):
        raise TypeError(f"draw must be callable, got {type(draw).__name__}")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise ValueError(f"name must be lower-case words joined by hyphens, got {name!r}")
    if not isinstance(options, Mapping):
        raise TypeError(f"options must be a mapping, got {type(options).__name__}")
    if not (caption is None or isinstance(caption, str)):
        raise TypeError(f"caption must be a string or None, got {type(caption).__name__}")
    for option in options:
        # Identifiers have no hyphen, so that different options also have different element ids.
        if not (isinstance(option, str) and option.isidentifier()):
            raise ValueError(f"options must have identifiers as keys, got {option!r}")
    values = {option: _values(option, given) for option, given in options.items()}
    choices = [dict(zip(values, combination, strict=True)) for combination in itertools.product(*values.values())]
    if not values or len(choices) > MAX_FRAMES:
        raise ValueError(f"options must give 2 to {MAX_FRAMES} frames in all, got {len(choices) if values else 0}")

    def render(choice: Mapping[str, Any]) -> Frame:
        picture = _picture(draw, choice, size=size, colours=colours)
        return Frame(_sentence(choice), picture, _alt(alt, choice))

    frames = tuple(render(choice) for choice in choices)
    for frame in frames:
        if len(frame.png) > MAX_FRAME_BYTES:
            raise ValueError(
                f"each frame must be at most {MAX_FRAME_BYTES} bytes, got {len(frame.png)} at {frame.choice}: "
                "draw fewer points, or lower size or colours"
            )
    return Explorer(name, values, frames, caption, render)


def _picture(
    draw: Callable[..., object], choice: Mapping[str, Any], *, size: tuple[float, float], colours: int
) -> bytes:
    figure = figures.new(size)
    before = set(plt.get_fignums())
    with mpl.rc_context(figures.RC):
        draw(figure, **choice)
    opened = set(plt.get_fignums()) - before
    for number in opened:
        plt.close(number)
    if opened or not figure.axes:
        raise ValueError("draw must draw on the figure that it is given, not on one of its own")
    return figures.png(figure, colours=colours)


def _values(option: str, given: Sequence[Any]) -> tuple[Any, ...]:
    values = tuple(given)
    words = [_words(value) for value in values]
    if len(values) < 2 or len(set(words)) < len(words):
        raise ValueError(f"options[{option!r}] must hold at least 2 values with different labels, got {words}")
    return values


def _alt(alt: str | Callable[..., str], choice: Mapping[str, Any]) -> str:
    text = f"{alt.strip()} Shown: {_sentence(choice)}." if isinstance(alt, str) and alt.strip() else alt
    text = text(**choice) if callable(text) else text
    if not isinstance(text, str):
        raise TypeError(f"alt must give a string, got {type(text).__name__}")
    if not text.strip():
        raise ValueError(f"alt must describe the picture, got an empty text at {_sentence(choice)}")
    return text


def _is_scale(values: Sequence[Any]) -> bool:
    """Numbers in order have a more and a less, which is what a slider shows."""
    if not all(isinstance(value, Real) and not isinstance(value, bool) for value in values):
        return False
    return list(values) in (sorted(values), sorted(values, reverse=True))


def _words(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _label(option: str) -> str:
    return option.replace("_", " ")


def _sentence(choice: Mapping[str, Any]) -> str:
    return ", ".join(f"{_label(option)} = {_words(value)}" for option, value in choice.items())


def _image(frame: Frame, *, hidden: bool = False) -> str:
    # The width and height stand in the PNG header; the browser then reserves the place before it decodes the picture.
    width, height = (int.from_bytes(frame.png[start : start + 4], "big") for start in (16, 20))
    return (
        f'<img src="data:image/png;base64,{base64.b64encode(frame.png).decode()}" width="{width}" height="{height}" '
        f'alt="{html.escape(frame.alt)}" data-choice="{html.escape(frame.choice)}"{" hidden" * hidden}>'
    )


def _text(choice: str, caption: str | None) -> str:
    below = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return f'<p class="explorer-choice" aria-live="polite">{html.escape(choice)}</p>{below}'


def _widget_control(option: str, values: tuple[Any, ...]) -> Any:
    settings: dict[str, Any] = {
        "description": _label(option),
        "options": [(_words(value), value) for value in values],
        "value": values[0],
        "style": {"description_width": "initial"},
    }
    if _is_scale(values):
        # Redraw when the handle is let go: draw may take longer than the hand.
        return ipywidgets.SelectionSlider(continuous_update=False, **settings)
    return ipywidgets.ToggleButtons(**settings)
