"""The tolerance of each value, and the entries that a policy file may not have."""

from functools import partial

import pytest
from msgspec.structs import replace

import harness.judge.policy
from harness.core.errors import SpecError, SuiteError
from harness.judge.tolerance import TIERS, Tolerance, parse_changes
from tests.unit.reports import policy_of

WIDE = """\
[mnn.fp32]
outputs = "strict"
layers = "standard"
"""
FULL = (
    WIDE
    + """\
[unet.mnn.fp32]
outputs = { tier = "standard", floors = 40.0 }
why = "GroupNorm sums in another order"

[unet.mnn.fp32.probes."*.attn2.*"]
layers = { tier = "standard", floors = 64 }
allow_constant = true
why = "one value everywhere"

[unet.mnn.fp32.probes."down.*"]
layers = "quantized"
allow_nonfinite = true
why = "the second pattern"

[onnxruntime.fp32]
outputs = "exact"
"""
)


@pytest.fixture
def load(tmp_path):
    return partial(policy_of, tmp_path)


def rule(policy, group="layers", probe="conv", module="", case="unet/mnn/fp32"):
    component, backend, variant = case.split("/")
    return policy.for_probe(
        (component, backend, variant), group=group, probe=probe, module=module
    )


STANDARD = TIERS["standard"]


ASKED = {
    "widest": ({"case": "vae/mnn/fp32"}, STANDARD["layers"], 3),
    "component-before-backend": (
        {"group": "outputs"},
        replace(STANDARD["outputs"], floors=40.0),
        5,
    ),
    "group-left-to-the-wider-table": ({}, STANDARD["layers"], 3),
    "probe-name": ({"probe": "up.attn2.to_q"}, Tolerance(floors=64.0), 9),
    "module-path": ({"module": "up.attn2.to_q"}, Tolerance(floors=64.0), 9),
    "first-pattern": ({"probe": "down.attn2.to_q"}, Tolerance(floors=64.0), 9),
    "second-pattern": ({"probe": "down.conv"}, TIERS["quantized"]["layers"], 14),
    "pattern-that-leaves-the-group-to-its-component": (
        {"probe": "down.attn2.to_q", "group": "outputs"},
        replace(STANDARD["outputs"], floors=40.0),
        5,
    ),
    "pattern-of-another-component": (
        {"probe": "down.conv", "case": "vae/mnn/fp32"},
        STANDARD["layers"],
        3,
    ),
    "another-backend": (
        {"group": "outputs", "case": "unet/onnxruntime/fp32"},
        TIERS["exact"]["outputs"],
        19,
    ),
}


@pytest.mark.parametrize(("asked", "tolerance", "line"), ASKED.values(), ids=ASKED)
def test_the_narrowest_table_with_a_tolerance_decides(load, asked, tolerance, line):
    found = rule(load(FULL), **asked)
    assert found.tolerance == tolerance
    assert found.source.endswith(f"tolerances.toml:{line}")


def test_flags_hold_where_they_are_stated_and_nowhere_else(load):
    policy = load(FULL)

    def flags(**asked):
        found = rule(policy, **asked)
        return found.allow_constant, found.allow_nonfinite, found.why

    assert flags(probe="up.attn2.q") == (True, False, "one value everywhere")
    assert flags(probe="down.conv") == (False, True, "the second pattern")
    assert flags() == (False, False, "GroupNorm sums in another order")
    assert flags(case="vae/mnn/fp32") == (False, False, "")


def test_a_pattern_that_states_no_bound_leaves_it_to_the_next_pattern(load):
    policy = load(
        WIDE
        + """\
[unet.mnn.fp32.probes."*norm*"]
allow_constant = true
why = "one value everywhere"

[unet.mnn.fp32.probes."*"]
layers = "strict"
"""
    )

    assert rule(policy, probe="layer_norm").tier == "strict"
    assert rule(policy, probe="layer_norm").allow_constant


def test_a_narrow_table_can_take_a_flag_back(load):
    text = WIDE + 'allow_constant = true\nwhy = "x"\n[unet.mnn.fp32]\n'
    policy = load(text + "allow_constant = false\n")
    assert rule(policy, case="vae/mnn/fp32").allow_constant is True
    assert rule(policy).allow_constant is False


