"""The core's tests with a plug-in taken away: its folder, its entry points, its tests.

    python -m tests.without tune plan -- tests/unit -n 2

Without names, each plug-in is taken away, one after another. The tests run on a copy of
the repository that is installed in an environment of its own; other packages are those
of this environment. A plug-in that imports it goes too, and so does a test file that
imports one of them.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

from tests.places import ROOT

PLUGINS = ROOT / "harness" / "plugins"
QUICK = ("tests/unit", "-m", "not parity and not slow and not alone", "-q")


def copied(folder):
    """Copy what git knows of the repository into a folder."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listed, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    for name in filter(None, done.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def builders(root, name):
    """Return a plug-in, and those that import it or one of these."""
    texts = {
        folder.name: "".join(path.read_text() for path in folder.rglob("*.py"))
        for folder in (root / "harness" / "plugins").iterdir()
        if folder.is_dir()
    }
    found = [name]
    for one in found:  # it grows meanwhile
        named = re.compile(rf"\bharness\.plugins\.{one}\b")
        found += [n for n in texts if n not in found and named.search(texts[n])]
    return found


def take_away(root, name):
    """Remove a plug-in and its tests from a copy; return the removed test files."""
    shutil.rmtree(root / "harness" / "plugins" / name)
    shutil.rmtree(root / "tests" / "plugins" / name, ignore_errors=True)
    project = root / "pyproject.toml"
    entry = re.compile(rf'^[\w-]+ = "harness\.plugins\.{name}\b.*\n', re.MULTILINE)
    project.write_text(entry.sub("", project.read_text()))
    left, gone = {*(root / "tests").rglob("*.py")}, []
    named = re.compile(rf"\bharness\.plugins\.{name}\b")
    while True:
        found = [path for path in left if named.search(path.read_text())]
        if not found:
            return gone
        for path in found:
            left.remove(path)
            path.unlink()
            golden = path.parent / "__snapshots__" / f"{path.stem}.ambr"
            golden.unlink(missing_ok=True)
            gone.append(path.relative_to(root).as_posix())
        # A test file whose helper is gone goes too.
        modules = (one.removesuffix(".py").replace("/", r"\.") for one in gone)
        named = re.compile(rf"\b({'|'.join(modules)})\b")


def installed(root):
    """Install a copy in an environment of its own, and return its Python."""
    venv = root / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = venv / "bin" / "python"
    own = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    place = subprocess.run(own, stdout=subprocess.PIPE, text=True, check=True)
    site = Path(place.stdout.strip())
    # pytest loads the entry points of every harness that it sees, also of this one.
    for packages in (Path(path) for path in sys.path if "-packages" in path):
        for path in packages.iterdir():
            link = site / path.name
            is_ours = path.suffix == ".pth" or "parity_harness" in path.name
            if not is_ours and not link.exists():
                link.symlink_to(path)
    pip = [python, "-m", "pip", "install", "-q", "--no-deps"]
    subprocess.run([*pip, "-e", root], check=True)
    return python


def tried(name, options):
    """Run the tests without a plug-in; return whether they fail, and their output."""
    with tempfile.TemporaryDirectory() as folder:
        root = copied(Path(folder) / "copy")
        taken = builders(root, name)
        gone = [file for one in taken for file in take_away(root, one)]
        done = subprocess.run(
            [installed(root), "-m", "pytest", *options],
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    heading = f"without {', '.join(taken)} and {len(gone)} test files"
    return done.returncode != 0, f"{heading}\n{done.stdout}"


def main():
    """Take plug-ins away one after another; end with 1 if a test then fails."""
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    every = sorted(path.parent.name for path in PLUGINS.glob("*/__init__.py"))
    names, options = sys.argv[1:at] or every, sys.argv[at + 1 :] or QUICK
    failed = []
    # A run waits for its worker processes half of the time, so two run at once.
    with ThreadPoolExecutor(2) as pool:
        results = pool.map(tried, names, repeat(options))
        for name, (is_bad, printed) in zip(names, results, strict=True):
            print(printed, flush=True)
            failed += [name] * is_bad
    print(f"tests fail without {', '.join(failed)}" if failed else "all tests pass")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
