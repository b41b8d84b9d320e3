#!/usr/bin/env bash
# Builds the fuzz targets with the stable toolchain and runs them. The layout is that of cargo-fuzz; this script needs
# neither it nor a nightly toolchain. Everything is built without AddressSanitizer: the targets are mostly safe code,
# and .ci/run runs the tests with it.
#   fuzz/run.sh check                                fixed runs of all targets from the seeds: what .ci/run does
#   fuzz/run.sh TARGET [OPTION OR FILE…]             e.g. fuzz/run.sh expression -max_total_time=3600
# TARGET is a file of fuzz/fuzz_targets without its ending; options are those of libFuzzer. With a file (a path from the
# root of the project) the target runs once, on that input. Without one its corpus grows in fuzz/corpus, and inputs that
# fail are written to fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")/.."

# The runs that `check` makes of each target.
declare -A runs=([npy_header]=200000 [expression]=7000 [signature]=20000 [job]=5000 [file]=4000)

# With an example of the library, so that dependencies have the features that tests need, and `cargo test` has built
# them already.
build() {
    local targets=("${!runs[@]}")
    RUSTC_WORKSPACE_WRAPPER=$PWD/fuzz/instrument \
        cargo build --locked -p overshot -p overshot-fuzz --example random "${targets[@]/#/--bin=}"
}

# Runs a target: corpus, then options.
fuzz() {
    local target=$1 corpus=$2
    shift 2
    mkdir -p "$corpus" "fuzz/artifacts/$target"
    local dictionary=fuzz/dictionaries/$target.dict
    if [ -e "$dictionary" ]; then set -- "-dict=$dictionary" "$@"; fi
    "target/debug/$target" -artifact_prefix="fuzz/artifacts/$target/" -timeout=60 -rss_limit_mb=2048 \
        "$@" "$corpus" "fuzz/seeds/$target"
}

check() {
    local target=$1 log
    log=$(mktemp) corpus=$(mktemp -d)
    trap 'rm -rf "$log" "$corpus"' RETURN
    # A fixed length, so that runs do not begin with short inputs only.
    if ! fuzz "$target" "$corpus" -runs="$2" -seed=1 -len_control=0 -max_len=600 > "$log" 2>&1; then
        grep -v '^#[0-9]' "$log" >&2
        local input
        input=$(sed -n 's/.*Test unit written to //p' "$log")
        echo "the target $target failed; to run it on this input again: fuzz/run.sh $target $input" >&2
        return 1
    fi
    echo "$target: $2 runs, $(sed -n 's/.*DONE *\(cov: [0-9]*\).*/\1/p' "$log")"
}

target=${1:-}
if [ "$target" = check ]; then
    build
    for target in "${!runs[@]}"; do check "$target" "${runs[$target]}"; done
elif [ -n "$target" ] && [ -n "${runs[$target]:-}" ]; then
    shift
    build
    for argument; do
        if [ -f "$argument" ]; then exec "target/debug/$target" "$@"; fi
    done
    fuzz "$target" "fuzz/corpus/$target" "$@"
else
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' fuzz/run.sh >&2
    exit 2
fi
