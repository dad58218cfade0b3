#!/bin/sh
# Checks the model of the cluster, and that each mutation of it breaks a law.
#   docs/models/check.sh          all
#   docs/models/check.sh quick    the model only
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

check() {  # variant, what it must say
  flags=""
  for name in $1; do flags="$flags -D$name"; done
  # shellcheck disable=SC2086 (flags are words)
  spin $flags -a "$here/cluster.pml" >/dev/null
  gcc -O2 -w -DSAFETY -DCOLLAPSE -o pan pan.c
  ./pan -E -m1000000 >found 2>&1 || true
  errors=$(sed -n 's/.*errors: *\([0-9]*\).*/\1/p' found | head -1)
  states=$(sed -n 's/ *\([0-9.e+]*\) states, stored.*/\1/p' found | head -1)
  if grep -q "out of memory\|max search depth too small" found; then
    echo "NOT CHECKED: ${1:-the model}"; tail -5 found; exit 1
  fi
  if [ "$2" = holds ] && [ "$errors" != 0 ]; then
    echo "BROKEN: ${1:-the model}"; grep "assertion\|pan:" found; exit 1
  fi
  if [ "$2" = breaks ] && [ "$errors" = 0 ]; then
    echo "NOT CAUGHT: $1"; exit 1
  fi
  echo "${1:-the model} $2 ($states states)"
}

check "" holds
check LENDING holds
[ "${1:-}" = quick ] && exit 0
check JUMP holds
check "JUMP LENDING" holds
check NO_CLOCK breaks
check LATE_CLOCK breaks
check NO_FENCE breaks
check "JUMP NO_CONFIRM" breaks
check "LENDING NO_CLAIM" breaks
