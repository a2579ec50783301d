"""Each checkpoint of fixtures/ is green at its first run after `parity init`.

As another machine would run it, with a store of its own, for a reference does not say
which processor made it::

    export ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE
    PARITY_STORE=elsewhere tox run -e initialised
"""

import pytest

from harness.commands.cli import main
from tests.places import FIXTURES

LARGE = {"sd15", "full_size", "exported"}
"""Full sizes need 24 GiB; files of others are compared as they are."""

CHECKPOINTS = [
    pytest.param(path.parent, id=path.parent.name)
    for path in sorted(FIXTURES.rglob("parity.toml"))
    if not LARGE & set(path.relative_to(FIXTURES).parts)
    and any(
        (path.parent / name).is_file() for name in ("model_index.json", "config.json")
    )
]


@pytest.mark.initialised
@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_the_first_run_after_init_is_green(checkpoint, tmp_path, monkeypatch, capsys):
    assert main(["init", str(checkpoint), "--into", str(tmp_path)]) == 0
    monkeypatch.chdir(tmp_path)
    assert main(["run"]) == 0, capsys.readouterr().out
