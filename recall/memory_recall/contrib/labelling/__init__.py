"""Labels questions about one's own memories: collects questions, pools what the legs find, and has a person judge it.

The judge does not see which leg found a memory. All decisions are pure functions of the events in one file (`labels`,
`agenda`, `agreement`, `export`). A `Labeller` takes the answers of a person from the terminal or from a page, and reads
memories and pools through a `Store`.
"""
