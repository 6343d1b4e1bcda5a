"""Conversion of published weights to GGUF, the file format of llama.cpp.

`bert` converts a Hugging Face directory of the BERT family, `wordpiece` reads the vocabulary of such a directory, and
`package` converts the default model from the Python package that ships it. The `gguf` library writes the file; PyTorch
is not needed.
"""
