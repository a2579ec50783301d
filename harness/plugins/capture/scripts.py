"""Record the calls of a script's modules while the script runs, from outside."""

from __future__ import annotations

import runpy  # noqa: TID251  # the user's own script, which a command names
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from harness.core.errors import SpecError
from harness.plugins.capture.calls import CallRecorder, Calls


def run_recorded(
    script: Path, arguments: Sequence[str], wanted: Mapping[str, str], samples: int
) -> Calls:
    """Run a script as ``python script.py`` does, and return what was recorded.

    Args:
        script: The script.
        arguments: Its arguments.
        wanted: For each component's name, an expression of names and attributes in the
            script, such as ``pipe.transformer`` or ``pipe.vae.decode``.
        samples: How many calls of each are kept.

    Raises:
        SpecError: A name was never a module while a module of the script was called.
        Exception: The script raised it.

    """
    watch = _Watch(dict(wanted), samples)
    before = list(sys.argv), list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        with watch.watching():
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit as ended:
        if ended.code not in {None, 0}:
            raise
    finally:
        sys.argv, sys.path[:] = before
    lost = [place for name, place in wanted.items() if name not in watch.found]
    if lost:
        msg = (
            f"{script}: there was no module {lost[0]!r} while the script called one; "
            "give the name that the script itself uses, as in --module "
            "pipe.transformer."
        )
        raise SpecError(msg)
    calls = Calls(watch.found)
    calls.require()
    return calls


class _Watch:
    """Finds modules by their names in a running script, and records their calls."""

    def __init__(self, wanted: dict[str, str], samples: int) -> None:
        self._wanted = wanted
        self._samples = samples
        self._recording = ExitStack()
        self.found: dict[str, CallRecorder] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """See each call of a module meanwhile."""
        import torch

        called = torch.nn.Module.__call__
        watch = self

        def seen(module: Any, *args: Any, **kwargs: Any) -> Any:
            if len(watch.found) < len(watch._wanted):  # our own
                watch.look(sys._getframe(1))  # noqa: SLF001  # no other way to a name
            return called(module, *args, **kwargs)

        torch.nn.Module.__call__ = seen
        try:
            with self._recording:
                yield
        finally:
            torch.nn.Module.__call__ = called

    def look(self, frame: FrameType) -> None:
        """Begin to record each wanted module that the script has by now."""
        from harness.recipes.methods import as_module

        for name, place in self._wanted.items():
            if name in self.found:
                continue
            if (found := as_module(_value(place, frame))) is not None:
                one = CallRecorder(name=name, module=found, most=self._samples)
                self._recording.enter_context(one.recording())
                self.found[name] = one


def _value(place: str, frame: FrameType | None) -> Any:
    """Return what a name means where a module is called; None if it means nothing."""
    first, *rest = place.split(".")
    while frame is not None:
        for names in (frame.f_locals, frame.f_globals):
            found = names.get(first)
            for part in rest if found is not None else ():
                found = getattr(found, part, None)
            if found is not None:
                return found
        frame = frame.f_back
    return None
