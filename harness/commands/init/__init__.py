"""What `parity init` writes: a first suite, for people to edit.

checkpoint    of a folder of diffusers or transformers
found         what a checkpoint has: components and weights
files         of a folder of ONNX files, which are their own reference
tolerances    the tiers to begin with
variants      the variant that is safe, and the risk of each other
text          what the files that are written have in common
writing       all of the files or none
"""