def test_no_match_says_which_table_to_add(load):
    policy = load(FULL)

    with pytest.raises(SuiteError) as error:
        rule(policy, case="unet/onnxruntime/fp32")
    assert str(error.value).endswith(
        "no layers tolerance for unet/onnxruntime/fp32; "
        'add layers = "standard" under [onnxruntime.fp32].'
    )
    with pytest.raises(SuiteError, match=r'under \[mnn\."int8\.v2"\]'):
        rule(policy, case="unet/mnn/int8.v2")
    with pytest.raises(SpecError, match="unknown group 'layer'; did you mean 'layers'"):
        rule(policy, group="layer")


NARROW = WIDE + "[unet.mnn.fp32]\n"
PROBE = WIDE + '[unet.mnn.fp32.probes."*.q"]\n'


LOOSER = {
    "looser-tier-than-the-wider-table": (
        NARROW + 'outputs = "standard"',
        "5: outputs is looser than [mnn.fp32] (tier 'standard' for 'strict')",
    ),
    "looser-than-the-tier-it-names": (
        NARROW + 'outputs = { tier = "strict", floors = 40.0 }',
        "5: outputs is looser than tier 'strict' (floors 40 for 4)",
    ),
    "same-tier-without-the-tightening": (
        (
            '[mnn.fp32]\nlayers = { tier = "standard", floors = 4.0 }\n'
            '[unet.mnn.fp32]\nlayers = "standard"'
        ),
        "4: layers is looser than [mnn.fp32] (floors 16 for 4)",
    ),
    "same-tier-without-the-added-bound": (
        (
            '[mnn.fp32]\nlayers = { tier = "standard", sqnr_db = 60 }\n'
            '[unet.mnn.fp32]\nlayers = "standard"'
        ),
        "4: layers is looser than [mnn.fp32] (no sqnr_db)",
    ),
    "tier-against-bounds-that-stand-alone": (
        (
            '[mnn.fp32]\nlayers = { floors = 4.0 }\nwhy = "x"\n'
            '[unet.mnn.fp32]\nlayers = "relaxed"'
        ),
        "5: layers is looser than [mnn.fp32] (no floors)",
    ),
    "bounds-without-a-tier": (
        "[mnn.fp32]\nlayers = { floors = 4.0 }",
        "2: layers states bounds of its own",
    ),
    "pattern-against-the-widest": (
        PROBE + 'layers = "relaxed"',
        "5: layers is looser than [mnn.fp32] (tier 'relaxed' for 'standard')",
    ),
    "pattern-against-a-component-that-comes-later": (
        PROBE + 'layers = "standard"\n[unet.mnn.fp32]\nlayers = "strict"',
        "5: layers is looser than [unet.mnn.fp32]",
    ),
    "constant": (PROBE + "allow_constant = true", "4: allow_constant loosens"),
    "nonfinite": (WIDE + "allow_nonfinite = true", "1: allow_nonfinite loosens"),
    "blank-reason": (
        NARROW + 'outputs = "standard"\nwhy = "  "',
        "5: outputs is looser than",
    ),
}


@pytest.mark.parametrize(("text", "message"), LOOSER.values(), ids=LOOSER)
def test_looser_without_a_reason_is_refused_and_with_one_accepted(load, text, message):
    with pytest.raises(SuiteError) as error:
        load(text)
    assert f"tolerances.toml:{message}" in str(error.value)
    assert 'add why = "..." to [' in str(error.value)
    line = int(message.partition(":")[0])
    lines = text.replace('\nwhy = "  "', "").splitlines()
    lines.insert(line, 'why = "because"')
    load("\n".join(lines))


TIGHTER = {
    "equality-states-fewer-bounds": NARROW + 'outputs = "exact"',
    "the-same": NARROW + 'outputs = "strict"',
    "tighter-tier": NARROW + 'layers = "strict"',
    "tighter-tier-that-states-other-bounds": (
        '[mnn.int8]\nlayers = "quantized"\n[unet.mnn.int8]\nlayers = "standard"'
    ),
    "tightened-and-added-to": NARROW
    + 'layers = { tier = "standard", floors = 4, sqnr_db = 80 }',
    "taken-back": WIDE + 'why = "x"\n[unet.mnn.fp32]\nallow_constant = false',
    "nothing-is-wider": '[unet.mnn.fp32]\noutputs = "quantized"',
}


