"""Each command's exit code and the files that it writes, as in the kept table.

`pytest tests/plugin/test_every_command.py --snapshot-update` writes the table again.
"""

import hashlib
import re
import shutil

import pytest

from harness.commands.cli import cli
from tests.plugin.project import CASES, write_project

WRONG = CASES[1]
CALLS = (
    *("run", "run onnxruntime", "run --list", "run --forecast", "run no_case"),
    *("run --tier strikt", "run --baseline no", "run onnxruntime --isolate"),
    *("run --shard 1/1", "run --shard 9/9", "run --e2e", "run --on nowhere"),
    *("run onnxruntime --baseline twice", "report last --baseline twice"),
    *("show", f"show last {WRONG}", "show last --tier quantized", "show no_run"),
    *("report", "report last --tier quantized", "report no_run", "merge last"),
    *(f"nodes last {WRONG}", "nodes last no_case", f"explain {WRONG}"),
    *(f"explain {CASES[0]}", f"repro {WRONG}", "repro no_case", "ranges"),
    *("tune onnxruntime --samples 4", "tune onnxruntime --samples 4 --write"),
    *("plan vae_decoder --within sqnr_db=5", "plan no_component --within sqnr_db=5"),
    *("bench onnxruntime --rounds 1", "bench no_case"),
    *("bundle vae_decoder/onnxruntime/fp32", "bundle no_case", "judge no_trace"),
    *("diff last", "diff", "diff no_run", "gate", "gate no_run"),
    *("baseline list", "baseline accept last", "baseline accept --why w --who w"),
    *("card", "card no_run", "verify no_card .", "doctor --app mnn=0.0"),
    *("capture no_script.py --module net", "init checkpoint --module net"),
    *("init checkpoint", "init checkpoint --into new --no-measure", "init no_folder"),
    *("store list", "store verify", "store prune --max-gb 100", "store clear"),
    *("store push no_place://x", "store pull no_place://x", "target make"),
    *("target make arm64 --with no", "target make browser --browser no_browser"),
    *("versions no_case", "no_command", "run --no-option"),
)


def contents(folder):
    """Return a digest of each file below a folder, by its path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).digest()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def named(path):
    """Return a path without what differs between two runs."""
    path = re.sub(r"\d{4}-\d\d-\d\dT[\d-]+(-[0-9a-f]+)?", "RUN", path)
    return re.sub(r"[0-9a-f]{32}", "DIGEST", path)


def written(before, after):
    """Yield each file that is new, changed or gone."""
    for path in before.keys() | after.keys():
        if before.get(path) != after.get(path):
            sign = "+" if path not in before else "-" if path not in after else "~"
            yield f"{sign} {named(path)}"


@pytest.fixture(scope="module")
def ran(passing, tmp_path_factory):  # noqa: ARG001  # it fills the store
    """A project with two runs, in which one case of three differs, and a baseline."""
    project = write_project(tmp_path_factory.mktemp("ran") / "twice")
    project.tighten()
    for _ in range(2):
        project.parity("run").check(1)
    project.accept("last", "--why", "it is known").check(0)
    return project


@pytest.fixture
def restored(ran, tmp_path):
    """The same project, whose files are afterwards as they were."""
    kept = shutil.copytree(ran.path, tmp_path / "kept")
    yield ran
    shutil.rmtree(ran.path)
    shutil.copytree(kept, ran.path)


@pytest.mark.parametrize("call", CALLS)
def test_a_command_ends_with_its_code_and_writes_its_files(call, restored, snapshot):
    before = contents(restored.path)
    ended = restored.parity(*call.split())
    assert "Traceback" not in ended.text
    files = written(before, contents(restored.path))
    assert [f"exit code {ended.code}", *sorted(files)] == snapshot


def test_every_command_is_called():
    def every(command, words=()):
        groups = getattr(command, "commands", {})
        yield from ([" ".join(words)] if not groups else [])
        for name, one in groups.items():
            yield from every(one, (*words, name))

    missing = [
        words
        for words in every(cli)
        if not any(call == words or call.startswith(f"{words} ") for call in CALLS)
    ]
    assert missing == []
