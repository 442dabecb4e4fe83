#!/bin/sh
# An ordinary chain of batch jobs: four parts as an array, then their sum.
set -eu
cd "$(dirname "$0")"
parts=$(sbatch --parsable --array=1-4 --time=5 part.sbatch)
total=$(sbatch --parsable --dependency="afterok:$parts" --time=5 total.sbatch)
echo "submitted $parts and $total"
