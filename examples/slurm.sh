#!/bin/sh
#SBATCH --job-name=overshot
#SBATCH --array=0-15
#SBATCH --time=01:00:00
# A job in parts on a cluster: every task of an array runs its part, and a job that waits for all of them merges.
#
#   id=$(sbatch --parsable examples/slurm.sh)
#   sbatch --array=0 --dependency=afterok:"$id" examples/slurm.sh merge
#
# Inputs, output and partials are on a file system that all nodes have. A task that is run again replaces its partial.
# OVERSHOT is the command, OVERSHOT_DEVICE the device.
set -eu
overshot=${OVERSHOT:-overshot} partials=${PARTIALS:-partials}
if [ "${1:-}" = merge ]; then
    "$overshot" merge "$partials"/*
    exit
fi
mkdir -p "$partials"
"$overshot" run --quiet --device "${OVERSHOT_DEVICE:-auto}" 'y = sqrt(x); mean(y), max(y)' x=x.npy y=y.npy \
    --part "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" --partial "$partials/$SLURM_ARRAY_TASK_ID"
