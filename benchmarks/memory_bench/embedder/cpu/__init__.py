"""What else embeds on a CPU: PyTorch and ONNX Runtime, each in a process of its own with packages of its own."""
