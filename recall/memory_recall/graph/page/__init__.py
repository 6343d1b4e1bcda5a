"""The page that draws the neighbourhood of a concept, served to this machine alone.

The server computes where everything stands in the picture; the page draws it. It needs the optional dependency
`memory-recall[page]`.
"""
