"""A case's memory is forecast, and refused, before it runs."""

import json
import shutil
import struct
import threading
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

from harness.core.case import GIVEN, Source, Variant
from harness.core.errors import StageError, SuiteError
from harness.core.memory import GIB, MemoryBudget, Need, available_bytes
from harness.core.outcome import Outcome
from harness.core.runtime import runtimes
from harness.engine.worker_pool import WorkerPool
from harness.recipes import describe
from harness.runtimes.pytorch.prepare import weigh
from harness.suite.forecast import (
    CONVERT,
    need_of,
    stored_weights,
)
from harness.suite.suite import load_suite
from tests.places import DIGITS, FIXTURES
from tests.unit import nets

SD15 = FIXTURES / "sd15"
FLUX = FIXTURES / "flux"
UNET_WEIGHTS = 859_520_964 * 4


def component(suite, name):
    return next(part for part in suite.components if part.name == name)


@pytest.fixture(scope="module")
def sd15():
    return load_suite(SD15)


@pytest.fixture(scope="module")
def digits():
    return load_suite(DIGITS)


def need(size_gib):
    return Need(stage="doing it", size_bytes=int(size_gib * GIB), reason="weights")


def case_of(suite, name, kind="fp32", backend="mnn"):
    case = next(case for case in suite.cases if case.subject == name)
    return replace(case, variant=Variant(name=kind, backend=backend, kind=kind))


def gib(case, host, weights):
    need = need_of(case, host, weights)
    assert need is not None
    return need.size_bytes / GIB


NETS = {"unet": UNET_WEIGHTS, "controlnet": 361_279_120 * 4}


@pytest.mark.parametrize(
    ("name", "host", "kind", "took_gib"),
    [
        ("unet", "convert-mnn", "fp32", 7.1),
        ("unet", "mnn", "fp32", 8.3),
        ("unet", "onnxruntime", "fp32", 3.9),
        ("controlnet", "torch", "fp32", 2.3),
        ("controlnet", "convert-mnn", "fp16-weights", 3.5),
        ("controlnet", "convert-onnxruntime", "int8-weights", 7.0),
        ("controlnet", "onnxruntime", "fp32", 2.1),
        ("controlnet", "onnxruntime", "fp16", 3.4),
        ("controlnet", "onnxruntime", "int8-weights", 3.2),
        ("controlnet", "mnn", "int8-weights", 2.6),
    ],
)
def test_a_forecast_is_near_what_was_measured(sd15, name, host, kind, took_gib):
    case = case_of(sd15, name, kind, host.removeprefix(CONVERT).replace("torch", "mnn"))

    forecast = gib(case, host, NETS[name])

    assert took_gib <= forecast <= (1.4 if name == "unet" else 2.1) * took_gib


def test_a_copy_with_another_attention_is_a_second_network(sd15):
    case = case_of(sd15, "text_encoder")
    plain = replace(case, export=replace(case.export, attention=""))
    took_gib = 2.26 - 0.46  # of mapped weights
    weights = int(0.458 * GIB)

    forecast = gib(case, "torch", weights)
    assert took_gib <= forecast <= 1.3 * took_gib
    assert gib(plain, "torch", weights) < took_gib


def test_weights_are_counted_from_headers_alone(digits):
    unet = component(digits, "unet")

    stored = stored_weights(unet)
    assert stored == weigh(Path(), unet)["bytes"]
    file = DIGITS / "unet" / "diffusion_pytorch_model.safetensors"
    assert stored == pytest.approx(file.stat().st_size, rel=0.01)


def test_copies_beside_the_weights_are_not_counted(tmp_path):
    shutil.copytree(DIGITS / "vae", tmp_path / "vae")
    vae = describe("vae_decoder", "vae_decoder", Source(path=tmp_path))
    alone = stored_weights(vae)
    for variant in ("fp16", "non_ema"):
        name = f"diffusion_pytorch_model.{variant}.safetensors"
        write_weights(tmp_path / "vae" / name, 500)

    assert stored_weights(vae) == alone


def write_weights(file, *shape):
    count = 4 * prod(shape)
    header = {"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, count]}}
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + bytes(count))


def test_a_file_that_is_written_anew_is_counted_anew(tmp_path):
    shutil.copytree(DIGITS / "vae", tmp_path / "vae")
    vae = describe("vae_decoder", "vae_decoder", Source(path=tmp_path))
    before = stored_weights(vae)
    write_weights(tmp_path / "vae" / "diffusion_pytorch_model.safetensors", 500)

    assert stored_weights(vae) == 4 * 500 != before


