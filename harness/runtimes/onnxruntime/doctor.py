"""The advice of `parity doctor` about ONNX Runtime on CUDA."""

from __future__ import annotations


def remedy(device: str) -> dict[str, str]:
    """Return, under ``remedy``, how to make a device work; empty without a GPU."""
    import onnxruntime

    driver = newest_cuda() if device == "cuda" else ""
    built_with = getattr(onnxruntime, "cuda_version", None) or ""
    return {"remedy": cuda_remedy(driver, built_with) if driver else ""}


def cuda_remedy(driver: str, built_with: str) -> str:
    """Return one sentence about what CUDA lacks; versions are written as ``13.0``.

    `driver` is the newest version that the driver runs. `built_with` is that of
    onnxruntime-gpu; it is empty if that was built without CUDA.
    """
    if not built_with:
        return "This build of ONNX Runtime has no CUDA: install onnxruntime-gpu."
    major = built_with.partition(".")[0]
    if int(driver.partition(".")[0]) < int(major):
        return (
            f"The driver runs CUDA up to {driver} and onnxruntime-gpu needs {major}.x: "
            "update the driver, or install an onnxruntime-gpu built for an older CUDA."
        )
    return f'pip install "onnxruntime-gpu[cuda,cudnn]"   (brings CUDA {major}.x)'


def newest_cuda() -> str:
    """Return the newest CUDA version that the driver runs; empty without a GPU."""
    import ctypes

    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ""
    version, count = ctypes.c_int(), ctypes.c_int()
    failed = (
        library.cuInit(0)
        or library.cuDriverGetVersion(ctypes.byref(version))
        or library.cuDeviceGetCount(ctypes.byref(count))
    )
    if failed or not count.value:
        return ""
    return f"{version.value // 1000}.{version.value % 1000 // 10}"