@pytest.mark.parametrize("text", TIGHTER.values(), ids=TIGHTER)
def test_tighter_needs_no_reason(load, text):
    load(text)


MISTAKES = {
    "group": (
        '\n[mnn.fp32]\noutput = "strict"',
        "3: unknown key 'output' in [mnn.fp32]; did you mean 'outputs'?",
    ),
    "backend-that-reads-as-a-component": (
        '[onnxruntim.fp32]\noutputs = "strict"',
        "1: unknown backend 'onnxruntim'; did you mean 'onnxruntime'?",
    ),
    "backend": (
        '\n[unet.mn.fp32]\noutputs = "strict"',
        "2: unknown backend 'mn'; did you mean 'mnn'?",
    ),
    "probes": (
        '[unet.mnn.fp32.probs."x"]\nlayers = "strict"',
        "1: unknown key 'probs' in [unet.mnn.fp32]; did you mean 'probes'?",
    ),
    "empty-pattern": (
        '[unet.mnn.fp32.probes.""]\nlayers = "strict"',
        '1: a probe pattern is empty; "*" matches every probe.',
    ),
    "empty-table": (
        "\n[mnn.fp32]\n",
        '2: [mnn.fp32] states nothing; give it outputs = "standard".',
    ),
    "no-table": ('[mnn]\nfp32 = "strict"', "2: 'fp32' must be a table"),
    "rtol-off-the-ladder": (
        '[mnn.fp32]\nwhy = "x"\noutputs = { tier = "strict", rtol = 2e-4 }',
        "3: rtol must be one of",
    ),
    "half-a-pair": (
        '[mnn.fp32]\nwhy = "x"\nlayers = { tier = "strict", atol = 1.0 }',
        "3: rtol and atol go together",
    ),
    "no-bound": ('[mnn.fp32]\nwhy = "x"\nlayers = {}', "3: A tolerance must"),
    "nan": (
        '[mnn.fp32]\nwhy = "x"\nlayers = { floors = nan }',
        "3: floors must be finite",
    ),
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.values(), ids=MISTAKES)
def test_each_mistake_names_its_line_and_the_nearest_word(load, text, message):
    with pytest.raises(SuiteError) as error:
        load(text)
    assert f"tolerances.toml:{message}" in str(error.value)


SUITE = {
    "components": ("unet", "vae"),
    "variants_by_backend": {"mnn": ("fp32", "int8"), "onnxruntime": ("fp32",)},
}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            '\n[umet.mnn.fp32]\noutputs = "exact"',
            "2: the suite has no component 'umet'; did you mean 'unet'?",
            id="component",
        ),
        pytest.param(
            '\n[mnn.fp23]\noutputs = "exact"',
            "2: the suite has no variant 'fp23' for mnn; did you mean 'fp32'?",
            id="variant",
        ),
        pytest.param(
            '\n[unet.onnxruntime.int8.probes."*"]\noutputs = "exact"',
            "2: the suite has no variant 'int8' for onnxruntime; it can be 'fp32'.",
            id="variant-of-the-other-backend",
        ),
    ],
)
def test_names_the_suite_has_not_are_refused(load, text, message):
    policy = load(text)
    (scope, words), *_ = policy.stale(**SUITE)
    assert f"tolerances.toml:{message}" in f"{scope.source}: the suite has no {words}"


def test_a_built_in_variant_that_is_not_listed_may_have_its_tier_ready(load):
    gone = '[mnn.fused]\noutputs = "exact"\n'
    policy = load(f'{gone}[unet.mnn.fused]\noutputs = "exact"\n')
    assert [scope.header for scope, _ in policy.stale(**SUITE)] == ["[unet.mnn.fused]"]


def test_names_the_suite_has_are_accepted(load):
    assert not load(FULL).stale(**SUITE)


def test_a_table_for_a_backend_the_suite_has_not_is_stale(load):
    ((_, words),) = load(WIDE).stale(("unet",), {"onnxruntime": ("fp32",)})
    assert words == "variant 'fp32' for mnn; there is none to choose from."


