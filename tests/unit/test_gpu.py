"""`benchmarks/gpu.py`: what can be tested of it without a GPU."""

import subprocess
import sys

import pytest

from harness.runtimes.onnxruntime.doctor import newest_cuda
from tests.places import ROOT


def gpu(*arguments):
    command = (sys.executable, str(ROOT / "benchmarks" / "gpu.py"), *arguments)
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600
    )


@pytest.mark.skipif(bool(newest_cuda()), reason="this machine has a GPU")
def test_without_a_gpu_it_is_one_sentence_and_exit_code_2():
    ended = gpu()
    assert ended.returncode == 2
    assert ended.stderr.startswith("There is no GPU here")
    assert ended.stderr.count("\n") == 1
    assert not ended.stdout


@pytest.mark.slow
def test_a_dry_run_measures_each_way_on_the_cpu():
    ended = gpu("--dry", "--only", "digits/vae_decoder", "--rounds", "1")
    assert ended.returncode == 0, ended.stderr
    rows = {line[:20].strip(): line[20:].split() for line in ended.stdout.splitlines()}
    assert float(rows["PyTorch CPU"][1]) == 0, "it is the reference itself"
    assert 0 < float(rows["CUDA"][1]) < 16
    assert float(rows["CUDA, fp16"][1]) > 16
    assert float(rows["PyTorch CUDA"][1]) < 16
    assert all(float(rows[name][2]) > 0 for name in ("PyTorch CUDA", "CUDA"))
