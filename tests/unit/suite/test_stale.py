"""Entries for cases that left a suite: one message refuses all, one command prunes."""

import pytest

from harness.core.errors import SuiteError
from harness.core.settings import Settings
from harness.core.text import Line, screen
from harness.plugins.tune.prune import prune
from harness.suite.judge import Judge
from harness.suite.suite import load_suite
from tests.places import DIGITS
from tests.unit.suite.test_extra_inputs import ENTRY

SUITE = f"""\
components = ["text_encoder"]
[source]
checkpoint = "{DIGITS}"
[[shapes]]
batch = 1
[backend.onnxruntime]
variants = ["fp32"]
"""

TOLERANCES = """\
# The user's own words.
[onnxruntime.fp32]
outputs = "standard"   # as a start
layers = "standard"

# What is said of all of MNN.

# tuned 2026-11-21
# why that is so
[text_encoder.onnxruntime.mine]
layers = { tier = "standard", floors = 15.0 }

[text_encoder.onnxruntime.mine.probes."encoder.*"]
layers = "strict"

# of what stays
[text_encoder.onnxruntime.fp32]
layers = "strict"

[onnxruntime.int8-weights]
outputs = "quantized"
"""

PRUNED = """\
# The user's own words.
[onnxruntime.fp32]
outputs = "standard"   # as a start
layers = "standard"

# What is said of all of MNN.

# of what stays
[text_encoder.onnxruntime.fp32]
layers = "strict"

[onnxruntime.int8-weights]
outputs = "quantized"
"""

GAPS = """\
# of what stays
[[gap]]
case = "text_encoder/onnxruntime/fp32/layers"
outcome = "exceeds"
why = "a reason"

[[gap]]   # of what left
case = "*/mine/*"
outcome = "exceeds"
why = "another"
"""


@pytest.fixture
def suite(tmp_path):
    """A suite that a variant left, named in three files beside it."""
    (tmp_path / "parity.toml").write_text(SUITE)
    (tmp_path / "tolerances.toml").write_text(TOLERANCES)
    (tmp_path / "known_gaps.toml").write_text(GAPS)
    worst = ENTRY.replace("unet/mnn/fp32", "text_encoder/onnxruntime/mine")
    (tmp_path / "worst_inputs.toml").write_text(worst)
    return load_suite(tmp_path)


def pruned(suite, *, write):
    lines: list[Line] = []
    code = prune(suite, write=write, again="parity tune --prune", show=lines.extend)
    return code, [line.text for line in screen(lines)]


def test_all_that_is_stale_is_said_at_once_with_what_takes_it_out(suite):
    with pytest.raises(SuiteError) as error:
        Judge.of(suite, Settings())

    assert "tolerances.toml:10: the suite has no variant 'mine'" in str(error.value)
    assert str(error.value).endswith(
        "If it left the suite on purpose, [text_encoder.onnxruntime.mine], "
        '[text_encoder.onnxruntime.mine.probes."encoder.*"] of tolerances.toml; '
        "'*/mine/*' of known_gaps.toml; text_encoder/onnxruntime/mine of "
        "worst_inputs.toml can go: `parity tune --prune --write` takes that out; "
        "without --write it shows the diff."
    )


def test_an_input_of_a_case_that_left_is_refused_alone_too(suite):
    suite.tolerances_path.write_text(PRUNED)

    with pytest.raises(SuiteError, match=r"worst_inputs.toml:2: the suite has no case"):
        Judge.of(suite, Settings())


def test_pruning_shows_a_diff_and_writes_nothing(suite):
    code, lines = pruned(suite, write=False)

    assert code == 0
    assert "-[text_encoder.onnxruntime.mine]" in lines
    assert '-case = "*/mine/*"' in lines
    assert not [line for line in lines if line.startswith("+") and line[1:2] != "+"]
    assert lines[-1] == "next  parity tune --prune"
    assert suite.tolerances_path.read_text() == TOLERANCES


def test_what_was_pruned_is_gone_and_every_other_byte_stays(suite):
    pruned(suite, write=True)

    assert suite.tolerances_path.read_text() == PRUNED
    assert suite.gaps_path.read_text() == GAPS.partition("\n[[gap]]   #")[0]
    assert (suite.path.parent / "worst_inputs.toml").read_text() == ""
    Judge.of(suite, Settings())
    assert pruned(suite, write=False)[1] == ["", "Nothing would change."]


def test_what_has_no_header_of_its_own_is_left_alone(suite):
    text = PRUNED + "[text_encoder.onnxruntime]\nmine = { layers = 'strict' }\n"
    suite.tolerances_path.write_text(text)

    with pytest.raises(SuiteError, match="give it a header of its own"):
        pruned(suite, write=True)

    assert suite.tolerances_path.read_text() == text
    assert suite.gaps_path.read_text() == GAPS


def test_a_variant_of_ones_own_is_proposed_the_tier_of_what_it_is_made_from(tmp_path):
    made = '[variant.onnxruntime.half]\nfrom = "fp16"\n'
    (tmp_path / "parity.toml").write_text(SUITE + made)
    (tmp_path / "tolerances.toml").write_text(PRUNED)
    suite = load_suite(tmp_path)
    judge = Judge.of(suite, Settings())

    every = r'add layers = "relaxed" and outputs = "relaxed" under \[onnxruntime.half\]'
    with pytest.raises(SuiteError, match=every):
        judge.require((case, what) for case in suite.cases for what in case.whats)
