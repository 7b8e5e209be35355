"""The interactive picture: frames and controls for a page without a kernel, widgets that recompute with one."""

import io
import re
from functools import cache
from html.parser import HTMLParser

import ipywidgets
import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from PIL import Image

from lib import explorer as module
from lib import figures
from lib.explorer import explorer

SMALL = (2.0, 1.5)


@pytest.fixture(autouse=True)
def no_figure_leaks():
    yield
    assert plt.get_fignums() == []


def draw(figure, **choice):
    ax = figure.subplots()
    for height, value in enumerate(choice.values()):
        ax.bar(height, len(str(value)) if isinstance(value, str) else float(value or 0))


@cache
def default():
    return make(draw=draw)


def make(**changes):
    settings_ = {"options": {"n": [1, 2, 4], "law": ["plain", "axis"]}, "alt": "Two bars.", "name": "bars"}
    return explorer(changes.pop("draw", draw), size=SMALL, **(settings_ | changes))


class Tree(HTMLParser):
    """The elements of a piece of HTML: (tag, attributes), with the text that follows each start tag."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open = [], []
        self.feed(text)
        assert self.open == [], f"unclosed elements: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), []))
        if tag not in ("img", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.elements[-1][2].append(data)

    def all(self, tag, **wanted):
        found = [element for element in self.elements if element[0] == tag]
        return [element for element in found if all(element[1].get(key) == value for key, value in wanted.items())]


# --- the page without a kernel ---------------------------------------------------------------------------------------


def test_one_frame_per_combination_the_last_option_fastest():
    shown = default()
    assert [frame.choice for frame in shown.frames] == [
        f"n = {n}, law = {law}" for n in (1, 2, 4) for law in ("plain", "axis")
    ]
    assert len({frame.png for frame in shown.frames}) == 6


def test_each_frame_is_the_drawing_of_its_choice():
    frame = default().frames[3]
    figure = figures.new(SMALL)
    with mpl.rc_context(figures.RC):
        draw(figure, n=2, law="axis")
    assert frame.png == figures.png(figure)


def test_html_shows_the_first_frame_and_hides_the_controls_until_a_script_runs():
    tree = Tree(make(caption="What it shows").html())
    images = tree.all("img")
    assert ["hidden" in image[1] for image in images] == [False] + [True] * 5
    assert [image[1]["alt"] for image in images][4] == "Two bars. Shown: n = 4, law = plain."
    assert all(image[1]["src"].startswith("data:image/png;base64,") for image in images)
    (controls,) = [element for element in tree.elements if element[1].get("class") == "explorer-controls"]
    assert "hidden" in controls[1]
    (live,) = [element for element in tree.elements if "aria-live" in element[1]]
    assert live[2] == ["n = 1, law = plain"]
    assert tree.all("figcaption")[0][2] == ["What it shows"]
    (fallback,) = [element for element in tree.elements if element[1].get("class") == "explorer-fallback"]
    assert fallback[2] == [module.FALLBACK]


def test_numbers_get_a_slider_and_words_get_buttons_all_labelled():
    tree = Tree(default().html())
    ((_, slider, _),) = tree.all("input", type="range")
    assert (slider["min"], slider["max"], slider["value"]) == ("0", "2", "0")
    assert tree.all("label", **{"for": slider["id"]})[0][2] == ["n"]
    buttons = tree.all("input", type="radio")
    assert ["checked" in button[1] for button in buttons] == [True, False]
    assert len({button[1]["name"] for button in buttons}) == 1
    assert tree.all("legend")[0][2] == ["law"]


def test_html_is_deterministic_but_for_the_picture():
    first, second = default().html(), make(draw=lambda figure, **choice: figure.subplots().plot([1, 2])).html()
    blank = lambda text: re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", text)  # noqa: E731
    assert first == make(draw=draw).html()
    assert first != second
    assert blank(first) == blank(second)


def test_ids_come_from_the_name_and_are_unique():
    ids = re.findall(r' id="([^"]+)"', default().html() + make(name="other").html())
    assert len(ids) == len(set(ids))
    assert all(id_.startswith(("explorer-bars", "explorer-other")) for id_ in ids)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=8), min_size=2, max_size=3, unique=True), st.text(min_size=1))
def test_any_text_survives_as_text(words, caption):
    png = io.BytesIO()
    Image.new("RGB", (2, 3)).save(png, "png")
    frames = tuple(module.Frame(word, png.getvalue(), word) for word in words)
    shown = module.Explorer("name", {"word": tuple(words)}, frames, caption, lambda choice: frames[0])
    tree = Tree(shown.html())
    # A parser normalises line ends and drops nulls only in the page, not in what we wrote.
    assert [image[1]["alt"] for image in tree.all("img")] == words
    assert [image[1]["data-choice"] for image in tree.all("img")] == words
    assert "".join(tree.all("figcaption")[0][2]) == caption
    assert len(tree.all("script")) == 0


def test_the_size_in_the_page_is_the_size_of_the_picture():
    ((_, image, _), *_) = Tree(default().html()).all("img")
    assert (int(image["width"]), int(image["height"])) == Image.open(io.BytesIO(default().frames[0].png)).size


def test_alt_may_depend_on_the_choice():
    shown = make(alt=lambda n, law: f"{n} of {law}")
    assert [frame.alt for frame in shown.frames][:2] == ["1 of plain", "1 of axis"]


@pytest.mark.parametrize(
    ("values", "words", "slider"),
    [
        ([0.1, 0.25], ["0.1", "0.25"], True),
        ([4, 2, 1], ["4", "2", "1"], True),
        (list(np.array([16, 32])), ["16", "32"], True),
        ([2, 1, 4], ["2", "1", "4"], False),
        ([False, True], ["no", "yes"], False),
        ([None, "axis"], ["none", "axis"], False),
    ],
)
def test_labels_and_the_choice_of_control(values, words, slider):
    shown = make(options={"group_size": values})
    assert [frame.choice for frame in shown.frames] == [f"group size = {word}" for word in words]
    assert bool(Tree(shown.html()).all("input", type="range")) is slider
    assert isinstance(shown.widget().children[0], ipywidgets.SelectionSlider) is slider


def test_draw_gets_the_style_whatever_the_notebook_has_set():
    seen = []

    def record(figure, n):
        ax = figure.subplots()
        (line,) = ax.plot([0, n])
        seen.append((line.get_color(), figure.get_facecolor(), tuple(figure.get_size_inches())))

    explorer(record, options={"n": [1, 2]}, alt="A line.", name="line")
    assert seen == [(figures.BLUE, (1, 1, 1, 1), figures.SIZE)] * 2


# --- the live kernel -------------------------------------------------------------------------------------------------


def parts(shown):
    *controls, picture = shown.widget().children
    return controls, picture


def test_a_moved_control_redraws_with_the_present_state_of_the_kernel():
    state = {"scale": 1.0}

    def scaled(figure, n):
        figure.subplots(subplot_kw={"ylim": (0, 10)}).bar(0, n * state["scale"])

    shown = make(draw=scaled, options={"n": [1, 2]})
    (slider,), picture = parts(shown)
    assert picture.value == shown._live(shown.frames[0])
    slider.value = 2
    assert picture.value == shown._live(shown.frames[1])
    state["scale"] = 3.0
    slider.value = 1
    assert "n = 1" in picture.value
    assert picture.value != shown._live(shown.frames[0])


def test_two_controls_act_together():
    shown = default()
    (slider, buttons), picture = parts(shown)
    assert isinstance(buttons, ipywidgets.ToggleButtons)
    slider.value = 4
    buttons.value = "axis"
    assert picture.value == shown._live(shown.frames[5])
    assert 'alt="Two bars. Shown: n = 4, law = axis."' in picture.value


def test_each_display_has_controls_of_its_own():
    shown = default()
    (first, _), _ = parts(shown)
    (second, _), second_picture = parts(shown)
    first.value = 4
    assert second.value == 1
    assert second_picture.value == shown._live(shown.frames[0])


def test_a_failing_draw_is_shown_in_place_of_the_old_picture():
    broken = []

    def sometimes(figure, n):
        if broken:
            raise RuntimeError("no <data> left")
        figure.subplots()

    (slider,), picture = parts(make(draw=sometimes, options={"n": [1, 2]}))
    broken.append(True)
    with pytest.raises(RuntimeError, match="no <data> left"):
        slider.value = 2
    assert picture.value == "<pre>RuntimeError: no &lt;data&gt; left</pre>"


def test_the_mime_bundle_holds_both_lives():
    shown = default()
    bundle = shown._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", "application/vnd.jupyter.widget-view+json"}
    assert bundle["text/html"] == shown.html()
    assert bundle["text/plain"] == repr(shown)
    assert len(bundle["text/plain"]) < 200
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"]


# --- limits and bad input --------------------------------------------------------------------------------------------


def noisy(figure, n):
    figure.subplots().imshow(np.random.default_rng(n).random((300, 300)))


def own_figure(figure, n):
    plt.figure()


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"options": {"n": list(range(13))}}, ValueError, "2 to 12 frames in all, got 13"),
        ({"options": {"n": list(range(5)), "k": [1, 2, 3]}}, ValueError, "2 to 12 frames in all, got 15"),
        ({"options": {}}, ValueError, "2 to 12 frames in all, got 0"),
        ({"options": [("n", [1, 2])]}, TypeError, "options must be a mapping, got list"),
        ({"options": {"a-b": [1, 2]}}, ValueError, "options must have identifiers as keys, got 'a-b'"),
        ({"options": {"a b": [1, 2]}}, ValueError, "options must have identifiers as keys, got 'a b'"),
        ({"options": {1: [1, 2]}}, ValueError, "options must have identifiers as keys, got 1"),
        ({"caption": 3}, TypeError, "caption must be a string or None, got int"),
        ({"options": {"n": [1]}}, ValueError, r"options\['n'\] must hold at least 2 values"),
        ({"options": {"n": [1, 1.0]}}, ValueError, "different labels"),
        (
            {"options": {"n": [1, 2]}, "draw": noisy, "colours": 256},
            ValueError,
            r"at most 30000 bytes, got \d+ at n = 1",
        ),
        ({"options": {"n": [1, 2]}, "draw": own_figure}, ValueError, "draw must draw on the figure"),
        ({"draw": lambda figure, **choice: None}, ValueError, "draw must draw on the figure"),
        ({"draw": "picture"}, TypeError, "draw must be callable, got str"),
        ({"alt": "  "}, ValueError, "alt must describe the picture"),
        ({"alt": lambda n, law: ""}, ValueError, "alt must describe the picture"),
        ({"alt": lambda n, law: n}, TypeError, "alt must give a string, got int"),
        ({"name": "Two words"}, ValueError, "name must be lower-case words"),
        ({"name": ""}, ValueError, "name must be lower-case words"),
    ],
)
def test_limits_and_bad_input_are_named(changes, error, message):
    size = figures.SIZE if changes.get("draw") is noisy else SMALL
    arguments = {"options": {"n": [1, 2], "law": ["plain", "axis"]}, "alt": "Two bars.", "name": "bars"} | changes
    with pytest.raises(error, match=message):
        explorer(arguments.pop("draw", draw), size=size, **arguments)


def test_twelve_frames_are_allowed():
    assert len(make(options={"n": [1, 2, 3], "k": [1, 2], "law": ["plain", "axis"]}).frames) == 12


def test_an_error_in_draw_stops_the_cell_that_made_the_picture():
    with pytest.raises(ZeroDivisionError):
        make(draw=lambda figure, n: 1 / 0, options={"n": [1, 2]})
