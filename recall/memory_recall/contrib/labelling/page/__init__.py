"""The page on which a person labels questions, served to this machine alone.

The page consists of three static files of this folder and a few actions that answer with JSON. It needs the optional
dependency `memory-recall[page]`.
"""