def test_a_t5_is_counted_in_its_folder_and_by_its_index(tmp_path):
    root = tmp_path / "flux"
    shutil.copytree(FLUX, root, ignore=shutil.ignore_patterns("*.toml"))
    write_weights(root / "flux1-dev.safetensors", 500)
    shards = {f"w{n}": f"model-0000{n}-of-00002.safetensors" for n in (1, 2)}
    for shard in shards.values():
        write_weights(root / "text_encoder_2" / shard, 7, 3)
    index = root / "text_encoder_2" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": shards}), encoding="utf-8")
    t5 = describe("t5_encoder", "t5_encoder", Source(path=root))

    assert stored_weights(t5) == 2 * 7 * 3 * 4


def test_weights_that_are_drawn_are_counted_without_drawing_them(sd15):
    unet = component(sd15, "unet")

    assert stored_weights(unet) is None
    assert weigh(Path(), unet)["bytes"] == UNET_WEIGHTS


def test_a_network_that_cannot_be_built_is_not_counted_as_none(tmp_path):
    folder = nets.small_checkpoint(tmp_path / "small")
    unet = describe("unet", "unet", Source(path=folder, seed=0))
    path = folder / "unet" / "config.json"
    config = json.loads(path.read_text()) | {"norm_num_groups": 7}
    path.write_text(json.dumps(config))

    with pytest.raises(ValueError, match="divisible"):
        weigh(Path(), unet)


def test_every_runtime_has_a_cost_of_each_of_its_variants():
    for declared in runtimes().values():
        for kind in (*declared.variants, GIVEN):
            assert declared.cost(kind).copies > 0
            assert declared.cost_of_making(kind).copies > 0


def test_what_cannot_fit_is_refused_with_stage_need_and_a_way_out():
    with pytest.raises(StageError) as caught, MemoryBudget(2.0).reserve(need(3.5)):
        pytest.fail("it was let in")

    assert caught.value.outcome is Outcome.MEMORY
    said = str(caught.value)
    assert "doing it is forecast to need 3.5 GiB" in said
    assert "2.0 GiB are allowed" in said
    assert "memory_gib" in said


def test_no_process_is_started_for_what_cannot_fit():
    worker_pool = WorkerPool(10.0, memory_gib=1.0)
    with pytest.raises(StageError, match=r"forecast to need 2\.0 GiB"):
        worker_pool.job(
            "no such host",
            "builtins:print",
            subject="s",
            label="l",
            failure=Outcome.RUN,
            need=need(2.0),
        )
    worker_pool.close()


def test_anything_is_let_in_where_the_suite_says_so():
    with MemoryBudget(0).reserve(need(1e6)):
        pass


def in_turn(budget, one, two, patience_s):
    """Return who ends first, where the second asks while the first holds its part."""
    order = []

    def second():
        with budget.reserve(two):
            order.append("second")

    with budget.reserve(one):
        other = threading.Thread(target=second)
        other.start()
        other.join(patience_s)
        order.append("first")
    other.join(10.0)
    return order


@pytest.mark.parametrize(
    ("one", "two", "patience_s", "order"),
    [
        pytest.param(need(2.0), need(3.0), 0.2, ["first", "second"], id="too-much"),
        pytest.param(need(2.0), need(2.0), 10.0, ["second", "first"], id="fits"),
        pytest.param(
            replace(need(1.0), most_bytes=10 * GIB),
            need(1.0),
            0.2,
            ["first", "second"],
            id="takes-all-there-is",
        ),
    ],
)
def test_a_stage_waits_where_it_does_not_fit_beside_what_runs(
    one, two, patience_s, order
):
    assert in_turn(MemoryBudget(4.0), one, two, patience_s) == order


def test_what_is_available_is_some_of_what_there_is():
    assert 0 < available_bytes() < 2**50


def test_a_limit_that_is_no_number_of_gib_is_refused_with_its_line(tmp_path):
    text = (DIGITS / "parity.toml").read_text(encoding="utf-8")
    text = text.replace('checkpoint = "."', f'checkpoint = "{DIGITS.as_posix()}"')
    text = text.partition("[pipeline.text2img]")[0] + "[limits]\nmemory_gib = -1.0\n"
    path = Path(tmp_path) / "parity.toml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(SuiteError, match=r"parity\.toml:\d+.*memory_gib"):
        load_suite(path)
