"""`parity bench`: times of deployed files and PyTorch.

A round runs every case once, each in its own process. The report shows the measured
runs. Ratios come from runs of the same round.
"""
