"""The built site as a reader meets it: in a browser without a network, by mouse and keyboard, on a phone, in the dark.

Static checks of the files come first. The rest needs Chromium and its driver and is skipped, with the reason, without
them. Every page is opened twice, from a local server and from the disk.
"""

import functools
import http.server
import json
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest
from bs4 import BeautifulSoup
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from lib import explorer as explorer_module
from lib.explorer import explorer

ROOT = Path(__file__).parents[1]
SITE = ROOT / "_build" / "html"
ASSETS = ROOT / "book" / "assets"
PAGES = sorted(str(path.relative_to(SITE)) for path in SITE.rglob("*.html") if "_static" not in path.parts)

# The scope makes pytest run all checks of one page before those of the next, so that the browser loads it once.
every_page = pytest.mark.parametrize("page", PAGES, scope="module")
browser_test = pytest.mark.browser

PHONE = 390  # CSS pixels, the width of most telephones
CONTRAST = 4.5  # WCAG 2.1, success criterion 1.4.3

# sphinx-thebe is loaded twice by the theme, even where no page uses it; harmless, and the same text on every page.
KNOWN_CONSOLE_ERRORS = {"Uncaught SyntaxError: Identifier 'THEBE_JS_URL' has already been declared"}

Scheme = Literal["light", "dark"]


def test_the_site_is_built() -> None:
    assert PAGES, f"there is no page in {SITE.relative_to(ROOT)}: run `make book` first"


# --- the files -------------------------------------------------------------------------------------------------------


@functools.cache
def parsed(page: str) -> BeautifulSoup:
    return BeautifulSoup((SITE / page).read_text(encoding="utf-8"), "html.parser")


@functools.cache
def anchors(page: str) -> frozenset[str]:
    soup = parsed(page)
    return frozenset({tag["id"] for tag in soup.select("[id]")} | {tag["name"] for tag in soup.select("a[name]")})


