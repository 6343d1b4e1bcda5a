"""The names of the clients in Python, for the program that runs them and for the one that runs beside them."""

TEXT = "The NAS is backed up to the second disk every night at three."
CLIENTS = (
    "openai", "openai (async)", "langchain-openai", "llama-index", "litellm", "haystack", "mem0", "graphiti",
    "pydantic-ai",
)  # fmt: skip
RERANKERS = ("cohere (rerank)", "litellm (rerank)")
