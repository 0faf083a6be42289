#!/usr/bin/env bash
# Train variants of a recipe side by side on one GPU and score each on its test set, cased and lower-cased.
# usage: multi30k.sh RECIPE OUTPUT NAME:key=value,key=value …      ("+" in a value stands for a comma)
set -u
recipe=$1 output=$2 work=$(mktemp -d); shift 2
for variant in "$@"; do
  name=${variant%%:*} overrides=${variant#*:}; overrides=${overrides//,/ }
  ( began=$(date +%s)
    python3 -m heedful train "$recipe" ${overrides//+/,} --run "$work/runs/$name" > "$work/$name.log" 2>&1
    took=$(( $(date +%s) - began ))
    for case in "" --lowercase; do
      python3 -m heedful evaluate "$work/runs/$name" --metrics bleu,chrf $case --json > "$work/$name$case.json" 2>> "$work/$name.log"
    done
    python3 - "$work/$name" "$output/$name.json" "$recipe" "$overrides" $took <<'PY'
import datetime, json, sys
import torch
base, output, recipe, overrides, took = sys.argv[1:]
cased, lower = (json.load(open(base + case + ".json")) for case in ("", "--lowercase"))
found = {"recipe": recipe, "overrides": overrides.split(), "scores": cased["scores"], "lowercased": lower["scores"], "loss": cased["loss"],
         "sentences": cased["sentences"], "tokenizer": cased["tokenizer"], "train_seconds": int(took), "checkpoint": cased["checkpoint"].split("/")[-1],
         "machine": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU", "torch": torch.__version__, "date": datetime.date.today().isoformat()}
json.dump(found, open(output, "w"), indent=1)
print(output.split("/")[-1], took, "s", {k: round(v["value"], 2) for k, v in found["scores"].items()}, {k: round(v["value"], 2) for k, v in found["lowercased"].items()}, flush=True)
PY
  ) &
done
wait
