"""The page of `memory page`, served to this machine alone: try a recall, judge questions, see the state of the index.

It consists of the static files of this folder, of which each view has a script, and of a few routes that answer with
JSON. It needs the optional dependency `memory-recall[page]`.
"""
