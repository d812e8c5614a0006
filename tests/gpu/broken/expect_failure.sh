#!/bin/bash
# Passes if a test program fails, in one of its cases and for the reason that is expected.
#   expect_failure.sh PROGRAM CASE REASON
# CASE: the beginning of the case's name. REASON: a part of what the failing check tells.
set -u
program=$1 case=$2 reason=$3

output=$("$program" "$case*" 2>&1)
code=$?
# Before that line is the check's source, which names everything; behind it, what was found. Catch
# breaks lines anywhere.
found=$(sed '1,/^with expansion:/d' <<<"$output" | tr -d '[:space:]')
if [ "$code" -eq 0 ]; then
  echo "the broken build passes '$case': nothing sees what is broken in it"
elif [ "$code" -ge 126 ]; then
  echo "the broken build ends with $code, and not by a check"
elif [[ $found != *"$(tr -d '[:space:]' <<<"$reason")"* ]]; then
  echo "the broken build fails, but not by '$reason'"
else
  exit 0
fi
printf '%s\n' "$output"
exit 1
