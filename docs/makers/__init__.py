"""Makes the documentation: reference pages from the code (`references`), and the pages of the site (`site`).

`python -m docs.makers` writes the reference pages to `docs/reference/` anew. These pages are committed, so that they
can be read without building anything, and a test compares them with the code. MkDocs reads the pages of `docs/` and
calls `hooks.py`, which adds the pages that lie elsewhere in the repository. Nothing that is shipped imports this
package.
"""
