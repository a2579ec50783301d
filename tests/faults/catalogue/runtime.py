"""Runtimes that go wrong, the file being right."""

from __future__ import annotations

from typing import Any

from harness.runtimes.session import Session
from tests.faults.catalogue import sessions
from tests.faults.catalogue.fault import Fault, InSession, fault


def _runtime(
    name: str,
    component: str,
    wrap: type[Session],
    *expects: str,
    place: str = "",
    **rest: Any,
) -> Fault:
    plant = InSession(wrap=wrap, place=place)
    return fault("runtime", plant, name, component, *expects, **rest)


TEXT, DECODER, CONTROLNET = "text_encoder", "vae_decoder", "controlnet"
INSIDE = "layer_norm_3"
NOT_FINITE = "NaN or infinite where PyTorch's are not"

FAULTS = (
    _runtime(
        "stale-buffer",
        TEXT,
        sessions.StaleBuffer,
        "the same answer as to an earlier sample",
    ),
    _runtime(
        "outputs-swapped",
        CONTROLNET,
        sessions.SwappedOutputs,
        "or another was read",
    ),
    _runtime("output-lost", TEXT, sessions.LostOutput, "is missing"),
    _runtime(
        "nan-in-one-element",
        DECODER,
        sessions.OneNan,
        "not finite",
        also=(NOT_FINITE,),
    ),
    _runtime(
        "overflow-to-infinity",
        DECODER,
        sessions.Overflowed,
        "not finite",
        also=(NOT_FINITE,),
    ),
    _runtime("saturated", TEXT, sessions.Saturated, "values are cut off"),
    _runtime(
        "batch-item-0-read-for-all", DECODER, sessions.Item0ForAll, "batch item 0"
    ),
    _runtime(
        "batch-items-reversed",
        DECODER,
        sessions.ItemsReversed,
        "batch items are in another order",
    ),
    _runtime(
        "thread-dependent",
        TEXT,
        sessions.ThreadDependent,
        "every layer within",
        also=("channels 0 to 7 of 64",),
    ),
    _runtime(
        "noisy",
        TEXT,
        sessions.Noisy,
        "every layer within",
        also=("more than float32 rounds",),
    ),
    _runtime(
        "right-in-the-first-run-only",
        TEXT,
        sessions.LaterWrong,
        "everything is ",
    ),
    _runtime("channels-read-as-last", DECODER, sessions.Packed, "a layout"),
    _runtime(
        "every-fourth-channel-zero",
        "vae_encoder",
        sessions.EveryFourthZero,
        "every fourth channel",
        "channel 3 of 4",
    ),
    _runtime(
        "height-and-width-swapped", DECODER, sessions.AxesSwapped, "a transposition"
    ),
    _runtime("one-pixel-off", DECODER, sessions.OnePixelOff, "shifted by one along"),
    _runtime(
        "zeros",
        DECODER,
        sessions.Zeros,
        "one value everywhere",
        also=("every value is 0",),
    ),
    _runtime("float16-memory", TEXT, sessions.Halved, "rounded to float16"),
    _runtime("whole-numbers", TEXT, sessions.Whole, "dtype"),
    _runtime("batch-axis-squeezed", DECODER, sessions.Squeezed, "shape ["),
    _runtime("empty-output", DECODER, sessions.Empty, "shape ["),
    _runtime(
        "wrong-fusion",
        TEXT,
        sessions.OptimisedWrong,
        "every layer within",
        also=("everything is 1.001 times",),
    ),
    _runtime(
        "wrong-when-watched",
        TEXT,
        sessions.WatchedWrong,
        "everything is ",
        place=INSIDE,
    ),
    _runtime(
        "nan-inside",
        TEXT,
        sessions.OneNanInside,
        "not finite",
        place=INSIDE,
        also=(NOT_FINITE,),
    ),
    _runtime("layers-lost", TEXT, sessions.LayersLost, "computing operators compared"),
    _runtime(
        "falls-back-silently",
        TEXT,
        sessions.FallsBack,
        "use 0 instead",
        backends=("mnn",),
    ),
    _runtime("crashes", TEXT, sessions.Crashes, "crashed"),
    _runtime("crashes-when-watched", TEXT, sessions.CrashesWatched, "crashed"),
    _runtime("hangs", TEXT, sessions.Hangs, "timed-out", hangs=True),
)
