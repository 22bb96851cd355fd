#!/usr/bin/env bash
# Three organisations without a connection train one model by files, each with a namespace of its own
# that has no network, where the kernel allows that. Two people approve what sklearn sends.
#
#     examples/airlock.sh [FOLDER]           (default: runs/airlock, or the next free number)
#
# Every command is printed, with a + before it, and runs in the folder of the organisation that
# would type it. What only carries files is printed without its commands.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/steps.sh"
NAMES="networkx scipy sklearn"
begin "${1:-}" airlock
alone=(unshare --map-root-user --net)
"${alone[@]}" true 2>/dev/null || alone=()

fedtopics() { # without a network
  ${alone[@]+"${alone[@]}"} "$(type -P fedtopics)" "$@"
}
carry() { # as a person with a stick does, between the outboxes and inboxes
  for name in $NAMES; do cp "$folder/$name"/out/*.fedtopics "$folder/relay/in/"; done
  cd "$folder/relay"
  fedtopics step study.toml in out --key relay >>output.txt 2>&1
  for name in $NAMES; do cp out/*.fedtopics "$folder/$name/in/"; done
}
everybody() { # a turn of each member, at the same time
  local turns=()
  for name in $NAMES; do
    cd "$folder/$name"
    fedtopics step study.toml in out --key "$name" --data documents.jsonl --policy policy.toml \
      >>output.txt 2>&1 &
    turns+=($!)
  done
  processes=("${turns[@]}")
  for turn in "${turns[@]}"; do wait "$turn"; done
  processes=()
  carry
}

python "$here/write_documents.py" "$folder"
for name in relay $NAMES; do
  at "$name" "makes its key, which stays here"
  run fedtopics key create "$name"
  mkdir in out
  echo 'min_persons = 10' >policy.toml
done
at sklearn "two people have to approve what is sent"
run fedtopics key create anna
run fedtopics key create ben
printf 'approvals = 2\napprovers = ["anna.pem", "ben.pem"]\n' >>policy.toml
run cat policy.toml

at relay "writes the study, and sends it to all with the certificates"
for name in $NAMES; do cp "../$name/$name.pem" .; done
cat >study.toml <<END
name = "three-organisations"
method = {name = "nmf", n_components = 4, max_rounds = 1, coherence = "nothing"}
server.certificate = "relay.pem"
END
for name in $NAMES; do echo "clients.$name.certificate = \"$name.pem\"" >>study.toml; done
run cat study.toml
for name in $NAMES; do
  for file in study.toml ./*.pem; do cp -n "$file" "../$name/"; done
done

printf '\nEach member takes turns: fedtopics step study.toml in out --key NAME --data ...\n'
everybody
everybody
everybody
at sklearn "what waits for approval"
tail -n 2 output.txt
for approver in anna ben; do
  run fedtopics approve out --key "$approver" --page study.md --yes
done

printf '\nEach step is carried twice; this takes a minute or two ...\n'
turns=3
until [ -d "$folder/sklearn/runs/sklearn/three-organisations/model" ]; do
  everybody
  turns=$((turns + 1))
  [ "$turns" -lt 60 ] || complain "There is no model after $turns turns."
done

at sklearn "the model it has after $turns turns, and what was sent"
run fedtopics topics runs/sklearn/three-organisations/model --words 8
run fedtopics audit log runs/sklearn/three-organisations
run fedtopics audit verify runs/sklearn/three-organisations --certificate sklearn.pem
[ ${#alone[@]} -gt 0 ] || printf '\nThe kernel allows no namespaces: the commands had a network.\n'
printf '\nAll files are in %s\n' "$folder"
