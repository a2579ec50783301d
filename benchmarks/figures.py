"""Run benchmarks, and keep the figures that the pages show.

    python benchmarks/figures.py [NAME…] [--write] [options of the scripts]
    python benchmarks/figures.py --check

A NAME is a script's, without `bench_`; `digits` is pytest-benchmark on fixtures/digits.
Without a name everything is run. `--write` keeps the figures in reports/benchmarks.json
and writes them between the markers of the pages. `--check` fails where a page does not
say what that file says. It also says which figures are older than the code that they
measure, and does not fail for that.

This module needs only the standard library until a figure is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = {
    path.stem.removeprefix("bench_"): path
    for path in sorted(Path(__file__).parent.glob("bench_*.py"))
}
DIGITS = ("-m", "pytest", "-m", "parity and bench", "tests/parity", "-n", "0")
MARKED = re.compile(r"(<!-- bench:(\w+)( rows)? -->)(.*?)(<!-- /bench -->)", re.DOTALL)
TABLE = "table"


def kept_in(root):
    """Return the file of the figures."""
    return root / "reports" / "benchmarks.json"


def pages(root):
    """Return the pages that may have markers."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def figures(root=ROOT):
    """Return every kept figure by its name, in order of the names."""
    path = kept_in(root)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def digest(root, script, code):
    """Return a digest of a script and of the folders of harness/ that it measures."""
    files = [root / "benchmarks" / script]
    for folder in code:
        files += sorted((root / "harness" / folder).rglob("*.py"))
    whole = hashlib.sha256()
    for file in files:
        contents = hashlib.sha256(file.read_bytes()).hexdigest()
        whole.update(f"{file.relative_to(root).as_posix()} {contents}\n".encode())
    return whole.hexdigest()[:16]


def busy_s():
    """Return the seconds that all cores were at work; None where nothing says so."""
    with contextlib.suppress(OSError):
        first = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0]
        user, nice, system, _idle, _wait, *others = map(int, first.split()[1:8])
        return (user + nice + system + sum(others)) / os.sysconf("SC_CLK_TCK")
    return None


_START_S, _BUSY_S = time.perf_counter(), busy_s()


def other_cores():
    """Return how many cores other processes used since this module was imported."""
    if _BUSY_S is None:
        return None
    ours = sum(os.times()[:4])  # ended children included
    return max(0.0, (busy_s() - _BUSY_S - ours) / (time.perf_counter() - _START_S))


def parser(description):
    """Return a script's parser with the option that keeps its figures."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--write", action="store_true", help="keep the figures")
    return made


def keep(name, *, script, what, measured, values, code, rows=(), root=ROOT):
    """Keep one figure with where, when and of which code it was measured.

    Args:
        name: Name of the figure.
        script: Path of the script that measured it.
        what: What was compared with what, for the first column of the table.
        measured: The figure in words.
        values: Its numbers; ratios are of one run with both sides in it.
        code: Folders of harness/ that were measured.
        rows: A table of its own, for pages that show more than `measured`: lists of
            texts, the head first.

    """
    from harness.core.environment import environment

    here, script, others = environment(), Path(script).name, other_cores()
    kept = figures(root) | {
        name: {
            "what": what,
            "measured": measured,
            "values": values,
            "rows": list(rows),
            "script": script,
            "code": list(code),
            "digest": digest(root, script, code),
            "commit": here.commit[:12],
            "changed_since": here.dirty,
            "machine": here.cpu,
            "cores": here.core_count,
            "cores_of_others": None if others is None else round(others, 2),
            "date": datetime.now(UTC).date().isoformat(),
            "seconds": round(time.perf_counter() - _START_S, 1),
        }
    }
    text = json.dumps(dict(sorted(kept.items())), indent=1, ensure_ascii=False)
    kept_in(root).write_text(text + "\n", encoding="utf-8")


def markdown(rows):
    """Return rows of texts, the head first, as a table; the first column is words."""
    head, *others = rows
    sides = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, sides, *others))


def table(kept):
    """Return all figures as a table, and below it where they were measured."""
    lines = ["| | measured | script, commit, date |", "|---|---|---|"]
    places = {}
    for one in kept.values():
        commit = one["commit"] + (" and changes" if one["changed_since"] else "")
        lines.append(
            f"| {one['what']} | {one['measured']} | "
            f"`{one['script']}`, {commit}, {one['date']} |"
        )
        others = one["cores_of_others"]
        beside = f"{others:.1f} of them" if others is not None else "unknown"
        place = f"{one['machine']}, {one['cores']} cores"
        places.setdefault(place, {})[f"{one['script']} {beside}"] = None
    lines += [
        f"\nMeasured on {place}. Cores that other work used meanwhile: "
        f"{', '.join(beside)}."
        for place, beside in places.items()
    ]
    return "\n".join(lines)


def refreshed(text, kept):
    """Return a page with every marked place as the figures say."""

    def place(match):
        begin, name, rows, _, end = match.groups()
        if name == TABLE:
            return f"{begin}\n\n{table(kept)}\n\n{end}"
        if rows:
            return f"{begin}\n\n{markdown(kept[name]['rows'])}\n\n{end}"
        return f"{begin}{kept[name]['measured']}{end}"

    return MARKED.sub(place, text)


def stale(root=ROOT):
    """Return the pages that do not say what the figures say."""
    kept = figures(root)
    texts = {page: page.read_text(encoding="utf-8") for page in pages(root)}
    return [page for page, text in texts.items() if refreshed(text, kept) != text]


def older(root=ROOT):
    """Return the figures that are older than the code that they measure."""
    return [
        name
        for name, one in figures(root).items()
        if one["digest"] != digest(root, one["script"], one["code"])
    ]


def write_pages(root=ROOT):
    """Write the figures into the pages."""
    for page in stale(root):
        text = page.read_text(encoding="utf-8")
        page.write_text(refreshed(text, figures(root)), encoding="utf-8")


def check(root=ROOT):
    """Print which figures are older than their code; return what is wrong."""
    for name in older(root):
        one = figures(root)[name]
        code = ", ".join(f"harness/{folder}" for folder in one["code"])
        print(
            f"The figure {name} is of commit {one['commit']} ({one['date']}). "
            f"{code} or {one['script']} changed since. Measure it again with "
            f"`tox -e bench -- {Path(one['script']).stem.removeprefix('bench_')} "
            "--write`."
        )
    names = ", ".join(page.relative_to(root).as_posix() for page in stale(root))
    return names and (
        f"{names}: not what reports/benchmarks.json says. Write the pages again with "
        "`python benchmarks/figures.py --pages`."
    )


def main():
    """Run, write or check."""
    asked = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    asked.add_argument(
        "names", nargs="*", metavar="NAME", help=f"digits, {', '.join(SCRIPTS)}"
    )
    asked.add_argument("--write", action="store_true", help="keep and show the figures")
    asked.add_argument("--pages", action="store_true", help="write the pages alone")
    asked.add_argument("--check", action="store_true", help="compare pages and code")
    given, options = asked.parse_known_args()
    unknown = sorted(set(given.names) - {"digits", *SCRIPTS})
    if unknown:
        asked.error(f"no benchmark is called {', '.join(unknown)}")
    if given.check:
        sys.exit(check() or 0)
    if not given.pages:
        for name in given.names or ("digits", *SCRIPTS):
            command = [*DIGITS, *options]
            if name != "digits":
                command = [SCRIPTS[name], *options, *["--write"] * given.write]
            subprocess.run([sys.executable, *command], check=True, cwd=ROOT)
    if given.write or given.pages:
        write_pages()


if __name__ == "__main__":
    main()
