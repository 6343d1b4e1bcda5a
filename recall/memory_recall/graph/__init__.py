"""The concept graph: which memories share a concept, such as a name or a term (ADR 26).

Concepts come from the texts of memories without a language model. A worker fills the graph, and the database's own
rules keep everything out of it that a sensitive or deleted memory had.
"""

from memory_recall.graph.state import GraphState, graph_state
from memory_recall.graph.switching import disable, enable, pause, restore_graph

__all__ = ["GraphState", "disable", "enable", "graph_state", "pause", "restore_graph"]
