"""Record the tour: open each of its steps in Chromium and write every reply that the page asks for to public/tour.json.

    python studio/record_tour.py            train the demo model first, in a temporary folder
    python studio/record_tour.py RUN        record this run

The page is the built one, so `make studio` comes before this, and again after it. Numbers are rounded to six digits. The same
model gives the same file, except for the speed of the machine, which the view of the cost measures.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode

TEXT = "Two Italian girls don't know them"
TOUR = Path(__file__).parent / "public" / "tour.json"
STEPS = 12
SEARCH = ("search.method=beam", "search.beam=4")  # the demo decodes greedily, whose search tree has one branch
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
DIGITS = 6


def main() -> None:
    with TemporaryDirectory() as folder:
        run = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "demo"
        if len(sys.argv) == 1:
            subprocess.run([sys.executable, "-m", "heedful", "train", "demo", *SEARCH, "--run", str(run)], check=True)
        with serve(run) as url:
            tour = record(url)
    TOUR.write_text(format_tour(tour), encoding="utf-8")
    print(f"{TOUR}: {len(tour['replies'])} replies, {TOUR.stat().st_size:,} bytes")


@contextmanager
def serve(run: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "heedful", "serve", str(run), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.send_signal(signal.SIGTERM)


def record(url: str) -> dict[str, Any]:
    """Walk through the steps with a tour that has no replies yet, so that the page asks the server for all of them."""
    from playwright.sync_api import Response, sync_playwright

    responses: list[Response] = []
    replies: dict[str, Any] = {}

    def visit(address: str) -> None:
        opened.goto("about:blank")
        opened.goto(f"{url}/#/{address}")
        opened.wait_for_selector("html[data-ready]")
        keep_replies()

    def keep_replies() -> None:
        wait_until_quiet(opened)
        while responses:
            response = responses.pop()
            path, body = response.url.removeprefix(url), json.loads(response.request.post_data or "{}")
            assert response.ok, f"{path} {body}: {response.text()}"
            del body["model"]
            replies[f"{path} {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}"] = response.json()

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        opened = browser.new_page(viewport={"width": 1280, "height": 1000})
        (model,) = opened.request.get(f"{url}/api/models").json()["models"]
        model = {**model, "example": TEXT}
        tour: dict[str, Any] = {"model": model, "text": TEXT, "replies": {}, "live": model["id"]}
        opened.route("**/studio/tour.json", lambda route: route.fulfill(json=tour))
        opened.on("response", lambda response: responses.append(response) if response.request.method == "POST" else None)
        for step in range(1, STEPS + 1):
            visit(f"tour?tour={step}")
        outputs = [reply["outputs"] for name, reply in replies.items() if name.startswith("/api/inspect/alternatives")]
        for address in further(model, len(outputs[0])):
            visit(address)
        visit(f"heads?{urlencode({'model': 'tour', 'text': TEXT})}")
        opened.get_by_role("button", name="Remove ").first.click()
        keep_replies()
        browser.close()
    del tour["live"]
    return tour | {"replies": replies}


def further(model: dict[str, Any], positions: int) -> Iterator[str]:
    """What a visitor chooses next: other target tokens, and other kinds of attention."""
    plain = {"model": "tour", "text": TEXT}
    yield from (f"{view}?{urlencode(plain | {'step': step})}" for step in range(positions) for view in ("work", "decoding"))
    for kind in (one["kind"] for one in model["attention"]):
        for by in ("weights", "norms", "rollout"):
            yield f"attention?{urlencode(plain | {'kind': kind, 'by': by})}"


def wait_until_quiet(opened: Any) -> None:
    """Wait until all replies have arrived and nothing is being computed."""
    from playwright.sync_api import expect

    opened.wait_for_load_state("networkidle")
    expect(opened.locator("[role=status]")).to_have_count(0, timeout=60_000)


def format_tour(tour: dict[str, Any]) -> str:
    """One reply a line, in the order of their names."""
    replies = [f"{json.dumps(name, ensure_ascii=False)}:{compact(tour['replies'][name])}" for name in sorted(tour["replies"])]
    head = ",\n".join(f"{json.dumps(name)}:{compact(value)}" for name, value in tour.items() if name != "replies")
    return "{" + head + ',\n"replies":{\n' + ",\n".join(replies) + "\n}}\n"


def compact(value: Any) -> str:
    return json.dumps(rounded(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
