"""What the interactive report costs: its size, and how soon a browser has painted it.

    python benchmarks/report_page.py > benchmarks/report_page.md

Takes Chromium with its driver. Times are those that the browser itself keeps (Navigation Timing and
Paint Timing), from the start of the navigation, on a page read from a file; the browser runs
already and nothing is cached. One more page, opened before, is not counted.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

import torch
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

import roofline
from roofline.design.comparison.result import Comparison

RUNS = 7
OPERATORS = 2000
MACHINES = ("v100", "a100", "h100", "rtx4090", "m1-max", "epyc-9654", "xeon-8592plus", "orin")
MOST_S = 2.0
PER_OPERATOR_BYTE = 500

PAINTED = """
const done = arguments[arguments.length - 1];
const ready = () => {
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  const [page] = performance.getEntriesByType("navigation");
  if (!paint || !page.loadEventEnd) return setTimeout(ready, 20);
  return done([paint.startTime / 1000, page.loadEventEnd / 1000]);
};
ready();
"""

FILTERED = """
const done = arguments[arguments.length - 1];
const search = document.getElementById("search");
const start = performance.now();
search.value = "1";
search.dispatchEvent(new Event("input"));
requestAnimationFrame(() => setTimeout(() => done((performance.now() - start) / 1000)));
"""


def deep() -> torch.nn.Module:
    """Convolutions of changing widths and kernels, each followed by a ReLU."""
    widths = [3, *(8 + 37 * i % 211 for i in range(OPERATORS // 2))]
    layers: list[torch.nn.Module] = []
    for i in range(OPERATORS // 2):
        kernel = 1 + 2 * (i % 3)
        convolution = torch.nn.Conv2d(
            widths[i], widths[i + 1], kernel, padding=kernel // 2, bias=False, device="meta"
        )
        layers += [convolution, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers)


def browser() -> Chrome:
    """A headless Chromium of this machine."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        sys.exit("this benchmark takes chromium and chromedriver")
    options = ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000"):
        options.add_argument(argument)
    return Chrome(options=options, service=Service(driver))


def machines_of(result: roofline.Analysis | Comparison) -> int:
    """How many machines a page switches between."""
    return len(result.analyses) if isinstance(result, Comparison) else 1


def operators_of(result: roofline.Analysis | Comparison) -> int:
    """How many operators each of its machines has."""
    first = result.analyses[0] if isinstance(result, Comparison) else result
    return len(first.operators)


def timed(driver: Chrome, page: str, folder: Path) -> tuple[list[float], list[float], list[float]]:
    """Seconds to the first paint with content, to the end of loading, and of a search."""
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    paints: list[float] = []
    loads: list[float] = []
    searches: list[float] = []
    for _ in range(RUNS + 1):
        driver.get("about:blank")
        driver.get(path.as_uri())
        found: list[float] = driver.execute_async_script(PAINTED)
        paints.append(found[0])
        loads.append(found[1])
        searches.append(driver.execute_async_script(FILTERED))
    return paints[1:], loads[1:], searches[1:]


def cell(times_s: list[float]) -> str:
    """Median, least and most."""
    return f"{statistics.median(times_s):.2f} s ({min(times_s):.2f} – {max(times_s):.2f})"


def results() -> dict[str, Any]:
    """What is put into pages."""
    x = torch.empty(1, 3, 32, 32, device="meta")
    empty = roofline.analyze(torch.nn.Identity(), x, hardware="v100")
    return {
        "no operators": empty,
        "resnet50": roofline.analyze("resnet50", hardware="v100"),
        "resnet50, 8 machines": roofline.compare_machines("resnet50", hardware=MACHINES),
        f"{OPERATORS:,} operators": roofline.analyze(deep(), x, hardware="10980xe"),
        f"{OPERATORS:,} operators, 8 machines": roofline.compare_machines(
            deep(), x, hardware=MACHINES
        ),
    }


def main() -> None:
    """Prints the table; exits with 1 where a limit is passed."""
    pages = {name: (each, str(each.render("html"))) for name, each in results().items()}
    fixed = len(pages["no operators"][1].encode())
    failed = False
    print("# The interactive report: its size, and how soon it is painted\n")
    with tempfile.TemporaryDirectory() as folder, browser() as driver:
        version = driver.capabilities["browserVersion"]
        print(
            f"Chromium {version}, headless, {date.today()}; {RUNS} runs each:"
            " median (least – most)."
        )
        print(
            f"Limits: {PER_OPERATOR_BYTE} bytes an operator and machine beside the page of a model"
            f" without operators; first paint within {MOST_S:g} s for {OPERATORS:,} operators."
        )
        print("Rerun: `python benchmarks/report_page.py > benchmarks/report_page.md`\n")
        print("| page | size | per operator and machine | first paint | loaded | a search |")
        print("|---|---:|---:|---:|---:|---:|")
        for name, (result, page) in pages.items():
            paints, loads, searches = timed(driver, page, Path(folder))
            count = machines_of(result) * operators_of(result)
            byte = len(page.encode())
            each = (byte - fixed) / count if count else 0.0
            failed |= each > PER_OPERATOR_BYTE or statistics.median(paints) > MOST_S
            print(
                f"| {name} | {byte / 1000:.0f} kB | {f'{each:.0f} B' if count else '–'}"
                f" | {cell(paints)} | {cell(loads)} | {cell(searches)} |"
            )
    sys.exit(failed)


if __name__ == "__main__":
    main()
