"""Record the gallery of the documentation: `make gallery`, or this script with names of entries.

The commands of an entry of gallery.yaml run in the folder /tmp/gallery/NAME. Its reports, its
picture and its output are then files of docs/gallery/NAME, and docs/gallery/index.md is written from them. An
entry that has its report is kept: remove the report to draw it again from the folder of the run, if
that is complete, and remove this folder, too, to run the campaign again.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from bbkb.orchestrator.history.fold import read_history
from bbkb.orchestrator.report.page import write_report
from bbkb.orchestrator.store.runs import open_run

REPOSITORY = Path(__file__).parents[2]
GALLERY = REPOSITORY / "docs" / "gallery"
WORK = Path("/tmp/gallery")  # short, because reports show the paths of their campaign
PLOTLY = GALLERY / "plotly.min.js"
RECORDED = ("*.html", "*.svg", "*.png", "output.txt")
Entry = dict[str, Any]


def main() -> None:
    """Record the named entries, or all of them, that have no report; then write all pages."""
    entries = yaml.safe_load((Path(__file__).parent / "gallery.yaml").read_text(encoding="utf-8"))
    for name in sys.argv[1:] or entries:
        if not (GALLERY / name / "report.html").exists():
            if not (WORK / name / "output.txt").exists():
                record(name, entries[name])
            publish(name, entries[name])
    recorded = {name: entries[name] for name in entries if (GALLERY / name / "report.html").exists()}
    write_index(recorded)


def sources(name: str) -> list[Path]:
    """Return the files of an entry that a reader copies."""
    files = sorted((GALLERY / name).iterdir())
    return [file for file in files if not any(file.match(made) for made in RECORDED)]


def record(name: str, entry: Entry) -> None:
    """Run the commands of an entry in a new folder, and keep their output there."""
    work = WORK / name
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for file in sources(name):
        shutil.copy(file, work)
    begun = time.monotonic()
    output = run(entry["command"], work).replace(f"{work}/", "")
    print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
    text = re.sub(r"^\d+(/\d+)? done.*\n", "", output, flags=re.MULTILINE)
    (work / "output.txt").write_text(text, encoding="utf-8")


def publish(name: str, entry: Entry) -> None:
    """Make the reports, the picture and the output of a run files of the gallery."""
    folder = GALLERY / name
    for file in ["output.txt", *entry.get("files", [])]:
        shutil.copy(WORK / name / file, folder)
    for report, run_name in entry.get("reports", {"report": name}).items():
        history = read_history(open_run(WORK / name / "runs" / run_name))
        write_report(history, folder / f"{report}.html", run_name, PLOTLY)
    if "picture" in entry:
        photograph(next(folder.glob("report*.html")), entry["picture"], folder / "picture.png")


def photograph(report: Path, figure: str, picture: Path) -> None:
    """Write a picture of one figure of a report."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        program = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 900, "height": 800}, device_scale_factor=2)
        page.goto(report.absolute().as_uri())
        page.wait_for_selector(f"#{figure} .main-svg", timeout=120_000)
        page.locator(f"#{figure}").screenshot(path=picture)
        browser.close()


def run(command: str, folder: Path) -> str:
    """Run the commands of an entry in a folder, and return their output.

    The commands see a neutral host name if this process is root, because reports name workers.
    """
    words = ["bash", "-e", "-c", command]
    if os.geteuid() == 0:
        words = ["unshare", "--uts", "bash", "-c", 'hostname machine; exec "$@"', "bash", *words]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    if "BBKB_DATA" in os.environ:
        (folder / "data").symlink_to(Path(os.environ["BBKB_DATA"]).absolute())
        environment["BBKB_DATA"] = "data"
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(words, cwd=folder, env=environment, text=True, **pipes)
    if done.returncode:
        sys.exit(f"{done.stdout}\n{folder.name} failed with exit code {done.returncode}")
    return done.stdout


def write_index(entries: dict[str, Entry]) -> None:
    """Write the page of all entries: a picture, what to look at, and the files."""
    lines = [
        "# Gallery",
        "",
        "Real campaigns on two cores (`make gallery`). Copy the files of an entry into a folder, and run the",
        "command there.",
        "",
        "| | |",
        "| --- | --- |",
    ]
    for name, entry in entries.items():
        runs = entry.get("reports", {})
        titles = {report: f"report of {run_name}" for report, run_name in runs.items()} or {"report": "report"}
        links = [f"[{text}]({name}/{report}.html)" for report, text in titles.items()]
        links += [f"[`{file.name}`]({name}/{file.name})" for file in sources(name)]
        links.append(f"[output]({name}/output.txt)")
        picture = f"[![{entry['title']}]({name}/{picture_of(name)})]({name}/{next(iter(titles))}.html)"
        command = "<br>".join(f"`{line.partition('  #')[0]}`" for line in entry["command"].strip().splitlines())
        lines.append(f"| {picture} | **{entry['title']}.** {entry['see']}<br>{command}<br>{' · '.join(links)} |")
    (GALLERY / "index.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def picture_of(name: str) -> str:
    """Return the name of an entry's picture: of its report, or drawn by its command."""
    return next(path.name for path in sorted((GALLERY / name).glob("picture.*")))


if __name__ == "__main__":
    main()
