"""`parity init`: write a first suite, which the user edits.

write         all of the files, or none
checkpoint    facts of a diffusers or transformers folder
onnx_files    facts of a folder of ONNX files, each of which is its own reference
measure       runs the variants for a minute, and chooses among them
render        puts these facts into ``templates/``
"""
