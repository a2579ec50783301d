"""What somebody else's package adds to `parity`, installed as pip installs it."""

import base64
import hashlib
import re
import subprocess
import sys
import zipfile

import pytest

from tests.places import ROOT
from tests.plugin.project import PARITY

pytestmark = pytest.mark.slow

ENTRY = "[parity.plugins]\nsize-budget=size_budget:PLUGIN\n"
RUN = "import click\n\n\n@click.command()\ndef run():\n    pass\n"
BROKEN = "from harness.core.plugins import Plugin\nPLUGIN = Plugin({})\n"


def of_the_page():
    """Return the files of the plug-in that docs/architecture.md shows."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    _, _, text = page.partition("## A plug-in of one's own")
    declared, functions = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[:2]
    return {"size_budget/__init__.py": declared, "size_budget/budget.py": functions}


def installed(folder, sources):
    """Build a wheel of some files, and let pip install it into a folder."""
    about = "size_budget-1.0.dist-info"
    files = {
        **sources,
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: size-budget\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\n"
        "Root-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": ENTRY,
    }
    lines = [f"{about}/RECORD,,"]
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
        lines.append(
            f"{name},sha256={digest.decode().rstrip('=')},{len(text.encode())}"
        )
    wheel = folder / "size_budget-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in {**files, f"{about}/RECORD": "\n".join(lines)}.items():
            archive.writestr(name, text)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps")
    subprocess.run([*pip, "--target", folder / "site", wheel], check=True)
    return str(folder / "site")


@pytest.fixture
def install(tmp_path, monkeypatch):
    def put(sources):
        monkeypatch.setenv("PYTHONPATH", installed(tmp_path, sources))

    return put


@pytest.mark.smoke
def test_the_plugin_of_the_page_adds_a_command_a_check_and_a_section(project, install):
    install(of_the_page())

    ended = project.run(*PARITY, "run")

    ended.check(1, "bytes, and the budget is 9,000 (plug-in 'size-budget')")
    assert "check" in project.outcomes.values()
    assert "parity explain" not in ended.text  # which knows nothing of a plug-in
    (report,) = project.reports
    assert ">Sizes<" in report.with_name("report.html").read_text().replace(" ", "")
    listed = project.run(*PARITY, "sizes", str(report)).check(0)
    assert [line.split()[0] for line in listed.text.splitlines()] == [
        record["case"] for record in project.report["cases"]
    ]


@pytest.mark.parametrize(
    ("declared", "code", "words"),
    [
        ("import nothing_of_this_name", 2, "No module named 'nothing_of_this_name'"),
        ("PLUGIN = 1", 2, "size_budget:PLUGIN is no Plugin"),
        (BROKEN.format("checks=('size_budget:no',)"), 2, "size_budget:no cannot be"),
        (BROKEN.format("checks=('builtins:abs',)"), 2, "bad operand type"),
        (BROKEN.format("commands=('builtins:abs',)"), 0, "is no command of click."),
        (BROKEN.format("commands=('size_budget:no',)"), 0, "size_budget:no cannot be"),
        (
            BROKEN.format("commands=('harness.commands.run:run',)") + "from harness",
            2,
            "invalid syntax",
        ),
        (BROKEN.format("sections=('builtins:abs',)"), 0, ""),
    ],
)
def test_a_plugin_that_fails_stops_nothing(quick, install, declared, code, words):
    install({"size_budget/__init__.py": declared})
    ended = quick.run(*PARITY, "run")
    ended.check(code, words)
    assert "Traceback" not in ended.text
    assert len(quick.reports) == 1


def test_a_command_of_the_harness_is_not_replaced(quick, install):
    declared = BROKEN.format("commands=('size_budget.own:run',)")
    install({"size_budget/__init__.py": declared, "size_budget/own.py": RUN})
    says = "plug-in 'size-budget': there is a command 'run' already."
    quick.run(*PARITY, "run", "--list").check(0, says)


def test_a_section_that_fails_has_its_reason_in_its_place(quick, install):
    install({"size_budget/__init__.py": BROKEN.format("sections=('builtins:abs',)")})
    quick.run(*PARITY, "run").check(0)
    (report,) = quick.reports
    page = report.with_name("report.html").read_text(encoding="utf-8")
    assert "bad operand type for abs()" in page
