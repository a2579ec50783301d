"""Foreign models: files that others exported, tested in the place of an export.

files/tables           the keys of ``[component.NAME]`` that name files
files/names            which inputs and outputs of a file are which of a recipe's
files/beside, take     the files of weights, and how the store takes them in
files/lineup, pairing  which values of a file are which of PyTorch's
files/onnx_reference   a file without a PyTorch model, whose reference is a file
judged                 messages: what was compared, and with which reference
rewritten              values of a file that stand for others, and are not wrong
"""

from harness.core.plugins import Plugin

PLUGIN = Plugin(
    files=("harness.plugins.foreign.files.tables:FILES",),
    others=("harness.plugins.foreign.rewritten:others",),
    beside=(
        "harness.plugins.foreign.rewritten:rewritten",
        "harness.plugins.foreign.judged:compared",
    ),
)
