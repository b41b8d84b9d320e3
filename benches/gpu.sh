#!/usr/bin/env bash
# Runs everything that needs a GPU: tests, throughput, peers, one large job. First run benches/pack.sh on a machine with
# Rust; then, on the machine with the GPU:
#   benches/gpu.sh OUTPUT_FOLDER [PART ...]
# The parts are tests, bench, gpus, resident, products, matrices, formats, pricer, small, follow, tune, large, python,
# dask, parts and soak. The part gpus is for hosts with several GPUs, and so are two figures of the part parts. The part
# soak runs for MINUTES (20) with seed SEED (1).
set -uo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/target/gpu
out=$(realpath "$1"); shift
parts=${*:-tests bench resident products matrices formats pricer small follow large python dask}
export OVERSHOT_CACHE=$out/cache OVERSHOT_BIN=$bin/overshot OVERSHOT_TEST_DEVICE=cuda OVERSHOT_REQUIRE_NVRTC=1
mkdir -p "$out"
{
    echo "commit $(cat "$bin/commit"), $(date -u +%F)"
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
    echo "$(nproc) cores, $(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2-)"
} | tee "$out/machine.txt"
# What failed. It is a file, because commands whose output goes to `tee` run in shells of their own.
failed=$out/failed.txt
rm -f "$failed"
part() { case " $parts " in *" $1 "*) echo "== $1" ;; *) false ;; esac }
# The package for Python, and what it is compared with.
install_wheel() { python3 -m pip install --quiet --no-deps --no-index --target "$out/python" "$bin"/*.whl; }
try() { echo "-- $*" >&2; "$@" || echo "FAILED ($?): $*" | tee -a "$failed" >&2; }

suite() { # output file, command
    local log=$out/$1.txt
    shift
    try "$@" > "$log" 2>&1
    grep -E "^test result|FAILED|panicked|ERROR SUMMARY" "$log"
}
if part tests; then
    # The tests on the stand-in driver do not run here. Those of two GPUs need two, without other users.
    suite gpu "$bin/lib" device::cuda::tests::gpu --ignored --skip side_by_side
    if [ "$(nvidia-smi --list-gpus | wc -l)" -gt 1 ]; then
        suite gpus "$bin/lib" side_by_side --ignored --test-threads=1
    fi
    # Each test of the command is a process, and many contexts at once take so long that progress is shown.
    for name in devices kernels; do suite "$name" "$bin/$name"; done
    suite cli "$bin/cli" --test-threads=8
    # A kernel with an illegal access: the driver then fails all calls of the process, and the CPU goes on.
    suite lost_gpu "$bin/lost_gpu" auto
    cat "$out/lost_gpu.txt"
    # The engine asks whether pageable memory is pinned. The call returns an error, which is not one of the program.
    suite sanitizer compute-sanitizer --report-api-errors no --error-exitcode 1 "$bin/devices" "jobs, cuda: odd lengths"
fi
if part bench; then
    # New memory of a virtual machine is slow at its first access, which must not be part of the measurement.
    python3 -c 'import numpy as np; from concurrent.futures import ThreadPoolExecutor as P
x = np.empty(min(60, max(1, int(open("/proc/meminfo").read().split()[1]) // 2**20 - 16)) << 27); n = len(x) // 64
list(P(16).map(lambda k: x[k * n : (k + 1) * n].fill(0), range(64)))'
    try "$bin/overshot" bench --limits --device cuda --dir "${TMPDIR:-/tmp}" --json > "$out/limits.json"
    try "$bin/throughput" --device cuda,cpu,auto --size 4GiB --json "$out/throughput.json" | tee "$out/throughput.txt"
    try python3 benches/peers --size 4GiB --json "$out/peers.json"
    try python3 benches/compare.py "$out/throughput.json" --peers "$out/peers.json" --svg "$out/compare.svg" \
        > "$out/compare.md"
    cat "$out/compare.md"
fi
if part gpus; then
    count=$(nvidia-smi -L | wc -l)
    try "$bin/overshot" devices
    try "$bin/overshot" bench --limits --device cuda --dir "${TMPDIR:-/tmp}" --json > "$out/limits-gpus.json"
    for job in "mul ordinary" "add1 ordinary" "sum ordinary" pinned; do
        file=$out/$count-gpus-${job// /-}.json
        try "$bin/throughput" --device "cuda:0,cuda" --size 4GiB --only "$job" --json "$file"
    done
fi
if part resident; then
    # Datasets a quarter larger than device memory: a small one, where the time between passes counts, and a large one.
    for memory in 256MiB 8GiB; do
        try "$bin/resident" --device cuda --device-memory $memory | tee "$out/resident-$memory.jsonl"
    done
fi
if part products; then
    # Products of tables that are larger than the device memory that they may use, beside the link and others.
    try "$bin/overshot" bench --limits --device cuda --dir "${TMPDIR:-/tmp}" --json > "$out/limits-products.json"
    try "$bin/products" --device cuda --size 6GiB --device-memory 2GiB --widths 256,1024,4096 \
        --precision full,bf16x3,tf32 |
        tee "$out/products.jsonl"
    try "$bin/products" --device cpu --size 1GiB --widths 256,1024,4096 --runs 1 | tee -a "$out/products.jsonl"
    try python3 benches/peers/products.py --size 6GiB | tee -a "$out/products.jsonl"
fi
if part matrices; then
    # Rows times matrices, of tables that are larger than the device memory that they may use, beside the link.
    try "$bin/overshot" bench --limits --device cuda --dir "${TMPDIR:-/tmp}" --json > "$out/limits-matrices.json"
    try "$bin/matrices" --device cuda --size 8GiB --device-memory 2GiB --centres 2048,256 --precision full,bf16x3,tf32 |
        tee "$out/matrices.jsonl"
    try "$bin/matrices" --device cpu --size 1GiB --centres 2048,256 --runs 1 | tee -a "$out/matrices.jsonl"
    try python3 benches/peers/matrices.py --size 1GiB | tee -a "$out/matrices.jsonl"
fi
if part formats; then
    # Columns of Parquet and Arrow files and arrays of Zarr stores, beside what their crates decode on all cores, and
    # beside .npy files.
    try "$bin/formats" --device cpu,cuda,auto --size 4GiB --dir "${TMPDIR:-/tmp}" | tee "$out/formats.jsonl"
fi
if part pricer; then
    try "$bin/kernel" cuda > "$out/kernel.txt"
    try "$bin/option_pricer" cuda "$out/paths.npy" && rm -f "$out/paths.npy"
    for run in 1 2 3; do try "$bin/option_pricer" cuda:0 --bench | tail -1; done | tee "$out/pricer.jsonl"
    try python3 benches/peers/pricer.py | tee -a "$out/pricer.jsonl"
fi
if part small; then
    # The whole process, and the time to the first copy beside CUDA's own initialisation.
    try python3 benches/small.py | tee "$out/small.jsonl"
    try python3 benches/cold.py --folder "${TMPDIR:-/tmp}" | tee "$out/cold.jsonl"
    # Smaller ones on a warm engine.
    try "$bin/latency" --device cpu,cuda,auto --runs 1000 | tee "$out/latency.jsonl"
fi
if part follow; then
    # Another program begins in the middle of a job, which plans by the limits of this machine.
    try "$bin/overshot" bench --limits --device cuda --dir "${TMPDIR:-/tmp}" --json > "$out/limits-follow.json"
    try python3 benches/follow.py | tee "$out/follow.json"
fi
if part tune; then
    for workers in 8 12 16; do
        for chunk in 3MiB 6MiB 12MiB 24MiB; do
            echo "workers $workers, chunk $chunk"
            try "$bin/throughput" --device cuda --size 2GiB --runs 3 --workers $workers --chunk $chunk
        done
    done
fi
if part python; then
    # The wheel, its tests on the GPU, and how fast calls are.
    install_wheel
    export PYTHONPATH=$out/python
    suite python bash -c "cd python/tests && python3 -m pytest -q -p no:cacheprovider ."
    tail -1 "$out/python.txt"
    sizes=1KiB,1MiB,16MiB,256MiB
    try python3 python/benches/evaluate.py --device cpu,cuda,auto --size $sizes,4GiB --json "$out/python.json"
    try python3 python/benches/interrupt.py --device cpu,cuda,auto --json "$out/interrupt.json"
    try python3 python/benches/import_time.py --json "$out/import_time.json"
    try python3 python/benches/tables.py --json "$out/tables.json"
    try python3 benches/peers/algorithms.py | tee "$out/algorithms.jsonl"
    rm -rf "$out/python"
fi
if part dask; then
    # A file of 40 GB with 11 GB of device memory, from Python, beside Dask with CuPy.
    install_wheel
    folder=$(mktemp -d "${TMPDIR:-/tmp}/overshot-dask.XXXX")
    try env PYTHONPATH="$out/python" python3 python/benches/larger_than_gpu.py "$folder" --json "$out/dask.json"
    rm -rf "$out/python" "$folder"
fi
if part parts; then
    # Ranges, processes, journals, verification and Dask workers beside one run; and a kernel that never ends.
    install_wheel
    # ONLY=two,dask runs some of them.
    try env PYTHONPATH="$out/python" python3 benches/parts.py "$bin/overshot" --dir "${TMPDIR:-/tmp}" \
        ${ONLY:+--only "$ONLY"} | tee "$out/parts.jsonl"
    rm -rf "$out/python"
fi
if part large; then
    folder=$(mktemp -d "${TMPDIR:-/tmp}/overshot-large.XXXX")
    python3 - "$folder/x.npy" <<'PY'
import sys, numpy as np
x = np.lib.format.open_memmap(sys.argv[1], "w+", "<f8", (24 << 27,))
for k in range(24):
    x[k << 27 : (k + 1) << 27] = np.random.default_rng(k).random(1 << 27)
PY
    job="y = x > 0.75; sum(x), max(x), argmax(x), std(x), count(x > 0.75)"
    ls -l "$folder"
    try "$bin/overshot" run "$job" x="$folder/x.npy" y="$folder/y.npy" --device cuda --device-memory 512MiB --json \
        > "$out/large.json"
    try "$bin/overshot" run "$job" x="$folder/x.npy" y="$folder/y2.npy" --device cpu --json > "$out/large-cpu.json"
    try cmp "$folder/y.npy" "$folder/y2.npy"
    try python3 - "$out" "$folder/x.npy" <<'PY'
import json, sys, numpy as np
gpu, cpu = (json.load(open(f"{sys.argv[1]}/{name}.json")) for name in ("large", "large-cpu"))
value = {result["name"]: result["value"] for result in gpu["results"]}
memory = ["device", gpu["devices"][0]["peak_device_bytes"], "pinned", gpu["peak_pinned_bytes"]]
print(json.dumps(value), "in", gpu["seconds"], "s;", *memory)
assert gpu["results"] == cpu["results"], cpu["results"]
assert gpu["devices"][0]["peak_device_bytes"] <= 512 << 20
x = np.load(sys.argv[2], mmap_mode="r")
assert value["max(x)"] == max(float(x[k << 27 : (k + 1) << 27].max()) for k in range(24))
assert abs(value["sum(x)"] / sum(float(x[k << 27 : (k + 1) << 27].sum()) for k in range(24)) - 1) < 1e-12
PY
    rm -r "$folder"
fi
if part soak; then
    # Mixed jobs beside a process that takes and frees the memory of the GPUs.
    seed=${SEED:-1}
    try "$bin/soak" --device cpu+cuda --minutes "${MINUTES:-20}" --rows 20000000 --seed "$seed" \
        --json "$out/soak-$seed.json" | tee "$out/soak-$seed.txt"
fi
rm -rf "$out/cache"
if [ -e "$failed" ]; then
    echo "SOME FAILED"
    exit 1
fi
echo "all passed"
