"""Conversion of published weights to GGUF, the file format of llama.cpp.

`bert` converts a Hugging Face directory of the BERT family, and `package` converts the default model from the Python
package that ships it. `wordpiece` and `unigram` read the vocabulary of such a directory, the latter with the help of
`sentencepiece`, which reads a model file. The `gguf` library writes the file; PyTorch is not needed.
"""