def test_a_pattern_that_matches_no_probe_is_complained_about(load):
    complaints = load(FULL).unmatched_patterns(
        ("unet", "mnn", "fp32"), ["conv_in", "up.attn2.to_q"]
    )
    assert [text.rpartition("/tolerances.toml:")[2] for text in complaints] == [
        '13: [unet.mnn.fp32.probes."down.*"] matches no probe of unet/mnn/fp32.'
    ]
    assert load(FULL).unmatched_patterns(("vae", "mnn", "fp32"), []) == ()


def test_a_tier_given_by_hand_holds_everywhere_and_leaves_the_flags(load):
    policy = load(FULL).with_tier("relaxed")

    for group in ("outputs", "layers"):
        for case in ("unet/mnn/fp32", "other/onnxruntime/other"):
            found = rule(policy, group=group, case=case)
            assert found.tolerance == TIERS["relaxed"][group]
    assert rule(policy, probe="down.conv").allow_nonfinite is True
    for tier in ("relaxd", ""):
        with pytest.raises(SpecError, match=f"unknown tier '{tier}'"):
            policy.with_tier(tier)


def test_changes_given_by_hand_hold_everywhere_and_add_up(load):
    policy = load(FULL).with_changes({"floors": 3.0}).with_changes({"sqnr_db": 20.0})

    assert rule(policy).tolerance == Tolerance(floors=3.0, sqnr_db=20.0)
    assert rule(policy, probe="x.attn2.y").tolerance == Tolerance(
        floors=3.0, sqnr_db=20.0
    )
    assert rule(policy.with_tier("exact")).tolerance == Tolerance(
        rtol=0.0, atol=0.0, floors=3.0, sqnr_db=20.0
    )
    with pytest.raises(SpecError, match="unknown bound 'floor'; did you mean 'floors'"):
        policy.with_changes({"floor": 1.0})


def test_a_change_that_fits_no_tolerance_names_the_group(load):
    policy = load(FULL).with_changes({"rtol": 1e-3})
    assert rule(policy, group="outputs").tolerance.rtol == 1e-3
    with pytest.raises(
        SpecError, match=r"^rtol=0\.001 does not fit .* of layers: rtol"
    ):
        rule(policy)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        pytest.param(
            ["rtool=1"], "unknown bound 'rtool'; did you mean 'rtol'", id="name"
        ),
        pytest.param(["rtol"], "'rtol' is not of the form bound=number", id="form"),
        pytest.param(["rtol=x"], "rtol must be a number, got 'x'", id="number"),
        pytest.param(["rtol=1", "rtol=2"], "set twice, to 1 and to 2", id="twice"),
    ],
)
def test_a_change_that_is_not_one_is_refused(texts, message):
    with pytest.raises(SpecError, match=message):
        parse_changes(texts)


def test_changes_are_parsed():
    assert parse_changes(["rtol = 1e-3", "floors=40"]) == {"rtol": 1e-3, "floors": 40.0}


def test_the_example_in_the_docs_is_a_policy(load):
    example = "\n".join(
        line.removeprefix("    ")
        for line in harness.judge.policy.__doc__.splitlines()
        if line.startswith("    ")
    )
    policy = load(example)

    found = rule(policy, probe="mid.attn2.to_q")
    assert (found.tolerance.floors, found.allow_constant) == (64.0, True)
    assert rule(policy, group="outputs").tolerance.floors == 40.0


# Pipelines: two more groups, a third backend, and variants by pattern


def test_latents_and_pictures_have_tolerances_of_their_own(load):
    policy = load('[mnn.fp32]\nlatents = "strict"\nimage = "standard"\n')
    case = "text2img/mnn/fp32"
    assert rule(policy, "latents", case=case).tolerance == TIERS["strict"]["latents"]
    assert rule(policy, "image", case=case).tolerance == STANDARD["image"]
    with pytest.raises(SuiteError, match=r'add layers = "standard" under \[mnn.fp32\]'):
        rule(policy, "layers", case=case)


def test_a_variant_may_be_a_pattern_and_an_exact_one_is_narrower(load):
    policy = load(
        '[mixed."*"]\nimage = "standard"\n[mixed.mnn-pytorch]\nimage = "strict"\n'
    )

    wide = rule(policy, "image", case="text2img/mixed/pytorch-mnn")
    narrow = rule(policy, "image", case="text2img/mixed/mnn-pytorch")
    assert (wide.tolerance, narrow.tolerance) == (
        STANDARD["image"],
        TIERS["strict"]["image"],
    )
    both, one = ["mnn-pytorch", "pytorch-mnn"], ["pytorch-mnn"]
    assert not policy.stale(["text2img"], {"mixed": both})
    ((_, words),) = policy.stale(["text2img"], {"mixed": one})
    assert words.startswith("variant 'mnn-pytorch' for mixed")
    assert len(policy.stale(["text2img"], {"mnn": ["fp32"]})) == 2


