"""Text of suites, which several tests change."""

import json

from tests.places import DIGITS

SUITE = f"""\
components = ["text_encoder", "unet"]
[source]
checkpoint = {json.dumps(str(DIGITS))}
[export]
dynamic_axes = ["batch"]
[[shapes]]
batch = 1
height = 32
width = 16
[[shapes]]
batch = 3
height = 16
width = 16
[inputs]
profiles = ["realistic"]
realistic = 2
[backend.onnxruntime]
variants = ["fp32", "fp16"]
[backend.mnn]
variants = ["fp32", "int8-weights"]
"""
UNET = f"""\
components = ["unet"]
[source]
checkpoint = {json.dumps(str(DIGITS))}
[[shapes]]
batch = 1
height = 16
width = 16
"""
"""A suite of one network at one size, which lacks its backends."""

FIRST = SUITE.count("\n") + 1
"""Line of the pipeline's header."""

TEXT = """\
[pipeline.text2img]
prompts = ["three"]
height = 64
width = 64
"""
IMAGE = TEXT.replace("text2img", "img2img")
CANNY = """\
[pipeline.canny]
kind = "controlnet"
prompts = ["three"]
resolution = 128
"""
BASES = {"text": TEXT, "image": IMAGE, "canny": CANNY}
APP = "[pipeline.text2img.app]"


def changed(text, old, new):
    assert text.count(old) == 1, old
    return text.replace(old, new)
