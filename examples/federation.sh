#!/usr/bin/env bash
# Three organisations and a server train one model over mutual TLS, each in a process of its own
# on this machine, from certificates to topics; then one process trains the same study.
#
#     examples/federation.sh [FOLDER]        (default: runs/federation, or the next free number)
#
# Every command is printed, with a + before it, and runs in the folder of the organisation that
# would type it. README.md has the same commands for four machines.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/steps.sh"
ROUNDS=300
begin "${1:-}" federation

study() { # a study; with "documents", it also says where they are, for one machine
  cat <<END
name = "three-organisations"

[about]
purpose = "To see what the documentation of three Python packages is about"
operator = "Whoever runs this example"
recipients = ["readers of the report"]
retention = "until the folder of the example is deleted"

[method]
n_components = 10
max_rounds = $ROUNDS
batch_size = 192
learning_rate = 0.02  # a short run, in large steps
beta1 = 0.9

[federation]
min_clients = 3  # no round without all three
gather = 120     # seconds for all to come
wait = 120       # seconds for one to come back
END
  for name in networkx scipy sklearn; do
    printf '\n[clients.%s]\n' "$name"
    if [ "${1:-}" = documents ]; then
      printf 'data = "../%s/documents.jsonl"\npolicy = "../%s/policy.toml"\n' "$name" "$name"
    fi
  done
}

python "$here/write_documents.py" "$folder"
printf 'min_document_frequency = 5\nmin_clients_in_sum = 3  # with two others at least\n' >"$folder/networkx/policy.toml"
echo 'min_documents = 40' >"$folder/scipy/policy.toml"
printf 'methods = ["gfedntm"]\nmin_document_frequency = 10\nmax_rounds = 1000\n' \
  >"$folder/sklearn/policy.toml"

at server "certificates, and what is trained"
study >study.toml
run cat study.toml
run fedtopics pki create --server localhost
run fedtopics pki issue networkx
run fedtopics pki issue sklearn

at networkx "its identity, key included, came over a safe way"
run cp -R ../server/pki/clients/networkx .

at sklearn "likewise"
run cp -R ../server/pki/clients/sklearn .

at scipy "makes its own key, which never travels"
run fedtopics pki request scipy
run cp scipy/request.csr ../server/scipy.csr

at server "signs it"
run fedtopics pki sign scipy.csr

at scipy "two public files come back"
run cp ../server/pki/signed/scipy/ca.crt ../server/pki/signed/scipy/client.crt scipy
run fedtopics pki show scipy

at server "runs the study, on a port that is free (0)"
start fedtopics server study.toml --pki pki --listen 127.0.0.1:0
until grep -q "^listening on " output.txt; do
  kill -0 "${processes[0]}" || exit 1
  sleep 0.2
done
port=$(sed -n 's/^listening on 127\.0\.0\.1:\([0-9]*\) .*/\1/p' output.txt)
cat output.txt

at networkx "can it take part, and what would leave?"
run fedtopics doctor --server "localhost:$port" --identity networkx
run cat policy.toml
run fedtopics client --server "localhost:$port" --identity networkx --data documents.jsonl \
  --policy policy.toml --dry-run

for name in networkx scipy sklearn; do
  at "$name" "takes part, within its own policy"
  start fedtopics client --server "localhost:$port" --identity "$name" --data documents.jsonl \
    --policy policy.toml --secret-from-seed
done

cat <<'END'

--secret-from-seed: minibatches, noise and dropout follow from the study's seed, so that one process
can train the same model below, but for what masks round. Everybody who has the study could tell what
was drawn: without the flag, which is how to take part in earnest, they follow from 32 random bytes
that each client keeps for itself.
END

printf '\n%s rounds; this takes a minute or so ...\n' "$ROUNDS"
all_end "${processes[@]}"
processes=()

at server "what it saw; the topics, which it prints too, are below"
sed '/^topic, /,$d' output.txt

at scipy "what it saw, after the table of what would leave"
tail -n 2 output.txt

at sklearn "what left it, and the model it received"
run cat policy.toml
run fedtopics ledger runs/sklearn/three-organisations
run fedtopics topics runs/sklearn/three-organisations/model --words 8
run fedtopics verify runs/sklearn/three-organisations --certificate sklearn/client.crt
run fedtopics dpia runs/sklearn/three-organisations -o dpia.html

at one-process "the same study with the documents in one place, for comparison only"
study documents >study.toml
printf '+ %s > output.txt\n' "fedtopics run study.toml --out run"
fedtopics run study.toml --out run >output.txt 2>&1
run python "$here/compare_models.py" ../sklearn/runs/sklearn/three-organisations/model run/model
printf '\nAll files are in %s\n' "$folder"
