"""The files of a foreign model's weights."""

import pytest

from harness.core.errors import SuiteError
from harness.core.onnx_header import lacking_onnx
from harness.plugins.foreign.files.beside import weight_files
from tests.plugins.foreign.test_forecast import half


def test_a_missing_file_of_weights_has_one_wording(tmp_path):
    path = half(tmp_path, external=True)
    (tmp_path / "half.bin").unlink()

    with pytest.raises(SuiteError) as refused:
        weight_files(path, "onnx")
    assert str(refused.value) == lacking_onnx(path)
