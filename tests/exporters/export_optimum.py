"""Export a Stable Diffusion folder with Optimum; runs in an environment of its own.

python export_optimum.py CHECKPOINT OUT
"""

import sys
import warnings

warnings.simplefilter("ignore")

from optimum.exporters.onnx import main_export  # noqa: E402  # after it is quiet

main_export(sys.argv[1], output=sys.argv[2], task="text-to-image", do_validation=False)