def target(page: str, address: str) -> tuple[Path, str] | None:
    """File and anchor of an address inside the site; None for one outside of it."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return None
    url, anchor = urldefrag(urljoin(f"/{page}", address))
    return SITE / unquote(urlsplit(url).path).lstrip("/"), unquote(anchor)


@every_page
def test_links_and_anchors_inside_the_site_resolve(page: str) -> None:
    dead = []
    for link in parsed(page).select("a[href]"):
        found = target(page, str(link["href"]))
        if found is None:
            continue
        path, anchor = found
        path = path / "index.html" if path.is_dir() else path
        if not path.is_file():
            dead.append(f"{link['href']} (no such file)")
        elif anchor and path.suffix == ".html" and anchor not in anchors(str(path.relative_to(SITE))):
            dead.append(f"{link['href']} (no such anchor)")
    assert dead == []


@every_page
def test_what_a_page_loads_is_in_the_site(page: str) -> None:
    """Also what the browser would fetch only later, such as a picture far down."""
    missing = []
    for tag in parsed(page).select("script[src], img[src], iframe[src], source[src], link[href]"):
        address = str(tag.get("src") or tag.get("href"))
        if address.startswith("data:") or {"canonical", "search", "author"} & set(tag.get("rel") or []):
            continue
        found = target(page, address)
        if found is None or not found[0].is_file():
            missing.append(address)
    assert missing == []


@every_page
def test_every_picture_has_an_alternative_text(page: str) -> None:
    poor = [
        str(image)[:60] + f"... alt={image.get('alt')!r}"
        for image in parsed(page).select("img")
        if not (image.get("alt") or "").strip() or re.search(r"\.(png|svg|jpe?g|gif|webp)$|^_images/", image["alt"])
    ]
    assert poor == []


@every_page
def test_each_explorer_of_a_page_has_a_name_of_its_own(page: str) -> None:
    ids = [figure["id"] for figure in parsed(page).select("figure.explorer")]
    assert len(ids) == len(set(ids))


# --- the browser -----------------------------------------------------------------------------------------------------


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE))) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}/"
        httpd.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip(f"no browser: chromium is {chromium or 'missing'}, chromedriver is {driver or 'missing'}")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-extensions",
        "--hide-scrollbars",
        "--window-size=1400,1000",
        f"--user-data-dir={tmp_path_factory.mktemp('profile')}",
        # The network is cut twice: no name resolves, and whatever is not local goes to a proxy that does not exist.
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        "--proxy-server=127.0.0.1:9",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    chrome.set_script_timeout(60)
    yield chrome
    chrome.quit()


@dataclass
class Visit:
    """What the browser reported while it loaded a page."""

    failed: list[str] = field(default_factory=list)
    external: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)
    formulas: int = 0
    unrendered: list[str] = field(default_factory=list)


MATHEMATICS = """
const done = arguments[0];
const report = () => {
  const all = [...document.querySelectorAll("span.math, div.math")];
  const bad = all.filter((e) => !e.querySelector("mjx-container") || e.querySelector("mjx-merror, merror"));
  done([all.length, bad.map((e) => e.textContent.trim().slice(0, 80))]);
};
const ready = window.MathJax && MathJax.startup && MathJax.startup.promise;
ready ? ready.then(report, (error) => done([1, [String(error)]])) : report();
"""


def visit(chrome: webdriver.Chrome, url: str, home: str) -> Visit:
    """Open a page and wait for its mathematics; nothing but ``home`` may be asked for."""
    chrome.get("about:blank")
    chrome.get_log("performance"), chrome.get_log("browser")
    chrome.get(url)
    # The root page sends the reader on to the book's first page; nothing to wait for elsewhere.
    WebDriverWait(chrome, 10).until(
        lambda driver: not driver.find_elements(By.CSS_SELECTOR, "meta[http-equiv=refresh i]")
    )
    seen = Visit()
    seen.formulas, seen.unrendered = chrome.execute_async_script(MATHEMATICS)
    names: dict[str, str] = {}
    for entry in chrome.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        params, method = message["params"], message["method"]
        if method == "Network.requestWillBeSent":
            address = params["request"]["url"]
            names[params["requestId"]] = address
            if not address.startswith((home, "data:", "blob:", "about:")):
                seen.external.append(address)
        elif method == "Network.loadingFailed":
            seen.failed.append(f"{names.get(params['requestId'])}: {params['errorText']}")
        elif method == "Network.responseReceived" and params["response"]["status"] >= 400:
            seen.failed.append(f"{params['response']['url']}: {params['response']['status']}")
    for entry in chrome.get_log("browser"):
        text = re.sub(r"^\S+ \d+:\d+ ", "", entry["message"])
        if entry["level"] == "SEVERE" and text not in KNOWN_CONSOLE_ERRORS:
            seen.console.append(entry["message"])
    return seen


@pytest.fixture(scope="module")
def opened(browser: webdriver.Chrome, server: str) -> Callable[[str], webdriver.Chrome]:
    """Open a page from the server with everything unfolded, unless the browser shows it already."""

    def open_(page: str) -> webdriver.Chrome:
        if browser.execute_script("return document.documentElement.dataset.unfolded") != page:
            visit(browser, server + page, server)
            browser.execute_script(UNFOLD + "document.documentElement.dataset.unfolded = arguments[0]", page)
        return browser

    return open_


# Folded solutions and cells are part of the page; transitions would be measured half-way.
UNFOLD = """
document.querySelectorAll("details").forEach((e) => (e.open = true));
document.querySelectorAll(".toggle-hidden").forEach((e) => e.classList.remove("toggle-hidden"));
const still = document.createElement("style");
still.textContent = "*, *::before, *::after {transition: none !important; animation: none !important}";
document.head.append(still);
"""


@browser_test
@pytest.mark.parametrize("source", ["server", "disk"])
@every_page
def test_a_page_is_complete_without_a_network(
    browser: webdriver.Chrome, server: str, page: str, source: Literal["server", "disk"]
) -> None:
    home = server if source == "server" else SITE.as_uri() + "/"
    seen = visit(browser, home + page, home)
    assert seen.external == []
    assert seen.failed == []
    assert seen.console == []
    assert seen.unrendered == []
    assert seen.formulas == len(parsed(page).select("span.math, div.math")) or page == "index.html"


# --- legibility ------------------------------------------------------------------------------------------------------

# For each visible piece of text the colours of ink and ground, as painted: layers of partly transparent backgrounds are
# mixed from the page upwards. Returns what has too little contrast, each pair of colours once, and how much was seen.
LEGIBILITY = """
const [least] = arguments;
const pen = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
const known = new Map();
const rgba = (colour) => {
  if (!known.has(colour)) {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
    known.set(colour, [r, g, b, a / 255]);
  }
  return known.get(colour);
};
const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a)];
const ground = (e) => {
  const layers = [];
  for (let node = e; node; node = node.parentElement) layers.push(rgba(getComputedStyle(node).backgroundColor));
  return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
};
const linear = (v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
const seen = new Set(), poor = [];
let pieces = 0;
const judge = (e, text) => {
  if (!e.checkVisibility({opacityProperty: true, visibilityProperty: true})) return;
  pieces += 1;
  const style = getComputedStyle(e), below = ground(e), ink = rgba(style.color).slice();
  for (let node = e; node; node = node.parentElement) ink[3] *= getComputedStyle(node).opacity;
  const [a, b] = [luminance(over(ink, below)), luminance(below)].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  const key = `${style.color} on ${below.map(Math.round)}`;
  if (ratio < least && !seen.has(key)) {
    seen.add(key);
    const tag = `<${e.tagName.toLowerCase()} class="${e.className}">`;
    poor.push(`${ratio.toFixed(2)}: ${key} in ${tag} ${text.slice(0, 40)}`);
  }
};
const article = document.querySelector("article");
const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const text = walker.currentNode.textContent.trim(), e = walker.currentNode.parentElement;
  if (text && !e.closest("mjx-container, a.headerlink, script, style, button, .MathJax_Preview")) judge(e, text);
}
article.querySelectorAll("mjx-container").forEach((e) => judge(e, "formula"));
return [pieces, poor];
"""

# A picture's ground is the colour of its corner, or where that is transparent, of the element behind it.
GROUNDS = """
const done = arguments[0];
const all = document.querySelectorAll("article :is(figure, .cell_output) img");
const images = [...all].filter((e) => e.checkVisibility());
const corner = (image) => {
  const pen = new OffscreenCanvas(1, 1).getContext("2d");
  pen.fillStyle = getComputedStyle(image).backgroundColor;
  pen.fillRect(0, 0, 1, 1);
  pen.drawImage(image, 0, 0, 1, 1, 0, 0, 1, 1);
  const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
  return Math.min(r, g, b) < 220 || a < 255 ? [`${image.alt.slice(0, 60)}: ${[r, g, b, a]}`] : [];
};
Promise.all(images.map((image) => image.decode().then(() => corner(image), () => [`${image.alt}: not decoded`])))
  .then((found) => done(found.flat()));
