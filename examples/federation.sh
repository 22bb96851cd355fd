#!/usr/bin/env bash
# Three organisations train one model, each in a process of its own on this machine, from keys to
# topics; a server relays what it cannot read. Then one process trains the same study.
#
#     examples/federation.sh [FOLDER]        (default: runs/federation, or the next free number)
#
# Every command is printed, with a + before it, and runs in the folder of the organisation that
# would type it. README.md has the same commands for four machines.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/steps.sh"
ROUNDS=120
begin "${1:-}" federation

study() { # a study whose server is at a port; with "documents", one for one machine
  cat <<END
name = "three-organisations"

[about]
purpose = "To see what the documentation of three Python packages is about"
operator = "Whoever runs this example"
recipients = ["readers of the report"]
retention = "until the folder of the example is deleted"

[method]
name = "gfedntm"
n_components = 10
max_rounds = $ROUNDS
batch_size = 192
learning_rate = 0.02  # a short run, in large steps
beta1 = 0.9

END
  if [ "${2:-}" != documents ]; then
    printf '\n[server]\naddress = "localhost:%s"\ncertificate = "server.pem"\n' "$1"
  fi
  for name in networkx scipy sklearn; do
    printf '\n[clients.%s]\n' "$name"
    if [ "${2:-}" = documents ]; then
      printf 'data = "../%s/documents.jsonl"\npolicy = "../%s/policy.toml"\n' "$name" "$name"
    else
      printf 'certificate = "%s.pem"\n' "$name"
    fi
  done
}

python "$here/write_documents.py" "$folder"
printf 'min_persons_per_word = 5\nmin_clients_in_sum = 3  # with two others at least\n' >"$folder/networkx/policy.toml"
echo 'min_persons = 40' >"$folder/scipy/policy.toml"
printf 'methods = ["gfedntm"]\nmin_persons_per_word = 10\nmax_rounds = 1000\n' \
  >"$folder/sklearn/policy.toml"

for name in server networkx scipy sklearn; do
  at "$name" "makes its key, which stays here"
  run fedtopics key create "$name"
done

at server "collects the certificates, and sends the study with them to all"
port=$(python "$here/free_ports.py" 1)
cp ../networkx/networkx.pem ../scipy/scipy.pem ../sklearn/sklearn.pem .
study "$port" >study.toml
run cat study.toml
for name in networkx scipy sklearn; do
  for file in study.toml ./*.pem; do cp -n "$file" "../$name/"; done
done

at server "serves the study"
start fedtopics serve study.toml --key server --listen "127.0.0.1:$port"
until grep -q "^listening on " output.txt; do
  kill -0 "${processes[0]}" || exit 1
  sleep 0.2
done
cat output.txt

at networkx "what does the study propose, and does the policy allow it?"
run cat policy.toml
run fedtopics check study.toml --key networkx --data documents.jsonl --policy policy.toml

for name in networkx scipy sklearn; do
  at "$name" "joins, within its own policy"
  start fedtopics join study.toml --key "$name" --data documents.jsonl --policy policy.toml \
    --insecure-seed
done

cat <<'END'

--insecure-seed: minibatches, noise and dropout follow from the study's seed, so that one process
can train the same model below, except for rounding. Everybody who has the study could tell what
was drawn: without the flag, which is how to take part in earnest, they follow from 32 random bytes
that each client keeps for itself.
END

printf '\n%s rounds; this takes a minute or so ...\n' "$ROUNDS"
all_end "${processes[@]}"
processes=()

at server "what it saw"
cat output.txt

at scipy "what it saw, after the table of what would leave"
tail -n 2 output.txt

at sklearn "what left it, and the model it has"
run cat policy.toml
run fedtopics audit log runs/sklearn/three-organisations
run fedtopics topics runs/sklearn/three-organisations/model --words 8
run fedtopics audit verify runs/sklearn/three-organisations --certificate sklearn.pem
run fedtopics audit dpia runs/sklearn/three-organisations -o dpia.html

at one-process "the same study with the documents in one place, for comparison only"
study "$port" documents >study.toml
printf '+ %s > output.txt\n' "fedtopics train study.toml --out run"
fedtopics train study.toml --out run >output.txt 2>&1
run python "$here/compare_models.py" ../sklearn/runs/sklearn/three-organisations/model run/model
printf '\nAll files are in %s\n' "$folder"