def test_an_exact_variant_that_loosens_its_pattern_says_why(load):
    with pytest.raises(SuiteError, match=r"looser than \[mixed.\"\*\"\]"):
        load('[mixed."*"]\nimage = "strict"\n[mixed.mnn-mnn]\nimage = "relaxed"\n')


LOOSER_PATTERNS = {
    "of-a-component-against-an-exact-variant": (
        '[mnn.fp32]\nlayers = "strict"\n[unet.mnn."fp*"]\nlayers = "relaxed"',
        "[mnn.fp32]",
    ),
    "of-probes-against-an-exact-variant": (
        (
            '[mnn.fp32]\nlayers = "strict"\n'
            '[unet.mnn."*".probes."mid.*"]\nlayers = "relaxed"'
        ),
        "[mnn.fp32]",
    ),
    "of-probes-against-an-exact-variant-of-its-component": (
        (
            '[unet.mnn.fp32]\nlayers = "strict"\n'
            '[unet.mnn."*".probes."mid.*"]\nlayers = "relaxed"'
        ),
        "[unet.mnn.fp32]",
    ),
    "with-brackets-against-a-wider-pattern": (
        '[mnn."*"]\nlayers = "strict"\n[mnn."int[48]"]\nlayers = "relaxed"',
        '[mnn."*"]',
    ),
    "of-a-target-against-a-component": (
        '[unet.mnn.fp32]\nlayers = "strict"\n[mnn.fp32."@phone"]\nlayers = "relaxed"',
        "[unet.mnn.fp32]",
    ),
}


@pytest.mark.parametrize(
    ("text", "base"), LOOSER_PATTERNS.values(), ids=LOOSER_PATTERNS
)
def test_a_variants_pattern_that_loosens_says_why(load, text, base):
    with pytest.raises(SuiteError) as error:
        load(text)
    assert f"4: layers is looser than {base}" in str(error.value)
    load(f'{text}\nwhy = "measured"\n')


def test_a_variants_pattern_needs_no_reason_where_a_narrower_table_decides(load):
    policy = load(
        '[unet.mnn."*"]\nlayers = "relaxed"\n[mnn.fp32]\nlayers = "strict"\n'
        '[unet.mnn.fp32]\nlayers = "strict"\n'
    )
    assert rule(policy).tier == "strict"
    assert rule(policy, case="unet/mnn/int8").tier == "relaxed"


def test_a_variants_pattern_that_matches_none_of_the_suites_is_refused(load):
    policy = load('[mnn."fp*"]\nlayers = "strict"\n[mnn."bf*"]\nlayers = "exact"')
    ((scope, words),) = policy.stale(**SUITE)
    assert scope.source.endswith("toml:3")
    assert words.startswith("variant 'bf*' for mnn")


def test_a_reading_may_differ_only_with_a_reason(load):
    text = '[mnn.int4-weights]\nimage = "quantized"\nallow_misread = true\n'
    with pytest.raises(SuiteError, match="allow_misread loosens"):
        load(text)
    policy = load(text + 'why = "4 bits; 3 of 100 digits are others when set"\n')
    assert rule(policy, "image", case="hundred/mnn/int4-weights").allow_misread


def test_bounds_of_pictures_change_those_of_pictures_alone(load):
    policy = load(WIDE + 'image = "standard"\n').with_changes({"psnr_db": 30.0})
    assert rule(policy, "image").tolerance == replace(STANDARD["image"], psnr_db=30.0)
    assert rule(policy, "layers").tolerance == STANDARD["layers"]


def test_a_file_that_does_not_exist_yet_is_asked_for_with_its_first_lines(tmp_path):
    with pytest.raises(SuiteError, match=r"\[onnxruntime.fp32\] with outputs = "):
        harness.judge.policy.Policy.load(tmp_path / "tolerances.toml")
