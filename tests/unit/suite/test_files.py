"""A suite that names files of others, where no plug-in reads them, is refused."""

import pytest

from harness.core.errors import SuiteError
from harness.suite import files
from harness.suite.suite import load_suite
from tests.unit.suite.pipelines import UNET

ALONE = '[[shapes]]\nn = 2\n[backend.mnn]\n[component.net]\nonnx = "a"\n'


@pytest.mark.parametrize(
    "text",
    [f'{UNET}[backend.mnn]\n[component.unet]\n{key} = "a"\n' for key in ("onnx", "mnn")]
    + [ALONE],
)
def test_without_a_plug_in_that_reads_them(tmp_path, monkeypatch, text):
    monkeypatch.setattr(files, "added", lambda _kind: ())
    (tmp_path / "parity.toml").write_text(text)

    with pytest.raises(SuiteError) as caught:
        load_suite(tmp_path)

    assert str(caught.value) == (
        f"{tmp_path}/parity.toml:{text.count(chr(10))}: no installed plug-in reads "
        "files that others exported; take such files out of the suite."
    )
