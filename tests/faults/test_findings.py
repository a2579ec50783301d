"""Real findings on digits: where shipped variants diverge, why, and what fixes it."""

from dataclasses import replace

import pytest

from harness.core.probes import load_probes
from harness.core.settings import Settings
from harness.engine.engine import Engine
from harness.measure.float16 import scan
from harness.measure.trace import open_trace
from harness.plugins.explain.explain import explain
from harness.suite.judge import Judge
from harness.suite.schema import Limits

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def engine(artifacts):
    with Engine(artifacts.store, Limits(timeout_s=600.0)) as made:
        yield made


def explained(engine, digits, name, *changes):
    (case,) = digits.select([name])
    judge = Judge.of(digits, Settings(changes=changes))
    return explain(engine, judge, case, lambda _: None)


@pytest.fixture
def rounded(digits):
    """The only sample whose last timestep float16 rounds by up to half a radian."""
    (case,) = digits.select(["unet/onnxruntime/fp16"])
    return replace(
        case, samples=tuple(s for s in case.samples if s.id == "realistic-3")
    )


def test_mnn_decodes_by_winograd_and_a_session_hint_fixes_it(engine, digits):
    found = explained(engine, digits, "vae_decoder/mnn/fp32", "floors=20")

    assert found.first.row.op == "aten.conv2d.default"
    assert "upsamplers" in found.first.row.module
    assert found.local_floors > 20
    best = found.fixing[0]
    assert best.change.name == "winograd_memory_level = 0"
    assert best.passed
    assert best.floors < found.before.floors / 10
    assert "converter or runtime" in found.stage


def test_a_fused_text_encoder_reads_one_item_and_is_right_unfused(engine, digits):
    found = explained(engine, digits, "text_encoder/mnn/fused")

    assert found.first.row.module == "encoder.layers.0.self_attn.out_proj"
    assert [j.row.module for j in found.verdict.origins] == [
        f"encoder.layers.{n}.self_attn.out_proj" for n in range(3)
    ], "each fused attention is an origin, what hangs on it is not"
    assert "batch item 0 is right" in found.verdict.looks
    assert found.fixing[0].change.name == "fp32 for fused"
    assert not found.excerpt.fixes, "the excerpt grew until the fusion was in it"


def test_float16_is_fixed_by_what_ranges_would_keep(engine, digits, rounded):
    judge = Judge.of(digits, Settings(tier="relaxed"))

    found = explain(engine, judge, rounded, lambda _: None)

    best = found.fixing[0]
    assert best.change.name.startswith("--keep=mul_9,sin,cos")
    assert best.passed
    assert best.size_bytes < 1.02 * found.before.size_bytes
    assert "fp32 for fp16" in [change.name for change in found.skipped]


def test_rounded_timesteps_are_foreseen_and_kept_in_float32(engine, rounded):
    """float16 rounds 999 times a frequency by up to half a radian."""
    ((probes, readings),) = engine.references(rounded)

    losses = scan(load_probes(probes), [open_trace(readings[0].reference.path)])
    keep = dict.fromkeys(v for loss in losses for v in loss.keep)
    waves = [loss for loss in losses if "rad" in loss.reason]
    assert {loss.probe.op for loss in waves} == {"aten.sin.default", "aten.cos.default"}

    flags = (f"--keep={','.join(keep)}",)
    variant = replace(rounded.variant, name="kept", flags=flags)
    kept = replace(rounded, variant=variant)
    was, now = (
        min(
            row.comparison.sqnr_db
            for row in engine.run(each).rows
            if row.module == "time_proj" and row.op == "aten.sin.default"
        )
        for each in (rounded, kept)
    )

    assert was < 30
    assert now > 60
