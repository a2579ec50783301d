"""The declaration of OpenVINO, beside its conversion and sessions."""

from __future__ import annotations

from harness.core.runtime import EXACT, BuiltIn, Cost, Runtime

MODEL = "model.xml"
WEIGHTS = "model.bin"

RUNTIME = Runtime(
    name="openvino",
    title="OpenVINO",
    package=__name__,
    module="openvino",
    distributions=("openvino",),
    tools=("nncf",),
    order=2,
    model=MODEL,
    weights=(WEIGHTS,),
    devices=("cpu", "gpu"),
    # A processor with bfloat16 computes in it by default, without a message.
    precisions=("f32", "bf16", "f16"),
    precision_note="OpenVINO's own default may be bfloat16",
    variants={
        EXACT: BuiltIn(tier="standard"),
        "fp16": BuiltIn(
            tier="relaxed",
            risk="half the size; weights keep 3 digits, timesteps lose most",
            blames="weights in float16",
        ),
        "int8-weights": BuiltIn(
            tier="quantized",
            bits=8,
            risk="a quarter; an outlier takes the digits of its channel",
            blames="weights in int8",
        ),
    },
    run=Cost(words="running {component} in OpenVINO", base=400, copies=2.6),
    make=Cost(words="converting {component} to OpenVINO", base=400, copies=3.0),
    session_times=2.6,
    reads="xml",
    preload=("openvino",),
)
