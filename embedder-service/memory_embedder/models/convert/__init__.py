"""Conversion of published weights to GGUF, the file format of llama.cpp.

`bert` converts a Hugging Face directory of the BERT family, `wordpiece` reads its vocabulary, and `package` converts
the default model from the Python package that ships it. The `gguf` library writes the file; no PyTorch is needed.
"""
