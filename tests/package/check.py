"""Build the wheel and the sdist, and use each in an environment of its own.

Run ``tox -e package``, or ``python tests/package/check.py FOLDER [PYTHON]``. It ends
at the first step that fails.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CASE = "text_encoder/onnxruntime/fp32"


def run(*command, cwd=ROOT):
    print("$", *(Path(word).name for word in map(str, command)), flush=True)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    clean |= {"PARITY_STORE": str(Path(cwd) / "store"), "HF_HUB_OFFLINE": "1"}
    subprocess.run([*map(str, command)], cwd=cwd, env=clean, check=True)


def build(folder):
    """Return the sdist and the wheel, which is made from the sdist."""
    run(sys.executable, "-m", "build", "--outdir", folder)
    files = sorted(folder.glob("parity_harness-*"))
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    return files


def use(python, folder):
    """Use the installed package as a stranger does, far from the repository."""
    scripts = python.parent
    run(scripts / "parity", "--version", cwd=folder)
    run(scripts / "parity", "doctor", cwd=folder)
    run(scripts / "parity", "run", CASE, "--suite", "digits", cwd=folder)
    run(python, "use.py", cwd=folder)
    mypy = ("-m", "mypy", "--strict", "--python-executable", python)
    run(sys.executable, *mypy, "use.py", cwd=folder)


def main():
    folder = Path(sys.argv[1]) / "package"
    named = sys.argv[2] if len(sys.argv) > 2 else sys.executable
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files = build(folder / "dist")
    run(named, "-m", "venv", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    shutil.copytree(ROOT / "fixtures" / "digits", folder / "digits")
    shutil.copy(Path(__file__).with_name("use.py"), folder)
    pins = ("--constraint", ROOT / "constraints.txt")
    # What both need is installed once; then one takes the other's place.
    for file in files:
        replaced = ("--force-reinstall", "--no-deps") if file != files[0] else ()
        run(python, "-m", "pip", "install", "-q", *pins, *replaced, file, cwd=folder)
        use(python, folder)
    print(f"{' and '.join(file.name for file in files)} work on {named}")


if __name__ == "__main__":
    main()
