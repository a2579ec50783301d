"""Record the networks of a checkpoint that no recipe knows.

The checkpoint's own class loads it, and one call with the smallest settings shows what
each network in it is called with. No family is named here.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.core.case import Source
from harness.core.errors import SuiteError, first_line
from harness.plugins.capture.calls import CallRecorder, Calls
from harness.plugins.capture.forms import LIBRARIES
from harness.recipes.checkpoint import read_config, read_index

if TYPE_CHECKING:
    import torch

_SIDES: Final = (32, 64, 128, 256, 512, 0)
"""Sides of a picture in pixels, of which the first that is taken is used; 0 for the
pipeline's own."""

_FRAMES: Final = (5, 9, 17, 25, 0)
_TEXT: Final = "a photo of a lighthouse"
_SAMPLES: Final = 2

_METHODS: Final = {"encode": "encoder", "decode": "decoder"}
"""Methods by which pipelines call a network, and what the component is called."""

_YOURSELF: Final = (
    "Record it in a program of your own: `with harness.capture(...) as calls:` "
    "(docs/any-network.md)."
)


class NotLoadedError(SuiteError):
    """A checkpoint cannot be loaded by its own class; a recipe may say more."""


def record_checkpoint(checkpoint: Path) -> tuple[Calls, dict[str, str]]:
    """Load a checkpoint, call it once, and return the calls of its networks.

    Returns:
        The calls; and for each component the folder of its network in the checkpoint.

    Raises:
        NotLoadedError: It cannot be loaded.
        SuiteError: It cannot be called without further knowledge.

    """
    import diffusers
    import transformers

    for library in (diffusers, transformers):
        library.utils.logging.disable_progress_bar()
        library.utils.logging.set_verbosity_error()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the libraries' own, about what is missing
        if (checkpoint / "model_index.json").is_file():
            return _of_pipeline(checkpoint)
        return _of_model(checkpoint)


def _of_pipeline(checkpoint: Path) -> tuple[Calls, dict[str, str]]:
    import diffusers
    import torch

    index = read_index(Source(path=checkpoint))
    for name, entry in index.items():
        if not isinstance(entry, list) or entry in ([None, None], [None]):
            continue
        library = entry[0] if entry else ""
        if library is not None and library not in LIBRARIES:
            msg = (
                f"{checkpoint / 'model_index.json'} takes {name!r} from {library!r}, "
                f"and only classes of {' and '.join(LIBRARIES)} are loaded from a "
                f"checkpoint. {_YOURSELF}"
            )
            raise NotLoadedError(msg)
    kind = index.get("_class_name")
    cls: Any = getattr(diffusers, str(kind), None)
    if not isinstance(kind, str) or not hasattr(cls, "from_pretrained"):
        msg = (
            f"{checkpoint / 'model_index.json'} names the pipeline {str(kind)[:80]!r}, "
            f"which diffusers {diffusers.__version__} does not have. {_YOURSELF}"
        )
        raise NotLoadedError(msg)
    try:
        pipe = cls.from_pretrained(
            checkpoint,
            torch_dtype=torch.float32,
            use_safetensors=True,
            local_files_only=True,
        )
    except Exception as error:  # noqa: BLE001  # it may raise anything
        msg = (
            f"{checkpoint}: {kind} cannot be loaded ({type(error).__name__}: "
            f"{first_line(error)}). {_YOURSELF}"
        )
        raise NotLoadedError(msg) from None
    pipe.set_progress_bar_config(disable=True)
    networks = {
        name: part
        for name, part in pipe.components.items()
        if isinstance(part, torch.nn.Module)
    }
    return _called(
        f"{checkpoint}: {kind}", networks, lambda: _try_pipe(pipe), name=True
    )


def _try_pipe(pipe: Any) -> Iterator[Callable[[], object]]:
    """Yield calls of a pipeline, from the smallest settings on."""
    import torch
    from PIL import Image

    takes = inspect.signature(pipe.__call__).parameters
    picture = Image.new("RGB", (64, 64), (120, 90, 60))
    known: dict[str, Any] = {
        "prompt": _TEXT,
        "class_labels": [0],
        "image": picture,
        "mask_image": picture.convert("L"),
        "control_image": picture,
    }
    required = [
        name
        for name, one in takes.items()
        if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
    ]
    if lacking := [name for name in required if name not in known]:
        msg = f"{type(pipe).__name__} needs {lacking[0]!r}, which nobody here knows"
        raise SuiteError(msg)
    usual = {
        name: value
        for name, value in known.items()
        if name in takes and (name in {"prompt", "class_labels"} or name in required)
    }
    if "num_inference_steps" in takes:
        usual["num_inference_steps"] = 2
    has_sides = "height" in takes and "width" in takes
    for side in _SIDES if has_sides else (0,):
        for frames in _FRAMES if "num_frames" in takes else (0,):
            given = dict(usual)
            given |= {"height": side, "width": side} if side else {}
            given |= {"num_frames": frames} if frames else {}

            def call(given: dict[str, Any] = given) -> object:
                drawn = {"generator": torch.Generator().manual_seed(0)}
                own = drawn if "generator" in takes else {}
                return pipe(**given, **own)

            yield call


