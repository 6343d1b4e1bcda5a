"""Conversion of published weights to GGUF, the file format of llama.cpp.

`bert` reads a Hugging Face directory of the BERT family, `wordpiece` its vocabulary, `package` the default model out
of the Python package that ships it. Only the `gguf` library writes; no PyTorch is needed.
"""
