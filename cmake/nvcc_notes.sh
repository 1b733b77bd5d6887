#!/bin/sh
# Runs nvcc (`nvcc_notes.sh [ccache] nvcc ...`) and fails where ptxas says that wgmmas run one at a time (C75xx): it says so among
# its notes (-v), which neither -Werror nor --warning-as-error sees. The other notes are left out.
notes=$(mktemp) || exit 1
trap 'rm -f "$notes"' EXIT
"$@" -Xptxas=-v 2>"$notes"
status=$?
grep -Ev '^ptxas info +: [^(]|^ +[0-9]+ bytes stack frame' "$notes" >&2
if grep -q '(C75[0-9][0-9])' "$notes"; then
  echo "error: wgmma instructions are serialised (ptxas C75xx, above)" >&2
  exit 1
fi
exit $status
