"""Our own rules, each broken on purpose: the harness's tests must tell."""

from tests.faults.catalogue.fault import Fault, InRule, fault

COMPARE, JUDGE = "harness/measure/compare.py", "harness/judge/value.py"
ALIGN, JUDGED = "harness/measure/align.py", "harness/judge/case.py"
METRICS = "harness/measure/metrics.py"


def _rule(name: str, module: str, right: str, wrong: str, *expects: str) -> Fault:
    plant = InRule(module=module, right=right, wrong=wrong)
    return fault("metric", plant, name, "", *expects)


FAULTS = (
    _rule(
        "relative-to-the-candidate",
        COMPARE,
        "_measure(expected, actual, floor_rms)",
        "_measure(actual, expected, floor_rms)",
        "test_",
    ),
    _rule(
        "shapes-broadcast", COMPARE, "expected.shape != actual.shape or ", "", "shape"
    ),
    _rule(
        "empty-counts-as-equal",
        JUDGE,
        "if comparison.count == 0:",
        "if False:",
        "empty",
        "element",
    ),
    _rule(
        "nan-equals-nan",
        JUDGE,
        "if there == 0 and here == 0 and wrong == 0:",
        "if wrong == 0:",
        "nonfinite",
        "finite",
        "nan",
    ),
    _rule(
        "nan-passes-a-bound",
        JUDGE,
        "holds=value <= limit,",
        "holds=not value > limit,",
        "no_number",
    ),
    _rule(
        "misplaced-nan-allowed", JUDGE, "if wrong != 0:", "if False:", "finite", "nan"
    ),
    _rule(
        "constant-output-passes",
        JUDGE,
        "elif is_output:\n            outcome, reason = _constant",
        "elif False:\n            outcome, reason = _constant",
        "constant",
    ),
    _rule(
        "kinds-of-number-mixed",
        JUDGE,
        'if kind == "other" or kind !=',
        "if False and kind !=",
        "integer-for-floating",
    ),
    _rule(
        "best-bound-counts",
        JUDGE,
        "worst = max(checks",
        "worst = min(checks",
        "too-far",
    ),
    _rule(
        "share-without-cap",
        JUDGE,
        "required, tolerance.cap,",
        "0.0, tolerance.cap,",
        "cap",
    ),
    _rule(
        "unmeasured-floor-passes",
        JUDGE,
        "holds=False,\n                usage=math.inf,",
        "holds=True,\n                usage=0.0,",
        "floor",
    ),
    _rule(
        "decibels-the-other-way",
        METRICS,
        "return value >= limit if self.more_is_tighter else value <= limit",
        "return value <= limit",
        "direction",
    ),
    _rule("black-picture-passes", JUDGE, "if peak < _LEVEL", "if peak < 0", "black"),
    _rule(
        "misread-picture-passes",
        JUDGE,
        "if picture.expected_read == picture.actual_read:",
        "if True:",
        "read",
    ),
    _rule(
        "cosine-blind-to-zero",
        METRICS,
        "return 1.0 if signal == candidate else 0.0",
        "return 1.0",
        "cosine",
        "zero",
    ),
    _rule(
        "signal-and-error-swapped",
        METRICS,
        "ratio(sums.expected_squared, sums.error_squared, both_zero=math.inf)",
        "ratio(sums.error_squared, sums.expected_squared, both_zero=math.inf)",
        "sqnr",
        "numpy",
        "decibel",
    ),
    _rule(
        "floor-without-roundoff",
        COMPARE,
        "max(floor_rms, UNIT_ROUNDOFF * expected_rms)",
        "floor_rms",
        "floor",
    ),
    _rule(
        "integers-through-float64",
        COMPARE,
        "error = _integer_error(expected.reshape(-1), actual.reshape(-1))",
        "error = right - left",
        "exact_in_every_kind_of_number",
    ),
    _rule(
        "items-along-the-last-axis",
        COMPARE,
        "items = shape[0] if len(shape) > 1 else 1",
        "items = shape[-1] if len(shape) > 1 else 1",
        "item",
        "located",
        "numpy",
    ),
    _rule("mask-cut-too-low", ALIGN, "MASK_END = 6e4", "MASK_END = 1.0", "mask"),
    _rule(
        "shapes-of-equal-size-match",
        ALIGN,
        " if actual == (math.prod(wanted[:-1]), wanted[-1], 1, 1) else None",
        "",
        "axes",
        "shape",
        "rows",
    ),
    _rule(
        "missing-layers-not-counted",
        ALIGN,
        "if p.onnx and p.onnx not in compared]",
        "if False]",
        "coverage",
        "missing",
    ),
    _rule(
        "no-rows-pass",
        JUDGED,
        'return Outcome.EMPTY, f"no {what} were compared"',
        'return Outcome.WITHIN, ""',
        "empty",
        "no_",
        "nothing",
    ),
    _rule(
        "coverage-ignored",
        JUDGED,
        "if not share >= min_coverage:",
        "if False:",
        "too_little_compared",
    ),
    _rule(
        "first-by-size-not-by-order",
        JUDGED,
        "return rank, judged.row.position, -judged.verdict.usage",
        "return rank, -judged.verdict.usage",
        "first",
        "earliest",
    ),
    _rule(
        "failing-rows-forgotten",
        JUDGED,
        "if failing := [judged for judged in rows if not judged.verdict.passed]:",
        "if failing := []:",
        "fail",
        "test_",
    ),
)