"""


def paint(chrome: webdriver.Chrome, scheme: Scheme) -> None:
    """Choose the scheme as the theme's switch does."""
    chrome.execute_script(
        "Object.assign(document.documentElement.dataset, {mode: arguments[0], theme: arguments[0]})", scheme
    )


def is_article(page: str) -> bool:
    """Not the redirect at the root, whose target is a page of its own."""
    return parsed(page).select_one("article") is not None


@browser_test
@pytest.mark.parametrize("scheme", ["light", "dark"])
@every_page
def test_text_and_verdicts_are_legible(opened: Callable[[str], webdriver.Chrome], page: str, scheme: Scheme) -> None:
    if not is_article(page):
        return
    chrome = opened(page)
    paint(chrome, scheme)
    pieces, poor = chrome.execute_script(LEGIBILITY, CONTRAST)
    assert pieces > 0
    assert poor == []
    assert chrome.execute_async_script(GROUNDS) == []
    verdicts = chrome.find_elements(By.CLASS_NAME, "verdict")
    assert [verdict.text for verdict in verdicts if not verdict.is_displayed()] == []


@browser_test
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_starts_in_the_scheme_that_the_reader_chose(
    browser: webdriver.Chrome, opened: Callable[[str], webdriver.Chrome], scheme: Scheme
) -> None:
    chrome = opened(next(page for page in PAGES if is_article(page)))
    chrome.execute_script(
        "localStorage.setItem('mode', arguments[0]); localStorage.setItem('theme', arguments[0])", scheme
    )
    chrome.refresh()
    ground = chrome.execute_script("return getComputedStyle(document.body).backgroundColor")
    chrome.execute_script("localStorage.clear()")
    brightness = max(map(float, re.findall(r"[\d.]+", ground)[:3]))
    assert brightness > 200 if scheme == "light" else brightness < 60


# --- a telephone -----------------------------------------------------------------------------------------------------

# Elements of the text that reach beyond the screen although nothing around them scrolls.
TOO_WIDE = """
const [screen] = arguments, wide = [];
const scrolls = (e) => ["auto", "scroll"].includes(getComputedStyle(e).overflowX);
document.querySelectorAll("article *").forEach((e) => {
  if (e.parentElement.closest("mjx-container") || !e.checkVisibility()) return;
  const box = e.getBoundingClientRect();
  if (!box.width || (box.right <= screen + 1 && box.left >= -1)) return;
  for (let node = e.parentElement; node && node.tagName !== "ARTICLE"; node = node.parentElement) {
    if (scrolls(node)) return;
  }
  wide.push(`<${e.tagName.toLowerCase()} class="${e.className}"> ${Math.round(box.left)} to ${Math.round(box.right)}`);
});
return [document.scrollingElement.scrollWidth, wide];
"""


