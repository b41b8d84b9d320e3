#!/bin/sh
# A batch job: writes the square root of each .npy file of a folder into another folder.
#
#   sh examples/batch.sh IN OUT
#
# Outputs that exist are skipped: an output has its name only when it is complete. A file that fails does not stop the
# others, but the exit code is 1. OVERSHOT is the command, OVERSHOT_DEVICE the device.
set -u
in=${1:?usage: batch.sh IN OUT} out=${2:?usage: batch.sh IN OUT}
mkdir -p "$out" || exit 1
failed=0
for file in "$in"/*.npy; do
    result=$out/$(basename "$file")
    [ -e "$result" ] && continue
    echo "$file"
    "${OVERSHOT:-overshot}" run --quiet --device "${OVERSHOT_DEVICE:-auto}" \
        'y = sqrt(x); mean(y), max(y), count(isnan(y))' x="$file" y="$result" || failed=1
done
exit $failed
