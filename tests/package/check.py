"""Build the wheel and the sdist, and use each in an environment of its own.

Run ``tox -e package``, or ``python tests/package/check.py FOLDER [PYTHON ...]``. If no
Python is named, those of `PYTHONS` that start are used. It ends at the first step that
fails.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("python3.11", "python3.12", "python3.13")
NO_TORCH = "import importlib.util as u; assert u.find_spec('torch') is None"
CASE = "text_encoder/onnxruntime/fp32"
SMALL = ROOT / "fixtures" / "text_tasks" / "roberta"


def run(*command, cwd=ROOT):
    print("$", *(Path(word).name for word in map(str, command)), flush=True)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    clean |= {"PARITY_STORE": str(Path(cwd) / "store"), "HF_HUB_OFFLINE": "1"}
    subprocess.run([*map(str, command)], cwd=cwd, env=clean, check=True)


def works(python):
    """Return whether a Python starts; a version manager's file may start none."""
    if not shutil.which(python):
        return False
    said = subprocess.run([python, "-c", ""], capture_output=True, check=False)
    return said.returncode == 0


def build(folder):
    """Return the sdist and the wheel, which is made from the sdist."""
    run(sys.executable, "-m", "build", "--outdir", folder)
    files = sorted(folder.glob("parity_harness-*"))
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    return files


def use(python, folder):
    """Use the installed package as a stranger does, far from the repository."""
    parity = python.with_name("parity")
    run(parity, "--version", cwd=folder)
    run(parity, "doctor", cwd=folder)
    run(parity, "run", CASE, "--suite", "digits", cwd=folder)
    run(parity, "init", SMALL.name, "--into", "made", cwd=folder)
    run(parity, "run", "--suite", "made", cwd=folder)
    run(python, "use.py", cwd=folder)
    mypy = ("-m", "mypy", "--strict", "--python-executable", python)
    run(sys.executable, *mypy, "use.py", cwd=folder)


def verify(named, file, folder):
    """Check a card of the run with a base install and one runtime, then with both."""
    run(folder / "venv" / "bin" / "parity", "card", cwd=folder)
    run(named, "-m", "venv", folder / "base")
    python = folder / "base" / "bin" / "python"
    pins = ("--constraint", ROOT / "constraints.txt")
    run(python, "-m", "pip", "install", "-q", *pins, file, "onnxruntime", cwd=folder)
    run(python, "-c", NO_TORCH, cwd=folder)
    run(python.with_name("parity"), "verify", "card", "store", cwd=folder)
    run(python, "-m", "pip", "install", "-q", *pins, f"{file}[verify]", cwd=folder)
    run(python, "-c", f"{NO_TORCH}; import MNN, onnxruntime", cwd=folder)


def install_and_use(named, file, folder):
    """Install a file in a new environment, use it there, and remove all of it."""
    folder.mkdir()
    run(named, "-m", "venv", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    pins = ("--constraint", ROOT / "constraints.txt")
    run(python, "-m", "pip", "install", "-q", *pins, f"{file}[make]", cwd=folder)
    shutil.copytree(ROOT / "fixtures" / "digits", folder / "digits")
    shutil.copytree(SMALL, folder / SMALL.name)
    shutil.copy(Path(__file__).with_name("use.py"), folder)
    use(python, folder)
    verify(named, file, folder)
    shutil.rmtree(folder)  # 3 GB


def main():
    folder = Path(sys.argv[1]) / "package"
    here = [python for python in PYTHONS if works(python)]
    named = sys.argv[2:] or here or [sys.executable]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files = build(folder / "dist")
    for python in named:
        for file in files:
            install_and_use(python, file, folder / "used")
            print(f"{file.name} works on {python}", flush=True)
    if not sys.argv[2:]:
        for python in PYTHONS:
            if python not in named:
                print(f"{python} does not start here, so nothing ran on it.")


if __name__ == "__main__":
    main()
