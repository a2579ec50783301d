"""Measure how often the verdict over many pictures is wrong, and what it sees.

    python benchmarks/bench_release.py [--pairs N] [--store DIR] [--write]

It draws pairs of prompt and seed with fixtures/digits in PyTorch: right, in the
model's own bfloat16, and with faults of known size; and with MNN's files of 8 and 4
bits. Then it draws releases from these pictures, with replacement, and lets three rules
judge each release: ours, "the mean over ten pictures is at most 1.1 times the expected
mean" and "each of ten pictures has 35 dB".
"""

import itertools
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median
from unittest.mock import patch

import figures
import numpy as np
import torch

from harness.core.case import Device
from harness.engine.engine import Engine
from harness.engine.run import open_store
from harness.engine.store import Store
from harness.plugins.pictures.distribution import Conclusion, results_of, verdict_of
from harness.plugins.pipelines.case import App, Sampling
from harness.plugins.pipelines.drawing import pairs as module
from harness.plugins.pipelines.drawing.inputs import draw_inputs
from harness.plugins.pipelines.drawing.networks import Residents, SessionNetwork
from harness.plugins.pipelines.drawing.reference import PREDICTION, torch_networks
from harness.plugins.pipelines.stages import role_file
from harness.plugins.release.pairs import against
from harness.plugins.release.thresholds import RMS_GROWTH
from harness.suite.suite import load_suite

DIGITS = Path(__file__).parents[1] / "fixtures" / "digits"
RELEASES, POWERED, MOST = 1000, 200, 50
FACTOR = 0.63462
"""The scaling factor of the checkpoint's autoencoder."""

SEEN = 0.9
TEN, APPLE_DB, NUNCHAKU = 10, 35.0, 1.1
METRICS = ("psnr", "ssim", "flip")
FAULTS = {
    **{
        f"VAE scale {percent:g} % off": App(scaling_factor=FACTOR * (1 + percent / 100))
        for percent in (1, 1.4, 1.6, 2)
    },
    **{
        f"guidance {percent:g} % off": App(guidance_scale=3.0 * (1 + percent / 100))
        for percent in (2, 2.5, 3, 4)
    },
    "steps_offset 0 for 1": App(sampling=Sampling(options=(("steps_offset", 0),))),
}
FIRST_STEP = {
    f"guidance of the first step {percent:g} % off": percent
    for percent in (5, 6, 7, 8, 10)
}
FILES = {"MNN int8-weights": "int8-weights", "MNN int4-weights": "int4-weights"}
"""Builds to the variant of the deployed files."""

ACCEPTED = "MNN int4-weights, where int8-weights is accepted (the gate)"


def deployed(suite, variant, store, residents):
    """Return the networks of MNN's files, by role."""
    name = f"hundred/mnn/{variant}"
    case = next(case for case in suite.pipeline_cases if case.id == name)
    with Engine(open_store(store), suite.limits) as engine:
        files = [
            role_file(engine._artifacts, one, role) for role, one in case.roles if one
        ]
    return {file.role: SessionNetwork(file, residents) for file in files}


def drawn(pairs, root, files):
    """Return the pairs of each build, by its name; `files` keeps deployed files."""
    suite = load_suite(DIGITS)
    case = next(c for c in suite.pipeline_cases if c.pipeline.name == "hundred")
    one = replace(
        case.pipeline,
        prompts=case.pipeline.prompts[:4],
        all_prompts=case.pipeline.prompts,
        seeds=pairs,
        reader="",
        yardstick="bfloat16",
        margins=tuple((name, None) for name in METRICS),
    )
    store, residents, device = Store(root=root), Residents(), Device()
    found = {}
    for name in (*FILES, *FAULTS, *FIRST_STEP):
        told = replace(one, app=FAULTS.get(name, App()))
        networks = dict(torch_networks(told, residents, device))
        if name in FIRST_STEP:
            percent = FIRST_STEP[name]
            networks["unet"] = wrong_at_first(networks["unet"], one.steps, percent)
        if name in FILES:
            networks = deployed(suite, FILES[name], files, residents)
        with patch.object(module, "verdict_of", lambda _: Conclusion.OPEN):
            found[name], _ = module.compare_pairs(
                told,
                draw_inputs(told),
                networks,
                store=store,
                device=device,
                residents=residents,
            )
        print(f"drawn: {name}", flush=True)
    return found


def wrong_at_first(unet, steps, percent):
    """Return a UNet whose guidance is too strong in the first step of a drawing."""
    calls = itertools.count()

    def wrong(feeds):
        made = unet(feeds)
        if next(calls) % steps:
            return made
        without, prompted = made[PREDICTION].chunk(2)
        stronger = without + (1 + percent / 100) * (prompted - without)
        return {**made, PREDICTION: torch.cat([without, stronger])}

    return wrong


def release(losses, limits, rng):
    """Return one release of some pictures, drawn with replacement."""
    at = rng.integers(0, len(limits["psnr"]), MOST)
    return {
        "margins": dict.fromkeys(losses),
        "losses": {n: [each[i] for i in at] for n, each in losses.items()},
        "limits": {n: [each[i] for i in at] for n, each in limits.items()},
    }


