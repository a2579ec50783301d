"""Our own rules, each broken on purpose: the harness's tests must tell."""

from functools import partial

from tests.faults.catalogue.fault import Fault, InRule, fault


def _rule(
    module: str, name: str, right: str, wrong: str, *expects: str, tests: str = ""
) -> Fault:
    plant = InRule(module=module, right=right, wrong=wrong, tests=tests)
    return fault("metric", plant, name, "", *expects)


_in_align = partial(_rule, "harness/measure/align.py")
_in_case = partial(_rule, "harness/judge/case.py")
_in_unread = partial(_rule, "harness/judge/unread.py")
_in_taken_out = partial(_rule, "harness/measure/unread.py")
_in_contract = partial(
    _rule,
    "harness/plugins/contracts/judged.py",
    tests="../plugins/contracts/test_beside.py",
)
_in_compare = partial(_rule, "harness/measure/compare.py")
_in_metrics = partial(_rule, "harness/measure/metrics.py")
_in_value = partial(_rule, "harness/judge/value.py")
_in_patch = partial(_rule, "harness/runtimes/pytorch/patch.py")
_of_calls = partial(_rule, tests="../plugins/capture/test_forms.py")

_CONTRACT = "../plugins/contracts/test_files.py"

FAULTS = (
    _in_patch(
        "wrong-patch-passes",
        "multiple <= (_MOST.floors or math.inf)",
        "True",
        "moves_an_output_further",
    ),
    _in_patch(
        "patch-of-weights-passes",
        "    _refuse_weights(component, name, module, copy)\n",
        "",
        "a_patch_that_is_none",
    ),
    _of_calls(
        "harness/recipes/nested.py",
        "recorded-data-names-code",
        "found: Any = sys.modules.get(module)",
        "found: Any = __import__(module)",
        "names_no_code",
    ),
    _of_calls(
        "harness/plugins/capture/calls.py",
        "one-of-two-kinds-of-calls-is-lost",
        "_THIRD = 3",
        "_THIRD = 2",
        "none_of_two_kinds",
    ),
    _of_calls(
        "harness/plugins/capture/forms.py",
        "a-size-that-cannot-follow-is-open",
        'named[sizes] = name = re.sub(r"\\W", "_", f"output_{own_name}")[:60]',
        "name = sizes[0]",
        "follows_in_no_way",
    ),
    _in_compare(
        "relative-to-the-candidate",
        "_measure(expected, actual, floor_rms)",
        "_measure(actual, expected, floor_rms)",
        "test_",
    ),
    _in_compare("shapes-broadcast", "expected.shape != actual.shape or ", "", "shape"),
    _in_value(
        "empty-counts-as-equal",
        "if comparison.count == 0:",
        "if False:",
        "empty",
        "element",
    ),
    _in_value(
        "nan-equals-nan",
        "if there == 0 and here == 0 and wrong == 0:",
        "if wrong == 0:",
        "nonfinite",
        "finite",
        "nan",
    ),
    _in_value(
        "nan-passes-a-bound",
        "holds=value <= limit,",
        "holds=not value > limit,",
        "no_number",
    ),
    _in_value("misplaced-nan-allowed", "if wrong != 0:", "if False:", "finite", "nan"),
    _in_value(
        "constant-output-passes",
        "elif is_output:\n            outcome, reason = _constant",
        "elif False:\n            outcome, reason = _constant",
        "constant",
    ),
    _in_value(
        "kinds-of-number-mixed",
        'if kind == "other" or kind !=',
        "if False and kind !=",
        "integer-for-floating",
    ),
    _in_value(
        "best-bound-counts", "worst = max(checks", "worst = min(checks", "too-far"
    ),
    _in_value(
        "share-without-cap", "required, tolerance.cap,", "0.0, tolerance.cap,", "cap"
    ),
    _in_value(
        "unmeasured-floor-passes",
        "holds=False,\n                usage=math.inf,",
        "holds=True,\n                usage=0.0,",
        "floor",
    ),
    _in_metrics(
        "decibels-the-other-way",
        "return value >= limit if self.more_is_tighter else value <= limit",
        "return value <= limit",
        "direction",
    ),
    _in_value("black-picture-passes", "if peak < _LEVEL", "if peak < 0", "black"),
    _in_value(
        "misread-picture-passes",
        "if picture.expected_read == picture.actual_read:",
        "if True:",
        "read",
    ),
    _in_metrics(
        "cosine-blind-to-zero",
        "return 1.0 if signal == candidate else 0.0",
        "return 1.0",
        "cosine",
        "zero",
    ),
    _in_metrics(
        "signal-and-error-swapped",
        "ratio(sums.expected_squared, sums.error_squared, both_zero=math.inf)",
        "ratio(sums.error_squared, sums.expected_squared, both_zero=math.inf)",
        "sqnr",
        "numpy",
        "decibel",
    ),
    _in_compare(
        "floor-without-roundoff",
        "max(floor_rms, UNIT_ROUNDOFF * expected_rms)",
        "floor_rms",
        "floor",
    ),
    _in_compare(
        "integers-through-float64",
        "error = _integer_error(expected.reshape(-1), actual.reshape(-1))",
        "error = right - left",
        "exact_in_every_kind_of_number",
    ),
    _in_compare(
        "items-along-the-last-axis",
        "items = shape[0] if len(shape) > 1 else 1",
        "items = shape[-1] if len(shape) > 1 else 1",
        "item",
        "located",
        "numpy",
    ),
    _in_align("mask-cut-too-low", "MASK_END = 6e4", "MASK_END = 1.0", "mask"),
    _in_align(
        "mask-hides-the-scores-beside-it",
        "return np.where(alike, 0, expected), np.where(alike, 0, actual)",
        "return expected, actual",
        "mask",
    ),
    _in_align(
        "shapes-of-equal-size-match",
        " if actual == (math.prod(wanted[:-1]), wanted[-1], 1, 1) else None",
        "",
        "axes",
        "shape",
        "rows",
    ),
    _in_align(
        "missing-layers-not-counted",
        "if p.onnx and p.onnx not in compared]",
        "if False]",
        "coverage",
        "missing",
    ),
    _in_align(
        "fused-values-count-by-one-reader",
        "if not waiting[name] and name not in shown:",
        "if name not in shown:",
        "fused",
    ),
    _in_unread(
        "what-is-read-not-judged-apart",
        "told.outcome in {Outcome.EXCEEDS, Outcome.NONFINITE}",
        "True",
        "padding",
        "read",
    ),
    _in_unread(
        "one-reader-at-padding-excuses-a-value",
        "and all(reader.verdict.passed for reader in of_it)",
        "",
        "padding",
        "read",
    ),
    _in_taken_out(
        "a-key-that-is-masked-takes-out-its-query",
        "out.all(axis=-1)",
        "out.any(axis=-1)",
        "queries",
    ),
    _in_taken_out(
        "what-is-read-is-changed-with-the-padding",
        "np.where(rows, _another(value), value)",
        "_another(value)",
        "padding",
    ),
    _in_contract(
        "batch-mates-not-judged",
        "if deployed > LEAK and deployed > _LEAKS_MORE * reference:",
        "if False:",
        "mates",
        "padding",
    ),
    _in_contract(
        "a-file-is-held-to-what-pytorch-does-not-keep",
        "deployed > _LEAKS_MORE * reference",
        "True",
        "pytorch",
    ),
    _in_case(
        "rows-of-padding-fail-a-case",
        "if part is None or whole.passed:",
        "if True:",
        "padding",
    ),
    _in_case(
        "an-operator-that-is-right-in-the-file-is-blamed",
        "judged.verdict.passed or judged.other or judged.reads_other",
        "judged.other or judged.reads_other",
        "not_blamed",
    ),
    _in_case(
        "no-rows-pass",
        'return Outcome.EMPTY, f"no {what} were compared"',
        'return Outcome.WITHIN, ""',
        "empty",
        "no_",
        "nothing",
    ),
    _in_case(
        "coverage-ignored",
        "if not share >= min_coverage:",
        "if False:",
        "too_little_compared",
        "say_one_share",
    ),
    _in_case(
        "first-by-size-not-by-order",
        "return rank, judged.row.position, -judged.verdict.usage",
        "return rank, -judged.verdict.usage",
        "first",
        "earliest",
    ),
    _rule(
        "harness/judge/sizes.py",
        "sizes-that-tell-nothing-are-said",
        "if (least := min(fail)) > (most := max(agree)):",
        "if (least := min(fail)) >= (most := max(agree)):",
        "sizes",
    ),
    _in_case(
        "general-words-win",
        'return min(found, key=how_general, default="")',
        'return found[0] if found else ""',
        "pattern",
    ),
    _in_case(
        "module-blamed-for-what-is-before-it",
        "if not self.between or self.first is None:",
        "if True:",
        "not_blamed_alone",
    ),
    _in_case(
        "failing-rows-forgotten",
        "if failing := [judged for judged in rows if not judged.verdict.passed]:",
        "if failing := []:",
        "fail",
        "test_",
    ),
    _rule(
        "harness/plugins/patterns/arithmetic.py",
        "pattern-that-leaves-most-of-the-error",
        "if rms(left) > max(share * whole, min(noise, _SMALL_PART * whole)):",
        "if False:",
        "test_",
        tests="../plugins/patterns/test_error_patterns.py",
    ),
    _rule(
        "harness/plugins/elsewhere/calls.py",
        "pattern-of-the-first-sample-alone",
        "for sample in self.samples:\n            changed",
        "for sample in self.samples[:1]:\n            changed",
        "sample",
        tests="../plugins/elsewhere/test_calls.py",
    ),
    _rule(
        "harness/judge/stored_bits.py",
        "int8-that-is-float32-passes",
        "if asked and stored is not None and not stored.get(asked):",
        "if False:",
        "stored",
    ),
    _rule(
        "harness/plugins/contracts/runs/sensitivity.py",
        "inputs-judged-on-nan",
        "bool((np.isfinite(expected[name]) & ~np.isfinite(actual[name])).any())",
        "False",
        "not_finite",
        tests=_CONTRACT,
    ),
    _rule(
        "harness/plugins/contracts/runs/file.py",
        "fixed-axis-by-what-differs",
        "            if not _runs(run, feeds):\n",
        "            if True:\n",
        "fixed",
        tests=_CONTRACT,
    ),
    _rule(
        "harness/suite/shapes.py",
        "no-size-above-the-suites-own",
        "larger = [2 * top, top + step]",
        "larger = [top]",
        "above",
        "larger",
    ),
    _rule(
        "harness/engine/imports.py",
        "recipe-by-its-name-alone",
        "sorted([path.name, digest_file(path)] for path in there)",
        "sorted([path.name] for path in there)",
        "made_anew",
        "followed",
    ),
    _rule(
        "harness/plugins/release/causes.py",
        "cause-left-out",
        "elif checkpoint:",
        "elif False:",
        "cause",
        tests="../plugins/release/test_gate.py",
    ),
)
