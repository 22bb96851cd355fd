#!/usr/bin/env bash
# Five organisations train one model over mutual TLS without a server, each in a process of its own
# on this machine, from certificates to topics. Twice, the one that adds is killed; another one adds
# then. At the end, one process trains the same study.
#
#     examples/peers.sh [FOLDER]             (default: runs/peers, or the next free number)
#
# Every command is printed, with a + before it, and runs in the folder of the organisation that
# would type it.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/steps.sh"
ROUNDS=120
NAMES="networkx scipy sklearn sympy standard-library"
begin "${1:-}" peers

study() { # a study: with where each can be reached; or with where the documents are, for one machine
  cat <<END
name = "five-organisations"

[method]
name = "lda"
learning = "batch"   # a round is over all documents: worked again, it gives the same
n_components = 10
max_rounds = $ROUNDS

[federation]
min_clients = 5  # no round without all five
gather = 120     # seconds for all to come
wait = 120       # seconds for one to come back
END
  local name place=0 ports
  ports=($(python "$here/free_ports.py" 5))
  for name in $NAMES; do
    printf '\n[clients.%s]\n' "$name"
    if [ "$1" = documents ]; then
      printf 'data = "../%s/documents.jsonl"\n' "$name"
    else
      printf 'address = "localhost:%s"\n' "${ports[$place]}"
    fi
    place=$((place + 1))
  done
}
part() { # take part, in a process that is remembered by name
  start fedtopics peer study.toml --identity "$1" --data documents.jsonl --secret-from-seed
  echo $! >process
}
rounds() { # how many rounds a participant has done
  grep -c '"event": "round"' "$folder/$1/runs/$1/five-organisations/state/events.jsonl" 2>/dev/null ||
    true
}
adder() { # who adds, as one participant has said last
  sed -n 's/^\([a-z-]*\) adds up what all send$/\1/p' "$folder/$1/output.txt" | tail -n 1
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
is_followed() { [ -n "$(adder "$1")" ] && [ "$(adder "$1")" != "$2" ]; }
watch() { # name a participant that is alive, to look at
  local name
  for name in $NAMES; do
    case " $killed " in *" $name "*) ;; *) echo "$name" && return ;; esac
  done
}
kill_adder() { # kill who adds, as a power cut would; wait until another one does
  local gone process left=()
  gone=$(adder "$(watch)")
  killed="$killed $gone"
  process=$(cat "$folder/$gone/process")
  for each in "${processes[@]}"; do [ "$each" = "$process" ] || left+=("$each"); done
  processes=("${left[@]}")
  printf '\n%s adds; round %s of %s\n' "$gone" "$(rounds "$gone")" "$ROUNDS"
  run kill -9 "$process"
  wait "$process" 2>/dev/null || true
  until_so is_followed "$(watch)" "$gone"
  printf '%s says: %s adds up what all send\n' "$(watch)" "$(adder "$(watch)")"
}

python "$here/write_documents.py" "$folder" 5

at authority "whoever the five trust to say who is who; it takes no part"
study addresses >study.toml
run cat study.toml
run fedtopics pki create --peers
for name in $NAMES; do
  run fedtopics pki issue "$name" --peer
done

for name in $NAMES; do
  at "$name" "its identity came over a safe way; the study is the same file at all"
  run cp -R "../authority/pki/clients/$name" .
  run cp ../authority/study.toml .
done

at networkx "what would leave?"
run fedtopics peer study.toml --identity networkx --data documents.jsonl --dry-run

for name in $NAMES; do
  at "$name" "takes part"
  part "$name"
done

cat <<END

--secret-from-seed: what a client draws follows from the study's seed, so that one process can train
the same model below, but for what masks round. Everybody who has the study could tell what was drawn; without the
flag, which is how to take part in earnest, it follows from 32 random bytes that nobody else has.

$ROUNDS rounds; who adds is killed, then who comes after it ...
END
killed=""
until_so has_rounds networkx 20
kill_adder
kill_adder
printf '\nThree of five go on with what all had; a round needs all five here, so they wait.\n'
for name in $killed; do
  at "$name" "started again, with the same command"
  part "$name"
done
killed=""
all_end "${processes[@]}"
processes=()

for name in $NAMES; do
  at "$name" "what it saw, without the table of what would leave"
  sed -n '/^listening on /,/^the model went to /p' output.txt | grep '^[[:alpha:]]'
done

at sympy "the model, and what left"
run fedtopics topics runs/sympy/five-organisations/model --words 8
run fedtopics ledger runs/sympy/five-organisations

at one-process "the same study with the documents in one place, for comparison only"
study documents >study.toml
printf '+ %s > output.txt\n' "fedtopics run study.toml --out run"
fedtopics run study.toml --out run >output.txt 2>&1
models=()
for name in $NAMES; do models+=("../$name/runs/$name/five-organisations/model"); done
run python "$here/compare_models.py" run/model "${models[@]}"
printf '\nAll files are in %s\n' "$folder"
