#!/bin/sh
# A program built with a released header runs as the one rank of a real job, on today's ringd and
# library.
set -eu
ringctl="$1"
ringd="$2"
program="$3"
# A node of its own, whatever runs on this machine; no variable of the caller's says otherwise.
unset RINGD_SOCKET RINGD_JOB_ID RINGD_JOB_SECRET RINGD_RENDEZVOUS RINGD_WEIGHT
output=$("$ringctl" run --nodes 1 --ranks 1 --timeout 60 --ringd "$ringd" -- "$program")
echo "$output"
# The program came to its end.
echo "$output" | grep -q 'all is well'
