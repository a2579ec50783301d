"""Find a planted fault's operator: ours, PyTorch's verification, and bisection.

    python benchmarks/bench_localise.py [--store DIR] [--write]

Two faults in digits' text encoder. An epsilon of a LayerNormalization in the exported
graph: ours beside ``torch.onnx.verification.verify_onnx_program`` with
``compare_intermediates=True``, which sees ONNX alone. The converter's
``--transformerFuse``, which is wrong for every batch item but the first: ours beside
bisection by reconversion, which is what MNN's own debugging script does: cut the graph
at a value, convert the cut, run it, and hold it against ONNX Runtime within 1 %.
Ours is timed from a cold start of its child processes, with a warm store.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import figures
from bare import verify_planted

from harness.core.case import TensorSpec, Variant
from harness.engine import export_files
from harness.engine.host import Host
from harness.measure.trace import load_inputs
from harness.runtimes.mnn.convert import MODEL, convert
from tests.faults.catalogue import FAULTS
from tests.faults.planting import plant
from tests.faults.stand import Stand

FAULT = "layer-norm-epsilon-large"
FUSED = "fused"
CODE = ("core", "engine", "judge", "measure", "runtimes")
ONE_PERCENT = 0.01
TIMEOUT_S = 3600.0


def ours_in_graph(root: Path) -> tuple[float, str]:
    """Return seconds and the operator named, for the fault in the graph."""
    fault = next(fault for fault in FAULTS if fault.name == FAULT)
    with Stand(root) as stand:
        plant(stand, fault, "onnxruntime")  # makes the store warm
    start = time.perf_counter()
    with Stand(root) as stand:
        trial = plant(stand, fault, "onnxruntime")
    first = trial.verdicts[0].first
    return time.perf_counter() - start, first.row.probe if first else "nothing"


def ours_in_converter(root: Path) -> tuple[float, str]:
    """Return seconds and the operator named, for the fault of the converter."""
    with Stand(root) as stand:
        stand.deployed(stand.case("text_encoder", "mnn", FUSED))
    start = time.perf_counter()
    with Stand(root) as stand:
        trial = stand.run(stand.case("text_encoder", "mnn", FUSED))
    first = trial.verdicts[0].first
    return time.perf_counter() - start, first.row.probe if first else "nothing"


def bisected(root: Path) -> tuple[float, str, int]:
    """Return seconds, the value named and conversions, by cutting and converting."""
    import onnx
    import onnxruntime as ort

    from harness.core.case import Device
    from harness.runtimes.mnn.session import open_session

    with Stand(root) as stand:
        case = stand.case("text_encoder", "mnn", FUSED)
        graph, readings = stand.exported(case)
    two = next(r for r in readings if r.sample.startswith("realistic-1"))
    feeds = load_inputs(two.inputs, case.component)
    path = graph.file(export_files.MODEL)
    model = onnx.shape_inference.infer_shapes(onnx.load(path))
    extractor = onnx.utils.Extractor(model)
    floats = {
        value.name
        for value in (*model.graph.value_info, *model.graph.output)
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    }
    values = [n for node in model.graph.node for n in node.output if n in floats]
    names = [spec.name for spec in case.component.inputs]
    conversions = 0

    def differs(value: str) -> bool:
        nonlocal conversions
        conversions += 1
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            onnx.save(extractor.extract_model(names, [value]), folder / "cut.onnx")
            session = ort.InferenceSession(str(folder / "cut.onnx"))
            (expected,) = session.run([value], feeds)
            convert(
                folder / "cut.onnx",
                Variant(name=FUSED, backend="mnn", kind=FUSED),
                folder,
                component=replace(
                    case.component, outputs=(TensorSpec(name=value, shape=()),)
                ),
                probes=(),
                native=None,
            )
            with open_session(folder / MODEL, Device(), [value]) as made:
                actual = made.run(feeds)[value]
        limit = ONE_PERCENT * float(np.abs(expected).max())
        return bool(np.abs(actual.reshape(expected.shape) - expected).max() > limit)

    start = time.perf_counter()
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        if differs(values[middle]):
            high = middle
        else:
            low = middle + 1
    return time.perf_counter() - start, values[low], conversions


def main() -> None:
    """Measure and print."""
    parser = figures.parser(__doc__)
    parser.add_argument("--store", type=Path, help="a store to use and keep")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = arguments.store or Path(scratch)
        took, named = ours_in_graph(root)
        print(f"{FAULT}: ours {took:.2f} s, names {named}", flush=True)
        with Stand(root) as stand:
            case = stand.case("text_encoder", "onnxruntime")
        two = next(s for s in case.samples if dict(s.shapes)["batch"] == 2)
        with Host("torch", ("diffusers", "transformers", "onnxscript")) as host:
            result = host.run(
                verify_planted,
                case.component,
                replace(case.export, attention="eager"),
                two,
                FAULT,
                timeout_s=TIMEOUT_S,
                label="verification",
            )
        theirs, word, values = result.value
        print(
            f"  torch.onnx.verification {theirs:.2f} s, {values} values, names {word}"
        )
        print(f"  ratio {theirs / took:.1f}", flush=True)
        if arguments.write:
            figures.keep(
                "localise_graph",
                script=__file__,
                what="finding a planted epsilon in digits' text encoder: our run and "
                "operators alone, against `torch.onnx.verification` with intermediates",
                measured=f"{theirs / took:.0f} × faster ({took:.2f} s against "
                f"{theirs:.1f} s); ours names `{named}`, theirs `{word}`",
                values={"ratio": theirs / took, "ours_s": took, "theirs_s": theirs},
                code=CODE,
            )
        took, named = ours_in_converter(root)
        print(f"--transformerFuse: ours {took:.2f} s, names {named}", flush=True)
        cut, word, conversions = bisected(root)
        print(f"  bisection {cut:.2f} s, {conversions} conversions, names {word}")
        print(f"  ratio {cut / took:.1f}")
        if arguments.write:
            figures.keep(
                "localise_converter",
                script=__file__,
                what="finding `--transformerFuse` in the text encoder: ours, against "
                "bisection by cutting and converting, compared with ONNX Runtime "
                "within 1 %",
                measured=f"{cut / took:.1f} × faster ({took:.2f} s against {cut:.1f} s "
                f"and {conversions} conversions); ours names `{named}`, bisection "
                f"`{word}`",
                values={"ratio": cut / took, "ours_s": took, "theirs_s": cut},
                code=CODE,
            )


if __name__ == "__main__":
    main()
