"""Makes the files of real models from packages that ship their weights.

These are bge-small-en-v1.5, from the ONNX export in a Maven artifact, and multilingual-e5-small, from the 4-bit weights
in a Python package.
"""
