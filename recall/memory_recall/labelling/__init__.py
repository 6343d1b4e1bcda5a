"""Labels questions about one's own memories: collects them, pools the answers of every leg blind, and judges those.

All that is decided is a pure function of the events in one file (`labels`, `agenda`, `agreement`, `export`). A
`Labeller` takes the answers of a person from the terminal or from the page in `page/`, and reads memories and pools
through a `Store`.
"""
