#!/bin/sh
# libringd.so shows its ringd_ functions and nothing else, under its own SONAME: what it is built
# from must never mix with a program's own copies. And it needs the C library and GCC's runtime
# alone.
set -eu
library="$1"
shift
symbols=$(nm --dynamic --defined-only "$library" | awk '{print $3}' | sed 's/@.*//')
unexpected=$(echo "$symbols" | grep -v '^ringd_' | grep -v '^RINGD_1$' || true)
if [ -n "$unexpected" ]; then
  echo "exported beside the interface: $unexpected" >&2
  exit 1
fi
for name in $(grep -oh 'ringd_[a-z_]*(' "$@" | tr -d '(' | sort -u); do
  # ringd_last_error() and others stand in comments too; types take no bracket.
  if ! echo "$symbols" | grep -qx "$name"; then
    echo "declared but not exported: $name" >&2
    exit 1
  fi
done
readelf --dynamic "$library" | grep -q 'SONAME.*\[libringd\.so\.1\]' || {
  echo "the SONAME is not libringd.so.1" >&2
  exit 1
}
needed=$(readelf --dynamic "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for name in $needed; do
  case $name in
    libc.so.6 | libm.so.6 | libgcc_s.so.1 | ld-linux-x86-64.so.2) ;;
    *)
      echo "needs $name, which not every system has: see third_party/static/README.md" >&2
      exit 1
      ;;
  esac
done