def judged(made):
    """Return our verdict, and the number of pictures after which it was clear."""
    verdict = verdict_of(made)
    every = [one for each in results_of(made).values() for one in each]
    if verdict is Conclusion.WORSE:
        return verdict, min(o.pictures for o in every if o.verdict is verdict)
    return verdict, max(one.pictures for one in every)


def others(made, expected):
    """Return whether the two other rules call a release worse."""
    psnr, flip = made["losses"]["psnr"][:TEN], made["losses"]["flip"][:TEN]
    apple = any(20 * np.log10(255 / rms) < APPLE_DB for rms in psnr if rms)
    return np.mean(flip) > NUNCHAKU * expected, apple


def score(name, losses, limits, count, rng):
    """Return how often each rule calls a build worse."""
    expected = float(np.mean(limits["flip"]))
    made = [release(losses, limits, rng) for _ in range(count)]
    verdicts = [judged(one) for one in made]
    worse = [n for verdict, n in verdicts if verdict is Conclusion.WORSE]
    ship = [n for verdict, n in verdicts if verdict is Conclusion.SHIP]
    theirs = np.mean([others(one, expected) for one in made], axis=0)
    row = {
        "build": name,
        "worse": len(worse) / count,
        "after": median(worse) if worse else None,
        "ship": len(ship) / count,
        "ship after": median(ship) if ship else None,
        "mean x 1.1": float(theirs[0]),
        "35 dB": float(theirs[1]),
        "psnr dB": round(20 * np.log10(255 / np.median(losses["psnr"])), 1),
    }
    print(json.dumps(row), flush=True)
    return row


def equal(limits, rng):
    """Return the false alarms of builds that are as far off as the yardstick.

    Each picture's error and its limit are two draws of the same kind: the yardstick's
    error times two independent factors of one distribution.
    """
    alarms = shipped = theirs = 0
    at = np.arange(len(limits["psnr"]))
    for _ in range(RELEASES):
        rows = rng.choice(at, MOST)
        noise = {n: np.exp(0.3 * rng.standard_normal((2, MOST))) for n in limits}
        two = {n: np.array(each)[rows] * noise[n] for n, each in limits.items()}
        made = {
            "margins": dict.fromkeys(limits),
            "losses": {n: list(each[0]) for n, each in two.items()},
            "limits": {n: list(each[1]) for n, each in two.items()},
        }
        verdict = verdict_of(made)
        alarms += verdict is Conclusion.WORSE
        shipped += verdict is Conclusion.SHIP
        mean = np.mean(made["losses"]["flip"][:TEN])
        theirs += mean > NUNCHAKU * np.mean(made["limits"]["flip"][:TEN])
    row = {
        "build": f"as far off as bfloat16, {RELEASES:,} simulated releases",
        "releases": RELEASES,
    }
    row |= {"worse": alarms / RELEASES, "ship": shipped / RELEASES}
    row |= {"mean x 1.1": theirs / RELEASES}
    print(json.dumps(row), flush=True)
    return row


def table(rows):
    """Return the builds as a table, the head first."""
    heads = ["build", "median PSNR", "DO NOT SHIP", "SHIP", "pictures"]
    return [[*heads, "mean × 1.1", "35 dB"], *map(texts, rows)]


def texts(row):
    """Return one build as its row of the table."""
    after = row.get("after") or row.get("ship after")
    return [
        row["build"],
        f"{row['psnr dB']:.1f} dB" if "psnr dB" in row else "",
        f"{100 * row['worse']:.3g} %",
        f"{100 * row['ship']:.3g} %",
        f"{after:g}" if after else "",
        f"{100 * row['mean x 1.1']:.3g} %",
        f"{100 * row['35 dB']:.3g} %" if "35 dB" in row else "",
    ]


def main():
    parser = figures.parser(__doc__)
    parser.add_argument("--pairs", type=int, default=48)
    parser.add_argument("--store", default="", help="where deployed files are kept")
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        found = drawn(given.pairs, Path(folder), given.store)
    limits = next(iter(found.values()))["limits"]
    rows = [equal(limits, rng)]
    eight, four = (found[name] for name in FILES)
    found[ACCEPTED] = against(eight, four, RMS_GROWTH)
    for name, one in found.items():
        rows.append(score(name, one["losses"], one["limits"], POWERED, rng))
    if given.write:
        seen = [row["build"] for row in rows if row["worse"] >= SEEN]
        figures.keep(
            "release",
            script=__file__,
            what="releases of digits with faults of known size, judged by pairs",
            measured=f"{rows[0]['worse']:.1%} of {RELEASES:,} equal builds are called "
            f"worse; seen nine times in ten: {', '.join(seen)}",
            values={row["build"]: row for row in rows},
            rows=table(rows),
            code=["judge", "runtimes/diffusion"],
        )


if __name__ == "__main__":
    main()
