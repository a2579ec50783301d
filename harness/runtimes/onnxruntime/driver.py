"""ONNX Runtime itself: what a session asks of it, here or on a target.

An agent runs this file on a target. It needs Python 3.8 and imports numpy and
onnxruntime alone. Each method gets arrays, a function that takes values as they come,
and settings that JSON can hold; it returns what JSON can hold.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import contextmanager, redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping

import numpy as np

# onnxruntime 1.29 and later open a database, start a thread and post to Microsoft.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime as ort

CPU = "CPUExecutionProvider"
_KEPT_BYTES = 16384
"""How much is kept of the beginning of what native code prints, and of its end."""

Feeds = Mapping[str, np.ndarray]
Show = Callable[[str, np.ndarray], None]

_LEVELS = {
    0: ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    1: ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    2: ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    99: ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


class OrtDriver:
    """A session of an ONNX file, or of a piece of it."""

    version = ort.__version__

    def __init__(self) -> None:
        self._session: Any = None

    def open(
        self,
        feeds: Feeds,
        _: Show,
        *,
        folder: str,
        level: int,
        threads: int,
        provider: str,
        settings: dict[str, Any],
        left_out: list[str],
        model: str = "",
        profile: str = "",
    ) -> dict[str, Any]:
        """Load a file, or the graph in the array ``model`` with weights in `folder`.

        Returns:
            The providers, the names of the outputs, what native code printed, and the
            nodes on the CPU provider: pairs of a name and an operator, or None where
            this version does not tell. No output is named if the build lacks the
            provider; the providers are those that it has.

        """
        self._session = None  # one copy of the weights at a time
        if provider not in ort.get_available_providers():
            return {"providers": ort.get_available_providers(), "outputs": []}
        options = ort.SessionOptions()
        options.graph_optimization_level = _LEVELS[level]
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Spinning threads take the core that the comparison and other cases need.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", folder
        )
        if profile:
            _keep_profile(options, profile)
        _find_libraries(provider)
        tells = provider != CPU and hasattr(
            ort.InferenceSession, "get_provider_graph_assignment_info"
        )
        if tells:
            options.add_session_config_entry(
                "session.record_ep_graph_assignment_info", "1"
            )
        # An older onnxruntime does not know the argument.
        rest = {"disabled_optimizers": left_out} if left_out else {}
        said: list[str] = []
        try:
            with _printed(said, is_kept=provider != CPU):
                session = ort.InferenceSession(
                    model or feeds["model"].tobytes(),
                    options,
                    providers=[(provider, settings)],
                    # Otherwise another provider takes the place of one that fails.
                    enable_fallback=0,
                    **rest,
                )
        except Exception as error:
            if not said:
                raise
            msg = f"{error}\n{said[0]}"
            raise RuntimeError(msg) from error
        self._session = session
        parts = session.get_provider_graph_assignment_info() if tells else []
        nodes = [(part.ep_name, node) for part in parts for node in part.get_nodes()]
        on_cpu = [[node.name, node.op_type] for where, node in nodes if where == CPU]
        return {
            "providers": session.get_providers(),
            "outputs": [value.name for value in session.get_outputs()],
            "said": "".join(said),
            "nodes": len(nodes),
            "on_cpu": on_cpu if tells else None,
        }

    def unmet(self, asked: Mapping[str, Any], told: Mapping[str, Any]) -> str:
        """Return that another provider was opened than the one asked for; or nothing.

        `asked` are the arguments of `open`, and `told` is its result. A build without
        the provider opens nothing. One that cannot start it takes the CPU.
        """
        got = told["providers"]
        if told["outputs"] and got[:1] == [asked["provider"]]:
            return ""
        how = "runs on" if told["outputs"] else "has"
        return (
            f"onnxruntime {ort.__version__} was asked for {asked['provider']} "
            f"and {how} {', '.join(got)}"
        )

    def run(self, feeds: Feeds, show: Show, *, names: list[str]) -> None:
        """Run the session, and show those of its outputs that are named."""
        made = self._session.run(list(names), dict(feeds))
        for at, output in enumerate(names):
            show(output, made[at])

    def end_profiling(self, _: Feeds, __: Show) -> str:
        """Return the path of the session's profile."""
        path: str = self._session.end_profiling()
        return path


def _find_libraries(provider: str) -> None:
    """Load the libraries of NVIDIA's wheels, where a session would not look."""
    if provider.startswith(("CUDA", "Tensorrt")) and hasattr(ort, "preload_dlls"):
        with redirect_stdout(sys.stderr):
            ort.preload_dlls()
    if provider.startswith("Tensorrt"):
        with suppress(ImportError):
            import_module("tensorrt")


@contextmanager
def _printed(said: list[str], *, is_kept: bool) -> Iterator[None]:
    """Keep what native code prints to stderr, and print it afterwards.

    A provider that cannot be made says the reason there and nowhere else.
    """
    if not is_kept:
        yield
        return
    own = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(own, 2)
            os.close(own)
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            printed = file.read(_KEPT_BYTES)
            if size > 2 * _KEPT_BYTES:
                left_out = size - 2 * _KEPT_BYTES
                printed += f"\n… {left_out:,} bytes are left out here …\n".encode()
                file.seek(-_KEPT_BYTES, os.SEEK_END)
            printed += file.read()
            os.write(2, printed)
            said.append(printed.decode(errors="replace"))


def _keep_profile(options: ort.SessionOptions, folder: str) -> None:
    """Make a session write its profile and the graph that it really runs."""
    options.enable_profiling = True
    options.profile_file_prefix = str(Path(folder, "profile"))
    options.optimized_model_filepath = str(Path(folder, "optimised.onnx"))
    # Weights go beside the graph: a file of over 2 GB would be refused.
    options.add_session_config_entry(
        "session.optimized_model_external_initializers_file_name", "optimised.bin"
    )
    options.log_severity_level = 3  # it warns that the graph is this machine's own


open_driver = OrtDriver