@pytest.fixture
def phone(browser: webdriver.Chrome) -> Iterator[None]:
    size = {"width": PHONE, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    yield
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@browser_test
@every_page
@pytest.mark.usefixtures("phone")
def test_nothing_is_wider_than_a_telephone(opened: Callable[[str], webdriver.Chrome], page: str) -> None:
    if not is_article(page):
        return
    width, wide = opened(page).execute_script(TOO_WIDE, PHONE)
    assert wide == []
    assert width <= PHONE + 1


# Cells of the tables of verdicts that reach beyond the screen, or whose text is wider than they are; formulas in a line
# of text, set at three quarters or more, of which a reader has to scroll a part into sight.
CUT = """
const [screen] = arguments;
const cells = [...document.querySelectorAll("table.verdicts td")].filter((e) => {
  return e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().right > screen + 1;
});
const formulas = [...document.querySelectorAll("mjx-container.wide-formula")].filter((e) => {
  const math = e.firstElementChild;
  return parseFloat(math.style.fontSize) > 75 && math.getBoundingClientRect().width > e.clientWidth + 2;
});
return [...cells, ...formulas].map((e) => e.textContent);
"""


@browser_test
@every_page
@pytest.mark.usefixtures("phone")
def test_tables_and_formulas_are_whole_on_a_telephone(opened: Callable[[str], webdriver.Chrome], page: str) -> None:
    assert opened(page).execute_script(CUT, PHONE) == []


# --- interactive pictures --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shown:
    src: str
    alt: str
    text: str
    words: str


def shown(chrome: webdriver.Chrome, figure: WebElement) -> Shown:
    """The one frame that is visible, and the text beside it."""
    frames, text, words = chrome.execute_script(
        """const figure = arguments[0];
        return [[...figure.querySelectorAll("img")].filter((e) => e.checkVisibility()).map((e) => [e.src, e.alt]),
                figure.querySelector(".explorer-choice").textContent,
                [...figure.querySelectorAll("input[type=range]")].map((e) => e.ariaValueText).join()]""",
        figure,
    )
    assert len(frames) == 1
    return Shown(*frames[0], text, words)


def assert_moves(chrome: webdriver.Chrome, figure: WebElement) -> None:
    """Each control by mouse and by keyboard; picture, description and text change together."""
    for control in figure.find_elements(By.CLASS_NAME, "explorer-control"):
        chrome.execute_script("arguments[0].scrollIntoView({block: 'center'})", control)
        inputs = control.find_elements(By.TAG_NAME, "input")
        before = shown(chrome, figure)
        slider = inputs[0].get_attribute("type") == "range"
        if slider:
            half = int(inputs[0].rect["width"] / 2)
            mouse = ActionChains(chrome, duration=0).move_to_element_with_offset(inputs[0], 4 - half, 0)
            mouse.click_and_hold().move_to_element_with_offset(inputs[0], half - 4, 0).release().perform()
        else:
            control.find_elements(By.TAG_NAME, "label")[-1].click()
        by_mouse = shown(chrome, figure)
        (inputs[0] if slider else inputs[-1]).send_keys(Keys.ARROW_LEFT)
        by_keyboard = shown(chrome, figure)
        for old, new in ((before, by_mouse), (by_mouse, by_keyboard)):
            assert new.src != old.src
            assert new.alt != old.alt
            assert new.text != old.text
            assert (new.words != old.words) == slider


def assert_prints(chrome: webdriver.Chrome) -> None:
    """On paper: one frame with its text, no controls and no talk of them."""
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        for figure in chrome.find_elements(By.CSS_SELECTOR, "figure.explorer"):
            assert shown(chrome, figure).text
            assert [part.is_displayed() for part in figure.find_elements(By.TAG_NAME, "input")].count(True) == 0
            assert not figure.find_element(By.CLASS_NAME, "explorer-fallback").is_displayed()
    finally:
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


PAGES_WITH_EXPLORERS = [page for page in PAGES if parsed(page).select_one("figure.explorer")]


@browser_test
@pytest.mark.parametrize("page", PAGES_WITH_EXPLORERS)
def test_explorers_move_and_print(browser: webdriver.Chrome, page: str) -> None:
    home = SITE.as_uri() + "/"
    visit(browser, home + page, home)
    browser.execute_script(UNFOLD)
    assert_prints(browser)
    for figure in browser.find_elements(By.CSS_SELECTOR, "figure.explorer"):
        assert not figure.find_element(By.CLASS_NAME, "explorer-fallback").is_displayed()
        assert_moves(browser, figure)
    assert_prints(browser)


@pytest.fixture(scope="module")
def picture() -> str:
    def draw(figure: Any, n: int, law: str) -> None:
        figure.subplots().bar([0, 1], [n, len(law)])

    options = {"n": [1, 2, 4], "law": ["plain", "an axis"]}
    return explorer(draw, options=options, alt="Two bars.", name="bars", caption="Bars", size=(3.0, 2.0)).html()


def write_page(folder: Path, picture: str, *, script: bool) -> str:
    style, code = ((ASSETS / name).as_uri() for name in ("explorer.css", "explorer.js"))
    tag = f'<script src="{code}"></script>' if script else ""
    page = folder / "page.html"
    head = f'<meta charset="utf-8"><title>A picture</title><link rel="stylesheet" href="{style}">{tag}'
    page.write_text(f"<!doctype html><html><head>{head}</head><body>{picture}</body></html>", encoding="utf-8")
    return page.as_uri()


@browser_test
def test_an_explorer_moves_on_a_page_of_its_own(browser: webdriver.Chrome, picture: str, tmp_path: Path) -> None:
    browser.get(write_page(tmp_path, picture + picture.replace("explorer-bars", "explorer-second"), script=True))
    first, second = browser.find_elements(By.CSS_SELECTOR, "figure.explorer")
    untouched = shown(browser, second)
    assert_moves(browser, first)
    assert shown(browser, second) == untouched
    # Every combination shows the frame that says so.
    slider, button = first.find_element(By.CSS_SELECTOR, "[type=range]"), first.find_elements(By.TAG_NAME, "label")
    for index, n in enumerate((1, 2, 4)):
        for label in button[1:]:
            label.click()
            slider.send_keys(Keys.HOME, *[Keys.ARROW_RIGHT] * index)
            now = shown(browser, first)
            assert now.text == f"n = {n}, law = {label.text}"
            assert now.alt == f"Two bars. Shown: {now.text}."
            assert now.words == str(n)
    assert_prints(browser)


@browser_test
def test_an_explorer_without_its_script_shows_its_first_frame(
    browser: webdriver.Chrome, picture: str, tmp_path: Path
) -> None:
    browser.get(write_page(tmp_path, picture, script=False))
    figure = browser.find_element(By.CSS_SELECTOR, "figure.explorer")
    assert shown(browser, figure).text == "n = 1, law = plain"
    assert not any(part.is_displayed() for part in figure.find_elements(By.TAG_NAME, "input"))
    assert figure.find_element(By.CLASS_NAME, "explorer-fallback").text == explorer_module.FALLBACK


# --- the checks can fail ---------------------------------------------------------------------------------------------

FAULTY = """<!doctype html><html data-theme="light"><head><meta charset="utf-8"><title>Faulty</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<script>console.error("a fault"); undefined_function();</script></head>
<body><article><p style="color: #999; background: #fff8">pale text</p><p>good text</p>
<p style="opacity: 0.3">faded text</p><div style="width: 500px">wide</div>
<div style="overflow-x: auto"><div style="width: 900px">wide, but it scrolls</div></div>
<span class="math">\\(x^2\\)</span><img src="gone.png" alt="gone"><img src="https://example.org/far.png" alt="far">
<figure><img alt="black" src="data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'>
<rect width='9' height='9'/></svg>"></figure>
</article></body></html>"""


@browser_test
@pytest.mark.usefixtures("phone")
def test_the_checks_find_the_faults_of_a_faulty_page(browser: webdriver.Chrome, tmp_path: Path) -> None:
    page = tmp_path / "faulty.html"
    page.write_text(FAULTY, encoding="utf-8")
    seen = visit(browser, page.as_uri(), tmp_path.as_uri() + "/")
    assert seen.external == ["https://example.org/far.png"]
    assert sorted(failure.split("/")[-1] for failure in seen.failed) == [
        "far.png: net::ERR_PROXY_CONNECTION_FAILED",
        "gone.png: net::ERR_FILE_NOT_FOUND",
    ]
    assert any("a fault" in error for error in seen.console)
    assert any("undefined_function" in error for error in seen.console)
    assert (seen.formulas, seen.unrendered) == (1, ["\\(x^2\\)"])
    _, poor = browser.execute_script(LEGIBILITY, CONTRAST)
    assert [fault[fault.index(">") + 2 :] for fault in poor] == ["pale text", "faded text"]
    grounds = browser.execute_async_script(GROUNDS)
    assert "black: 0,0,0,255" in grounds
    width, wide = browser.execute_script(TOO_WIDE, PHONE)
    assert width >= 500
    assert [re.sub(r" \d+ to \d+", "", element) for element in wide] == ['<div class="">']
