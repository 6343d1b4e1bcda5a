"""What the embedder benchmark measures on a GPU alone: its plan, a peer on PyTorch, and the GPU's matrix product."""
