#!/bin/bash
# Written by `chimera plan` for 32 workers of p100-aries, network usable at 10.8 Gb/s per GPU, 16 GiB each, mini-batch 512.
# Predicted: 2.803 s a step, 14.34 GiB on the fullest worker.
# float32, adamw; schedules: chimera; partition balanced, recompute auto, sync eager-opt
# not given, so by default: --sequence 128, --dtype float32
# Set --steps: 20 tokens a parameter are 204404 steps of 6.55e+04 tokens. --learning-rate is GPT-3's for this size; it warms up and
# decays as --warmup and --learning-rate-shape of `chimera train` say.
# sbatch THIS --data FILE --steps N --checkpoint FOLDER --resume auto   # further flags of `train` come last
#SBATCH --job-name=chimera-bert-48
#SBATCH --nodes=32
#SBATCH --ntasks=32
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=1
#SBATCH --cpus-per-task=4
# A rank has its own threads, c10d's and NCCL's. --device cuda needs libchimera_cuda.so beside the
# program (tools/cuda-build). Runs on several GPUs were never tried (docs/devices.md).
# The run saves before its time is over, and is queued again.
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -u
case " $* " in
  *" --steps"[=\ ]*) ;;
  *) echo "$0: --steps is missing; the first lines say how many" >&2 && exit 2 ;;
esac
# Ranks prove to each other that they are of this job.
CHIMERA_SECRET=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export CHIMERA_SECRET
# The run saves, if it has --checkpoint, and ends with 75.
trap 'scancel --signal=USR1 "$SLURM_JOB_ID"' USR1
srun --kill-on-bad-exit=1 "${CHIMERA:-chimera}" train --model bert-48 --sequence 128 --dtype float32 --optimizer adamw --device cuda --schedule chimera --stages 8 --micro-batches 16 --data-parallel 4 --micro-batch-size 8 --recompute none --partition 5,6,6,6,6,6,7,6 --pipelines 2 --chunks 1 --scale doubling --learning-rate 0.00025 \
  "$@" &
steps=$!
while kill -0 "$steps" 2>/dev/null; do
  wait "$steps" # which a signal ends too
done
wait "$steps" # its exit code is kept
code=$?
if [ "$code" -eq 75 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
