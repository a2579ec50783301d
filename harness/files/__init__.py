"""Model files, read without the runtimes that they are for.

protobuf       walks a message, and jumps over what is large
onnx_header    what an ONNX file takes and gives
lookups        the tables in which its inputs look rows up
mnn            operators of an .mnn file, and what was fused into them
"""
