"""What a user's own `build` runs is part of the keys, wherever it lies."""

from pathlib import Path

import pytest

from harness.core.case import Source
from harness.engine import keys
from harness.engine.artifacts import Artifacts
from harness.engine.store import Store
from harness.engine.worker_pool import WorkerPool
from harness.recipes import describe
from harness.suite.schema import Limits
from tests.unit.engine.test_engine import case

pytestmark = pytest.mark.slow

RECIPE = """
from harness.core.case import TensorSpec
from harness.recipes.types import normal


def signature(source, options):
    return (normal("x", "batch", 4),), (TensorSpec(name="y", shape=("batch", 4)),)


def build(component, attention=""):
    {}
    return net().eval()


def realistic(component, shapes, step, rng):
    return {{}}
"""
NET = "import torch\ndef net():\n    return torch.nn.Linear(4, 4)\n"
ON_PATH = "import sys; sys.path.insert(0, {folder!r}); "
WAYS = {
    "the checkpoint's folder is on the path": (
        "import sys; sys.path.insert(0, str(component.source.path)); "
        "from models import net"
    ),
    "another folder is on the path": ON_PATH + "from models import net",
    "a module imports the changed one": ON_PATH + "from outer import net",
    "a module imports the changed one later": ON_PATH + "from late import net",
    "it is named by a text": ON_PATH
    + "import importlib; net = importlib.import_module('models').net",
    "its file is loaded by its place": (
        "import importlib.util as u; s = u.spec_from_file_location('m', {file!r}); "
        "m = u.module_from_spec(s); s.loader.exec_module(m); net = m.net"
    ),
    "its text is run": (
        "from pathlib import Path; given = dict(); "
        "exec(Path({file!r}).read_text(), given); net = given['net']"
    ),
    "it is run as a program": "import runpy; net = runpy.run_path({file!r})['net']",
}
OTHERS = {
    "outer": "from models import net",
    "late": "import torch\n"
    "class Late(torch.nn.Linear):\n"
    "    def forward(self, x):\n        import models\n        return x\n"
    "def net():\n    return Late(4, 4)\n",
}


@pytest.fixture(scope="module")
def pool():
    made = WorkerPool.of(Limits(timeout_s=200, jobs=1))
    yield made
    made.close()


def code_of(tmp_path: Path, pool: WorkerPool, component):
    """Return the digest of the code of a component, as another process finds it."""
    keys.own_code_of.cache_clear()
    artifacts = Artifacts(Store(root=tmp_path / "store"), pool, None)
    return artifacts.known(case(component, "mnn")).component.code


@pytest.mark.parametrize("way", WAYS)
def test_a_network_whose_code_changed_is_made_anew(way, tmp_path, monkeypatch, pool):
    checkpoint, apart = tmp_path / "ck", tmp_path / "apart"
    for folder in (checkpoint, apart):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
    folder = checkpoint if "checkpoint" in way else apart
    models = folder / "models.py"
    models.write_text(NET)
    for name, text in OTHERS.items():
        (folder / f"{name}.py").write_text(text)
    run = WAYS[way].format(folder=str(folder), file=str(models))
    name = "net_of_" + "_".join(way.replace("'", "").split())
    (tmp_path / f"{name}.py").write_text(RECIPE.format(run))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    component = describe("net", name, Source(path=checkpoint))

    before = code_of(tmp_path, pool, component)
    same = code_of(tmp_path, pool, component)
    models.write_text(f"{NET}# changed\n")
    after = code_of(tmp_path, pool, component)
    models.write_text(NET)

    assert before == same != ""
    assert after != before
    assert code_of(tmp_path, pool, component) == before


def test_a_changed_file_that_imports_a_new_one_is_followed(tmp_path, monkeypatch, pool):
    checkpoint = tmp_path / "ck"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text("{}")
    (checkpoint / "models.py").write_text(NET)
    run = WAYS["the checkpoint's folder is on the path"]
    (tmp_path / "growing.py").write_text(RECIPE.format(run))
    monkeypatch.syspath_prepend(tmp_path)
    component = describe("net", "growing", Source(path=checkpoint))
    first = code_of(tmp_path, pool, component)

    (checkpoint / "models.py").write_text("from parts import net")
    (checkpoint / "parts.py").write_text(NET)
    second = code_of(tmp_path, pool, component)
    (checkpoint / "parts.py").write_text(f"{NET}# changed\n")
    third = code_of(tmp_path, pool, component)

    assert len({first, second, third}) == 3


def test_a_copied_suite_keeps_its_keys(tmp_path, monkeypatch, pool):
    codes = []
    for place in ("one", "two"):
        home = tmp_path / place
        home.mkdir()
        (home / "config.json").write_text("{}")
        (home / "models.py").write_text(NET)
        run = WAYS["the checkpoint's folder is on the path"]
        (tmp_path / "copied.py").write_text(RECIPE.format(run))
        monkeypatch.syspath_prepend(tmp_path)
        component = describe("net", "copied", Source(path=home))
        codes.append(code_of(tmp_path, pool, component))

    assert codes[0] == codes[1]
