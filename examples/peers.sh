#!/usr/bin/env bash
# Five organisations train one model without a server, each in a process of its own on this machine,
# from keys to topics: one of them runs the relay inside its own process. On the way two of them are
# killed, that one among them, and started again. At the end, one process trains the same study.
#
#     examples/peers.sh [FOLDER]             (default: runs/peers, or the next free number)
#
# Every command is printed, with a + before it, and runs in the folder of the organisation that
# would type it.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/steps.sh"
ROUNDS=120
NAMES="networkx scipy sklearn sympy standard-library"
HOST=scipy
begin "${1:-}" peers

study() { # a study: with certificates; or with where the documents are, for one machine
  cat <<END
name = "five-organisations"

[method]
name = "lda"
learning = "batch"
n_components = 10
max_rounds = $ROUNDS
END
  local name
  for name in $NAMES; do
    printf '\n[clients.%s]\n' "$name"
    if [ "$1" = documents ]; then
      printf 'data = "../%s/documents.jsonl"\n' "$name"
    else
      printf 'certificate = "%s.pem"\n' "$name"
    fi
  done
  if [ "$1" != documents ]; then
    printf '\n[server]\naddress = "localhost:%s"\nhost = "%s"\n' "$1" "$HOST"
  fi
}
join() { # join, in a process that is remembered by name
  local host=()
  [ "$1" != $HOST ] || host=(--host)
  start fedtopics join study.toml --key "$1" --data documents.jsonl --insecure-seed ${host[@]+"${host[@]}"}
  echo $! >process
}
rounds() { # how many rounds a member has done
  grep -c '"event": "round"' "$folder/$1/runs/$1/five-organisations/state/events.jsonl" 2>/dev/null ||
    true
}
until_so() { # wait for something, as long as nobody fails
  local tries=0
  until "$@"; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || complain "Waited too long: $*"
    for process in ${processes[@]+"${processes[@]}"}; do kill -0 "$process" || exit 1; done
    sleep 0.2
  done
}
has_rounds() { local done; done=$(rounds "$1"); [ "${done:-0}" -ge "$2" ]; }
kill_member() { # as a power cut would
  local process left=()
  process=$(cat "$folder/$1/process")
  for each in "${processes[@]}"; do [ "$each" = "$process" ] || left+=("$each"); done
  processes=("${left[@]}")
  printf '\n%s has done %s of %s rounds\n' "$1" "$(rounds "$1")" "$ROUNDS"
  run kill -9 "$process"
  wait "$process" 2>/dev/null || true
}

python "$here/write_documents.py" "$folder" 5

for name in $NAMES; do
  at "$name" "makes its key, which stays here"
  run fedtopics key create "$name"
done

port=$(python "$here/free_ports.py" 1)
at $HOST "writes the study, with the certificates of all, and sends both to the others"
for name in $NAMES; do cp -n "../$name/$name.pem" .; done
study "$port" >study.toml
run cat study.toml
for name in $NAMES; do
  for file in study.toml ./*.pem; do cp -n "$file" "../$name/"; done
done

at networkx "what does the study propose?"
run fedtopics check study.toml --data documents.jsonl

for name in $NAMES; do
  at "$name" "joins"
  join "$name"
done

cat <<END

--insecure-seed: what a client draws follows from the study's seed, so that one process can train
the same model below, except for rounding. Everybody who has the study could tell what was drawn;
without the flag, which is how to take part in earnest, it follows from 32 random bytes that nobody
else has.

$ROUNDS rounds; $HOST and sympy are killed on the way ...
END
until_so has_rounds networkx 20
kill_member $HOST
kill_member sympy
printf '\nEvery step is over all five, so the others wait.\n'
for name in $HOST sympy; do
  at "$name" "started again, with the same command"
  join "$name"
done
all_end "${processes[@]}"
processes=()

for name in $NAMES; do
  at "$name" "what it saw last"
  tail -n 3 output.txt
done

at sympy "the model, and what left"
run fedtopics topics runs/sympy/five-organisations/model --words 8
run fedtopics audit log runs/sympy/five-organisations

at one-process "the same study with the documents in one place, for comparison only"
study documents >study.toml
printf '+ %s > output.txt\n' "fedtopics train study.toml --out run"
fedtopics train study.toml --out run >output.txt 2>&1
models=()
for name in $NAMES; do models+=("../$name/runs/$name/five-organisations/model"); done
run python "$here/compare_models.py" run/model "${models[@]}"
printf '\nAll files are in %s\n' "$folder"
