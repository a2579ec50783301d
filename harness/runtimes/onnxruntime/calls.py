"""The calls that a bundle makes of ONNX Runtime's driver, and those of a receiver."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Annotated, Final, Literal

from msgspec import Meta

from harness.runtimes.calls import (
    PLACE,
    Call,
    Folder,
    Name,
    NoModel,
    Option,
    Said,
    Threads,
)
from harness.runtimes.onnxruntime import OPTIMISERS

_PROVIDER: Final = "ExecutionProvider"

_OPTIONS: Final = {
    "CUDA": (
        *("arena_extend_strategy", "cudnn_conv1d_pad_to_nc1d"),
        *("cudnn_conv_algo_search", "cudnn_conv_use_max_workspace", "device_id"),
        *("do_copy_in_default_stream", "enable_cuda_graph", "fuse_conv_bias"),
        *("gpu_mem_limit", "prefer_nhwc", "sdpa_kernel", "tunable_op_enable"),
        *("tunable_op_tuning_enable", "use_ep_level_unified_stream", "use_tf32"),
        "enable_skip_layer_norm_strict_mode",
    ),
    "Tensorrt": (
        *("device_id", "trt_bf16_enable", "trt_builder_optimization_level"),
        *("trt_fp16_enable", "trt_int8_enable", "trt_layer_norm_fp32_fallback"),
        *("trt_max_partition_iterations", "trt_max_workspace_size"),
        "trt_min_subgraph_size",
    ),
    "OpenVINO": (
        *("device_id", "device_type", "disable_dynamic_shapes", "num_of_threads"),
        *("enable_opencl_throttling", "enable_qdq_optimizer", "model_priority"),
        *("num_streams", "precision"),
    ),
    "CoreML": (
        *("AllowLowPrecisionAccumulationOnGPU", "EnableOnSubgraphs"),
        *("MLComputeUnits", "ModelFormat", "RequireStaticInputShapes"),
        "SpecializationStrategy",
    ),
    "Dml": ("device_filter", "device_id", "performance_preference"),
    "Xnnpack": ("intra_op_num_threads",),
    "QNN": (
        *("backend_type", "device_id", "enable_htp_fp16_precision", "htp_arch"),
        *("htp_graph_finalization_optimization_mode", "htp_performance_mode"),
        *(
            "offload_graph_io_quantization",
            "qnn_context_priority",
            "rpc_control_latency",
        ),
        *("soc_model", "vtcm_mb"),
    ),
}
"""Options of each provider that name no file, no library and no address in memory. A
provider loads what some of the others name, or writes there."""

_WORD: Final = re.compile(r"[\w.:,+-]{1,64}")
"""What such an option may be as text: it has no separator of folders."""


class _Open(Said, frozen=True):
    folder: Folder
    level: Literal[0, 1, 2, 99]
    threads: Threads
    provider: Annotated[str, Meta(pattern=rf"\A\w{{1,64}}{_PROVIDER}\Z")]
    settings: dict[Name, Option]
    left_out: tuple[Name, ...]
    model: NoModel = ""
    profile: Literal[""] = ""


class _Run(Said, frozen=True):
    names: tuple[Name, ...]


class OpenOnnx(Call, frozen=True, tag="open"):
    """Load a file, or the graph in the array ``model``. It writes no profile."""

    said: _Open


class RunOnnx(Call, frozen=True, tag="run"):
    """Run the open session."""

    said: _Run


CALLS = OpenOnnx | RunOnnx


def refusals(call: OpenOnnx | RunOnnx, files: Collection[str]) -> Iterator[str]:
    """Yield why a receiver does not make a call, a clause each; none if it makes it.

    `files` are the names of the bundle's files.
    """
    if isinstance(call, RunOnnx):
        return
    said = call.said
    if call.feeds or said.model.removeprefix(PLACE) not in files:
        yield "loads another graph than its files"
    if said.folder != said.model.rpartition("/")[0]:
        yield "looks for weights in another folder than its file's"
    for name in said.left_out:
        if name not in OPTIMISERS:
            yield f"leaves out {name!r}, which is no rewrite of ONNX Runtime's"
    known = _OPTIONS.get(said.provider.removesuffix(_PROVIDER), ())
    for name, value in said.settings.items():
        if name not in known:
            yield f"gives {said.provider} the option {name!r}, which may name a file"
        if isinstance(value, str) and not _WORD.fullmatch(value):
            yield f"gives {said.provider} {name} = {value!r}, which may be a path"
