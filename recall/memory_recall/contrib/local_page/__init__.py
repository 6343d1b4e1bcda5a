"""Pages that a command serves to this machine alone: who may talk to them and for how long, their server, and how
their routes answer.

It needs the optional dependency `memory-recall[page]`. What a page shows is in the package of its feature.
"""