def _of_model(checkpoint: Path) -> tuple[Calls, dict[str, str]]:
    import torch
    import transformers

    source = Source(path=checkpoint)
    config = read_config(source, "")
    if not config.get("model_type"):
        msg = (
            f"{checkpoint / 'config.json'} names no model_type, so no class of "
            f"transformers is known for it. {_YOURSELF}"
        )
        raise NotLoadedError(msg)
    try:
        model = transformers.AutoModel.from_pretrained(
            checkpoint,
            dtype=torch.float32,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
        ).eval()
    except Exception as error:  # noqa: BLE001  # it may raise anything
        msg = (
            f"{checkpoint}: AutoModel cannot load it ({type(error).__name__}: "
            f"{first_line(error)}). {_YOURSELF}"
        )
        raise NotLoadedError(msg) from None
    what = f"{checkpoint}: {type(model).__name__}"
    networks = {"model": model}
    return _called(what, networks, lambda: _try_model(model, checkpoint), name=False)


def _try_model(model: Any, checkpoint: Path) -> Iterator[Callable[[], object]]:
    """Yield calls of a model, with what the files beside it make of plain inputs."""
    import numpy as np
    import torch
    import transformers
    from PIL import Image

    rng = np.random.default_rng(0)
    picture = Image.fromarray(rng.integers(0, 255, (64, 80, 3), dtype=np.uint8))
    sound = rng.normal(0.0, 0.1, 16_000).astype(np.float32)
    inputs: list[Mapping[str, Any]] = []
    for loader, plain in (
        ("AutoTokenizer", {"text": _TEXT}),
        ("AutoImageProcessor", {"images": picture}),
        ("AutoFeatureExtractor", {"raw_speech": sound, "sampling_rate": 16_000}),
    ):
        try:
            made = getattr(transformers, loader).from_pretrained(
                checkpoint, local_files_only=True, trust_remote_code=False
            )
            inputs.append(dict(made(**plain, return_tensors="pt")))
        except Exception:  # noqa: BLE001, S112  # the checkpoint has other files
            continue
    with_all = {key: value for one in inputs for key, value in one.items()}
    start = torch.tensor([[getattr(model.config, "decoder_start_token_id", None) or 0]])
    for given in (*inputs, with_all, getattr(model, "dummy_inputs", None) or {}):
        for more in ({}, {"decoder_input_ids": start}):
            if given:
                yield partial(model, **given, **more)


def _called(
    what: str,
    networks: Mapping[str, torch.nn.Module],
    tries: Callable[[], Iterator[Callable[[], object]]],
    *,
    name: bool,
) -> tuple[Calls, dict[str, str]]:
    """Call until one succeeds; return the calls and the folders of the networks."""
    import torch

    why = "nothing here knows how to call it"
    try:
        for call in tries():
            recorders = dict(_recorders(networks))
            calls = Calls({one: recorder for one, (recorder, _) in recorders.items()})
            try:
                with torch.no_grad(), calls.recording():
                    call()
            except Exception as error:  # noqa: BLE001  # it may raise anything
                why = f"{type(error).__name__}: {first_line(error)}"
                continue
            seen = {one: recorder for one, recorder in calls.items() if recorder.seen}
            Calls(seen).require()
            folders = {one: recorders[one][1] if name else "" for one in seen}
            return Calls(seen), folders
    except SuiteError as error:
        why = str(error)
    msg = f"{what} cannot be called here: {why}. {_YOURSELF}"
    raise SuiteError(msg)


def _recorders(
    networks: Mapping[str, torch.nn.Module],
) -> Iterator[tuple[str, tuple[CallRecorder, str]]]:
    """Yield a recorder of each network, and of each method that pipelines call."""
    from harness.recipes.methods import Method

    for name, network in networks.items():
        yield name, (CallRecorder(name=name, module=network, most=_SAMPLES), name)
        for method, part in _METHODS.items():
            if callable(getattr(network, method, None)):
                own = f"{name}_{part}"
                module = Method(network, method)
                yield own, (CallRecorder(name=own, module=module, most=_SAMPLES), name)
