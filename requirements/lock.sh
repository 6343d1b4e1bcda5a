#!/bin/sh
# Resolve every locked file again: hashes without addresses, one resolution for all supported Python versions.
set -eu
cd "$(dirname "$0")"
compile() {
    out=$1; shift
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate \
        --no-emit-package memory-recall --no-emit-package llama-cpp-python "$@" --output-file "$out"
}
# What `tokenizers` needs to download models, which is never asked of it, is left out.
compile dev.txt --override overrides.in dev.in ../recall/pyproject.toml ../operator/pyproject.toml ../embedder-service/pyproject.toml --extra cli --extra api --extra metrics --extra consolidation --extra page --extra tracing
compile operator.txt ../operator/pyproject.toml -c dev.txt
compile embedder.txt ../embedder-service/pyproject.toml -c dev.txt
compile cuda.txt cuda.in
compile cuda-build.txt cuda-build.in -c cuda.txt
compile claude-memory.txt claude-memory.in ../recall/pyproject.toml -c dev.txt
compile claude-memory-tests.txt claude-memory-tests.in ../recall/pyproject.toml -c dev.txt
compile adopted-stores.txt adopted-stores.in
compile other-embedders.txt --override other-embedders-overrides.in other-embedders.in
compile embedder-clients.txt embedder-clients.in
compile cpu-peers.txt cpu-peers.in
