#!/usr/bin/env bash
# Saves a folder (and what it's full of).
set -euo pipefail

usage() {
  echo "usage: $(basename "$0") [-n] FOLDER" >&2
  exit 2
}

dry=0
case "${1:-}" in
  -n) dry=1; shift ;;
  -h | --help) usage ;;
esac

if [ "$#" -ne 1 ]; then
  usage
fi

for file in "$1"/*; do
  if [[ -f "$file" && ! -L "$file" ]]; then
    name=$(basename "$file" | sed 's/[^)]*)//')
    [ "$dry" -eq 1 ] || cp -- "$file" "/backup/${name}"
  fi
done
