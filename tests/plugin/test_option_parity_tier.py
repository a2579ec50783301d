"""--parity-tier TIER: hold every value to it instead of tolerances.toml."""


def test_a_tighter_tier_turns_agreement_into_a_difference(quick):
    ended = quick.pytest("--parity-tier=exact")

    assert ended.code == 1, ended.text
    assert ended.has("allowed 0.000e+00")


def test_a_looser_tier_turns_a_difference_into_agreement(quick):
    quick.tighten("[onnxruntime.fp32]")

    assert quick.pytest("--parity-tier=standard", "-k", "outputs").code == 0


def test_an_unknown_tier_is_a_usage_error_with_the_nearest(quick):
    ended = quick.pytest("--parity-tier=standart")

    assert ended.code == 4
    assert ended.has("--parity-tier: there is no tier 'standart'")
    assert ended.has("did you mean 'standard'?")
