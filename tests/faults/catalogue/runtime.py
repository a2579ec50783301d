"""Runtimes that go wrong, the file being right."""

from functools import partial
from typing import Any

from harness.runtimes.session import Session
from tests.faults.catalogue import sessions
from tests.faults.catalogue.fault import Fault, InSession, fault


def _runtime(
    component: str,
    name: str,
    wrap: type[Session],
    *expects: str,
    place: str = "",
    **rest: Any,
) -> Fault:
    plant = InSession(wrap=wrap, place=place)
    return fault("runtime", plant, name, component, *expects, **rest)


_in_text = partial(_runtime, "text_encoder")
_in_encoder = partial(_runtime, "vae_encoder")
_in_decoder = partial(_runtime, "vae_decoder")
_in_controlnet = partial(_runtime, "controlnet")
INSIDE = "layer_norm_3"
NOT_FINITE = "NaN or infinite where PyTorch's are not"

FAULTS = (
    _in_text(
        "stale-buffer", sessions.StaleBuffer, "the same answer as to an earlier sample"
    ),
    _in_controlnet("outputs-swapped", sessions.SwappedOutputs, "or another was read"),
    _in_text("output-lost", sessions.LostOutput, "is missing"),
    _in_decoder(
        "nan-in-one-element", sessions.OneNan, "not finite", also=(NOT_FINITE,)
    ),
    _in_decoder(
        "overflow-to-infinity", sessions.Overflowed, "not finite", also=(NOT_FINITE,)
    ),
    _in_text("saturated", sessions.Saturated, "values are cut off"),
    _in_decoder("batch-item-0-read-for-all", sessions.Item0ForAll, "batch item 0"),
    _in_decoder(
        "batch-items-reversed",
        sessions.ItemsReversed,
        "batch items are in another order",
    ),
    _in_text(
        "thread-dependent",
        sessions.ThreadDependent,
        "every layer within",
        also=("channels 0 to 7 of 64",),
    ),
    _in_text(
        "noisy",
        sessions.Noisy,
        "every layer within",
        also=("more than float32 rounds",),
    ),
    _in_text("right-in-the-first-run-only", sessions.LaterWrong, "everything is "),
    _in_decoder("channels-read-as-last", sessions.Packed, "a layout"),
    _in_encoder(
        "every-fourth-channel-zero",
        sessions.EveryFourthZero,
        "every fourth channel",
        "channel 3 of 4",
    ),
    _in_decoder("height-and-width-swapped", sessions.AxesSwapped, "a transposition"),
    _in_decoder("one-pixel-off", sessions.OnePixelOff, "shifted by one along"),
    _in_decoder(
        "zeros", sessions.Zeros, "one value everywhere", also=("every value is 0",)
    ),
    _in_text("float16-memory", sessions.Halved, "rounded to float16"),
    _in_text("whole-numbers", sessions.Whole, "dtype"),
    _in_decoder(
        "batch-axis-squeezed",
        sessions.Squeezed,
        "shape [",
        also=("differs in axes of 1 alone",),
    ),
    _in_decoder("empty-output", sessions.Empty, "shape ["),
    _in_text(
        "wrong-fusion",
        sessions.OptimisedWrong,
        "every layer within",
        also=("everything is 1.001 times",),
    ),
    _in_text(
        "wrong-when-watched", sessions.WatchedWrong, "everything is ", place=INSIDE
    ),
    _in_text(
        "nan-inside",
        sessions.OneNanInside,
        "not finite",
        place=INSIDE,
        also=(NOT_FINITE,),
    ),
    _in_text("layers-lost", sessions.LayersLost, "computing operators compared"),
    _in_text(
        "falls-back-silently", sessions.FallsBack, "use 0 instead", backends=("mnn",)
    ),
    _in_text("crashes", sessions.Crashes, "crashed"),
    _in_text("crashes-when-watched", sessions.CrashesWatched, "crashed"),
    _in_text("hangs", sessions.Hangs, "timed-out", hangs=True),
)
