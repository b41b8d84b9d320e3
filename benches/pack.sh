#!/usr/bin/env bash
# Builds the binaries for benches/gpu.sh, so that the machine with the GPU needs no Rust: the command, the tests and the
# benches, in release mode and stripped, in target/gpu.
set -euo pipefail
cd "$(dirname "$0")/.."
out=target/gpu
rm -rf "$out" && mkdir -p "$out"
cargo build --release --bin overshot --example option_pricer --example kernel --example lost_gpu --example heat
cp target/release/overshot target/release/examples/{option_pricer,kernel,lost_gpu,heat} "$out/"
# name and path of every test and bench executable
cargo test --release --no-run --lib --test devices --test kernels --test cli \
    --bench throughput --bench formats --bench products --bench matrices --bench resident --bench latency --bench soak \
    --message-format=json |
    python3 -c '
import json, sys
for message in map(json.loads, sys.stdin):
    target = message.get("target", {})
    if message.get("executable") and "bin" not in target["kind"]:
        print("lib" if "lib" in target["kind"] else target["name"], message["executable"])
' | while read -r name path; do cp "$path" "$out/$name"; done
strip "$out"/*
python3 -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$out" ./python
# For the Python of the machine with the GPU: NumExpr, and Dask with what it and its workers need.
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$out" \
    --python-version "${OVERSHOT_GPU_PYTHON:-3.12}" numexpr==2.14.2 \
    dask==2026.8.0 cloudpickle fsspec partd locket toolz pyyaml packaging click \
    distributed==2026.8.0 jinja2 markupsafe msgpack psutil sortedcontainers tblib tornado urllib3 zict
git describe --always --dirty > "$out/commit"
du -sh "$out"
