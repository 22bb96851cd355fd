# What the examples' scripts have in common: a folder, commands that are printed, processes.
set -euo pipefail

# The processes share this machine's cores. With a thread a core each, they would wait for each
# other's threads at every small operation, and be many times slower.
export OMP_NUM_THREADS=1
# gRPC goes through the proxy that the environment names, unless this says for whom it does not.
export no_proxy="localhost,127.0.0.1${no_proxy:+,$no_proxy}"
export COLUMNS=100 # of the tables

complain() {
  printf '%s\n' "$1" >&2
  exit 2
}

new_folder() { # the wished folder, or its first numbered neighbour that is not there yet
  local wished=$1 candidate=$1 number=1
  mkdir -p "$(dirname "$wished")"
  until mkdir "$candidate" 2>/dev/null; do
    [ -e "$candidate" ] || complain "The folder $candidate cannot be made."
    number=$((number + 1)) candidate=$wished-$number
  done
  (cd "$candidate" && pwd)
}

begin() { # make the folder: the one that was named, or the first free one like the default
  command -v fedtopics >/dev/null || complain "There is no fedtopics here; type: make $2"
  [ ! -e "$1" ] || complain "$1 is there already; name a new folder."
  folder=$(new_folder "${1:-runs/$2}")
  # The clients' memory of earlier runs. In the usual place it would refuse the next run of the
  # example, whose members have other keys.
  export XDG_STATE_HOME=$folder/state
  processes=()
  trap finish EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
}
finish() { # stop what still runs; after a failure, show what the processes said
  local status=$? process log
  trap - EXIT
  for process in ${processes[@]+"${processes[@]}"}; do kill "$process" 2>/dev/null || true; done
  wait
  case $status in
    0) ;;
    130 | 143) printf '\nInterrupted; all files are in %s\n' "$folder" ;;
    *)
      for log in "$folder"/*/output.txt; do
        [ -e "$log" ] || continue
        printf '\n%s said:\n' "$(basename "$(dirname "$log")")"
        grep '^[[:alpha:][:space:]]' "$log" | tail -n 20 || true # without the frames of tables
      done
      printf '\nFailed with exit code %s; all files are in %s\n' "$status" "$folder"
      ;;
  esac >&2
  exit "$status"
}

at() { # go to an organisation
  mkdir -p "$folder/$1"
  cd "$folder/$1"
  printf '\n=== %s: %s ===\n' "$1" "$2"
}
run() { # print a command, then run it
  printf '+ %s\n' "$*"
  "$@"
}
start() { # print a command, then run it beside the others
  printf '+ %s >> output.txt &\n' "$*"
  "$@" >>output.txt 2>&1 &
  processes+=($!)
}
all_end() { # wait for processes; the first that fails ends the script
  local process left
  while [ $# -gt 0 ]; do
    left=()
    for process; do
      if kill -0 "$process" 2>/dev/null; then left+=("$process"); else wait "$process"; fi
    done
    set -- ${left[@]+"${left[@]}"}
    sleep 0.5
  done
}
