# shellcheck shell=bash
# Where the stack lives, what it remembers between runs, and free ports.

marker=.webhooks-stack
timeout=${STACK_TIMEOUT:-180}

say() { printf 'stack: %s\n' "$*"; }

die() {
  printf 'stack: %s\n' "$*" >&2
  exit 1
}

# Prints the end of a log that explains a failure, then dies.
die_with_log() {
  local log=$1
  shift
  printf 'stack: %s; the end of %s:\n' "$*" "$log" >&2
  tail -n 25 "$log" >&2 || true
  exit 1
}

# Sets stack_dir, absolute and without symbolic links; creates nothing.
locate_stack() {
  local repository
  repository=$(cd "$here/../.." && pwd -P)
  stack_dir=$(realpath -m -- "${STACK_DIR:-$repository/.local}")
}

# Creates the stack's directory and takes its lock, which is held until this script ends.
enter_stack() {
  mkdir -p "$stack_dir" || die "cannot create $stack_dir"
  [ -w "$stack_dir" ] || die "$stack_dir belongs to another user; set STACK_DIR to a directory of your own"
  umask 077
  mkdir -p "$stack_dir/keep" "$stack_dir/run" "$stack_dir/log"
  : >"$stack_dir/$marker"
  exec 9>"$stack_dir/lock"
  flock -w 600 9 || die "another stack command holds $stack_dir/lock"
}

random_hex() { od -An -v -N"$1" -tx1 /dev/urandom | tr -d ' \n'; }

# A value remembered under a name; empty if there is none.
recall() { cat "$stack_dir/keep/$1" 2>/dev/null || true; }

remember() {
  printf '%s\n' "$2" >"$stack_dir/keep/$1.new"
  mv "$stack_dir/keep/$1.new" "$stack_dir/keep/$1"
}

# A random value of so many bytes, made once and then kept.
kept_secret() {
  [ -s "$stack_dir/keep/$1" ] || remember "$1" "$(random_hex "$2")"
  recall "$1"
}

# Does anything listen on the port, on whatever address?
port_is_taken() {
  local table hex
  printf -v hex '%04X' "$1"
  for table in /proc/net/tcp /proc/net/tcp6; do
    [ -r "$table" ] || continue
    if grep -qE "^ *[0-9]+: [0-9A-F]+:$hex [0-9A-F]+:[0-9A-F]+ 0A " "$table"; then return 0; fi
  done
  return 1
}

# The remembered port of that name, or a new one if there is none or a stranger has taken it.
# Below the ephemeral range: no outgoing connection can sit on it. A server that was killed may still be listening for a
# moment after it counts as gone, as its threads end one by one. So a remembered port has five seconds to become free.
settle_port() {
  local name=$1 port attempt
  port=$(recall "$name.port")
  if [ -n "$port" ]; then
    for attempt in {1..50}; do
      if ! port_is_taken "$port"; then return 0; fi
      sleep 0.1
    done
  fi
  for attempt in {1..200}; do
    port=$((20000 + 0x$(random_hex 4) % 12000))
    if ! port_is_taken "$port" && ! grep -qsx "$port" "$stack_dir"/keep/*.port; then
      remember "$name.port" "$port"
      return 0
    fi
  done
  die "no free port found after $attempt attempts"
}
