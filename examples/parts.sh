#!/bin/sh
# A job in parts on one machine, several processes at a time: the square roots of a .npy file.
#
#   sh examples/parts.sh IN OUT [PARTS [PROCESSES]]
#
# If a part fails, run this again: parts that have a partial are done. OVERSHOT is the command, OVERSHOT_DEVICE the
# device.
set -eu
in=${1:?usage: parts.sh IN OUT [PARTS [PROCESSES]]} out=${2:?usage: parts.sh IN OUT [PARTS [PROCESSES]]}
parts=${3:-16} processes=${4:-4} partials=$out.partials
export in out parts partials
mkdir -p "$partials"
seq 0 $((parts - 1)) | xargs -P "$processes" -I {} sh -c '[ -e "$partials/{}" ] ||
    "${OVERSHOT:-overshot}" run --quiet --device "${OVERSHOT_DEVICE:-auto}" "y = sqrt(x); mean(y), max(y)" \
        x="$in" y="$out" --part {}/"$parts" --partial "$partials/{}"'
"${OVERSHOT:-overshot}" merge "$partials"/*
rm -r "$partials"
