#!/usr/bin/env bash
# Train variants of a Multi30k recipe side by side on one GPU and score each on test2016: NAME:OVERRIDE,OVERRIDE …
# usage: multi30k.sh RECIPE OUTPUT NAME:key=value,key=value …
set -u
recipe=$1 output=$2; shift 2
for variant in "$@"; do
  name=${variant%%:*} overrides=${variant#*:}
  ( began=$(date +%s)
    python3 -m heedful train "$recipe" ${overrides//,/ } --run "/tmp/runs/$name" > "$output/$name.log" 2>&1
    took=$(( $(date +%s) - began ))
    python3 -m heedful evaluate "/tmp/runs/$name" --metrics bleu,chrf --bootstrap 0 --json > "$output/$name.json" 2>> "$output/$name.log"
    python3 - "$output/$name.json" "$name" $took <<'PY'
import json, sys
found = json.load(open(sys.argv[1])); found["train_seconds"] = int(sys.argv[3])
json.dump(found, open(sys.argv[1], "w")); print(sys.argv[2], sys.argv[3], "s", {k: round(v["value"], 2) for k, v in found.get("scores", {}).items()}, found.get("checkpoint"), flush=True)
PY
  ) &
done
wait
