# shellcheck shell=bash
# Processes that outlive this script, known by pid, start time and boot: a number that was
# handed to another process is never mistaken for ours.

boot_id() { cat /proc/sys/kernel/random/boot_id 2>/dev/null || echo unknown; }

# Sets stat_state, stat_parent and stat_start of a process; false if there is none.
read_stat() {
  local line fields
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  # The name in parentheses may hold anything, so the fields are counted after its end.
  read -ra fields <<<"${line##*) }"
  stat_state=${fields[0]} stat_parent=${fields[1]} stat_start=${fields[19]}
}

# spawn NAME LOG COMMAND...: in a session of its own, with no descriptor of ours left open.
spawn() {
  local name=$1 log=$2
  shift 2
  (
    cd /
    ulimit -Sn 65536 2>/dev/null || true
    for fd in /proc/self/fd/*; do
      fd=${fd##*/}
      if [ "$fd" -gt 2 ]; then eval "exec $fd>&-"; fi
    done
    exec setsid "$@"
  ) </dev/null >>"$log" 2>&1 &
  local pid=$!
  disown "$pid"
  read_stat "$pid" || die_with_log "$log" "$name ended at once"
  echo "$pid $stat_start $(boot_id)" >"$stack_dir/run/$name"
}

# The pid of a server that we started and that still runs; empty if it does not.
pid_of() {
  local pid start boot
  { read -r pid start boot <"$stack_dir/run/$1"; } 2>/dev/null || return 0
  read_stat "$pid" || return 0
  [ "$stat_start" = "$start" ] && [ "$boot" = "$(boot_id)" ] || return 0
  case $stat_state in Z | X) return 0 ;; esac
  echo "$pid"
}

is_running() { [ -n "$(pid_of "$1")" ]; }

is_paused() {
  local pid
  pid=$(pid_of "$1")
  [ -n "$pid" ] && read_stat "$pid" && [ "$stat_state" = T ]
}

# Sets tree to a process and all its descendants.
read_tree() {
  local entry pid parent grown=yes
  local -A parents=() member=([$1]=1)
  for entry in /proc/[0-9]*; do
    pid=${entry##*/}
    if read_stat "$pid" && [ "$stat_state" != Z ]; then parents[$pid]=$stat_parent; fi
  done
  tree=("$1")
  while [ "$grown" = yes ]; do
    grown=no
    for pid in "${!parents[@]}"; do
      parent=${parents[$pid]}
      if [ -z "${member[$pid]:-}" ] && [ -n "${member[$parent]:-}" ]; then
        member[$pid]=1 tree+=("$pid") grown=yes
      fi
    done
  done
}

# signal_whole SIGNAL NAME: to the server and everything below it; the tree is left in `tree`.
signal_whole() {
  local pid
  pid=$(pid_of "$2")
  tree=()
  [ -n "$pid" ] || return 0
  # The parent first, so that it starts no further children when it is to be frozen.
  kill -s "$1" "$pid" 2>/dev/null || true
  read_tree "$pid"
  kill -s "$1" "${tree[@]}" 2>/dev/null || true
}

# Waits until every process of `tree` is gone (or is a zombie that nobody reaps).
await_gone() {
  local pid deadline=$((SECONDS + $1))
  for pid in "${tree[@]}"; do
    while read_stat "$pid" && [ "$stat_state" != Z ] && [ "$stat_state" != X ]; do
      [ "$SECONDS" -lt "$deadline" ] || return 1
      sleep 0.05
    done
  done
}

# kill -9: frozen first, so that nothing forks away from under the signal.
kill_whole() {
  signal_whole STOP "$1"
  if [ "${#tree[@]}" -gt 0 ]; then
    kill -s KILL "${tree[@]}" 2>/dev/null || true
    await_gone 10 || die "$1 does not die"
  fi
  rm -f "$stack_dir/run/$1"
}

# stop_with SIGNAL NAME SECONDS: asks, waits, and kills what is still there at the deadline.
stop_with() {
  local pid
  pid=$(pid_of "$2")
  if [ -n "$pid" ]; then
    read_tree "$pid"
    kill -s CONT "${tree[@]}" 2>/dev/null || true
    kill -s "$1" "$pid" 2>/dev/null || true
    await_gone "$3" || kill_whole "$2"
  fi
  rm -f "$stack_dir/run/$2"
}

# Sends the signal without waiting, so that several servers can stop at the same time.
ask_to_stop() {
  local pid
  pid=$(pid_of "$2")
  [ -n "$pid" ] || return 0
  if is_paused "$2"; then signal_whole CONT "$2"; fi
  kill -s "$1" "$pid" 2>/dev/null || true
}

# describe NAME PORT: one line for `stack status`.
describe() {
  local pid
  pid=$(pid_of "$1")
  if [ -z "$pid" ]; then
    echo "stopped"
  elif is_paused "$1"; then
    echo "paused    127.0.0.1:$2  pid $pid"
  else
    echo "running   127.0.0.1:$2  pid $pid"
  fi
}
