"""Pictures of the console, for the README and docs/console.md, and of every page for those who change it.

    python -m tools.console_pictures               docs/pictures: the pages of the documentation, light and dark
    python -m tools.console_pictures --all DIR     every page, 1280 and 390 pixels wide, light and dark, in English and Chinese
    python -m tools.console_pictures --console URL ...    of a console that runs, instead of a new sample

It serves the sample of `reput demo` in a temporary directory, waits until its charts move, and looks with Debian's chromium,
driven by Playwright.
"""

import argparse
import contextlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs/pictures"
PICTURE_BYTES_MAX = 200_000
# Until the lines on the page of the store have a shape: they are drawn from what was asked while it was open.
CHART_SECONDS = 20
START_SECONDS_MAX = 60
LOADED_MILLIS_MAX = 15_000
WIDE, PHONE = (1280, 800), (390, 844)
# So much of a page is looked at, from its top: the API reference is forty screens long.
WHOLE_PIXELS_MAX = 4_000
LOOKS = ((WIDE, "light", "en"), (WIDE, "dark", "en"))
# Each width with each language (what fits), and each theme with both (what can be read).
LOOKS_OF_ALL = ((WIDE, "light", "en"), (PHONE, "light", "zh-CN"), (WIDE, "dark", "zh-CN"), (PHONE, "dark", "en"))
SHOWN = {"find": "/?q=order-1002", "message": "", "groups": "/groups", "store": "/store"}
ALL = {
    **SHOWN,
    "start": "/",
    "nothing": "/?q=no-such-order",
    "search": "/?mode=search&topic=SampleVisits&tag=tea",
    "explain": "/explain?q=order-1001",
    "topics": "/topics",
    "topic": "/topics/SampleVisits",
    "queue": "/topics/Orders/0",
    "group": "/groups/shipping",
    "members": "/groups/sample-visit-counter/members",
    "dead-letters": "/groups/shipping/dead-letters",
    "waiting": "/waiting",
    "half-messages": "/half-messages",
    "replicas": "/replicas",
    "reports": "/reports",
    "api": "/api",
}


@contextlib.contextmanager
def sample() -> Iterator[str]:
    """The address of the console of a new sample, `http://HOST:PORT`."""
    with tempfile.TemporaryDirectory() as scratch:
        ports = pathlib.Path(scratch, "ports.json")
        off = ("--nameserver-port", "off", "--remoting-port", "off")
        command = [
            *(sys.executable, "-m", "cli.main", "demo", "--store", f"{scratch}/store", "--port-file", str(ports)),
            *("--gateway-port", "0", "--console-port", "0", *off),
        ]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        try:
            ends = time.monotonic() + START_SECONDS_MAX
            while not ports.exists():
                if process.poll() is not None or time.monotonic() > ends:
                    raise SystemExit(f"the sample did not start: {' '.join(command)}")
                time.sleep(0.1)
            yield f"http://{json.loads(ports.read_text())['console']}"
        finally:
            process.terminate()
            process.wait()


def path_of_message(console: str) -> str:
    """The page of the first message that the sample's key finds, once the samples are there."""
    asked = urllib.request.Request(f"{console}/?q=order-1001", headers={"Accept": "application/json"})
    ends = time.monotonic() + START_SECONDS_MAX
    while True:
        with urllib.request.urlopen(asked, timeout=START_SECONDS_MAX) as answer:
            matches = json.load(answer)["answer"].get("matches", [])
        if matches:
            break
        if time.monotonic() > ends:
            raise SystemExit(f"{console} has no message with the key order-1001")
        time.sleep(0.5)
    message = matches[-1]["message"]
    return f"/messages/{message['offsetMsgId']}?broker={message['brokerName']}"


def take(
    browser: Any, url: str, path: pathlib.Path, size: tuple[int, int], look: dict[str, str], *, whole: bool
) -> None:
    """One picture, when what the page loads later is there."""
    from playwright.sync_api import expect

    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, timezone_id="UTC", **look)
    page = context.new_page()
    page.goto(url)
    expect(page.locator("[data-load] .skeleton")).to_have_count(0, timeout=LOADED_MILLIS_MAX)
    if url.endswith("/store"):
        time.sleep(CHART_SECONDS)
    height = min(page.evaluate("document.documentElement.scrollHeight"), WHOLE_PIXELS_MAX) if whole else size[1]
    page.set_viewport_size({"width": size[0], "height": max(height, size[1])})
    page.screenshot(path=path)
    context.close()


def main() -> int:
    """Take the pictures; 1 when one is too large."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", type=pathlib.Path, metavar="DIR", help="every page in every look, into DIR")
    parser.add_argument("--console", metavar="URL", help="a console that runs")
    parser.add_argument("--pages", default="", help="only these, with commas between them")
    given = parser.parse_args()
    directory = given.all or PICTURES
    directory.mkdir(parents=True, exist_ok=True)
    pages = ALL if given.all else SHOWN
    if given.pages:
        pages = {name: pages[name] for name in given.pages.split(",")}
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("there is no chromium (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with contextlib.ExitStack() as running:
        console = given.console or running.enter_context(sample())
        driver = running.enter_context(sync_playwright())
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        message = path_of_message(console)
        for name, path in pages.items():
            for size, theme, language in LOOKS_OF_ALL if given.all else LOOKS:
                parts = (name, *((str(size[0]), language) if given.all else ()), theme)
                look = {"color_scheme": theme, "locale": language}
                picture = directory / f"{'-'.join(parts)}.png"
                take(browser, console + (path or message), picture, size, look, whole=bool(given.all))
        browser.close()
    large = [path.name for path in directory.glob("*.png") if path.stat().st_size > PICTURE_BYTES_MAX and not given.all]
    if large:
        print(f"larger than {PICTURE_BYTES_MAX:,} bytes: {', '.join(large)}", file=sys.stderr)
    return 1 if large else 0


if __name__ == "__main__":
    sys.exit(main())
