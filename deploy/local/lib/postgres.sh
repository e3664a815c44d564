# shellcheck shell=bash
# The private PostgreSQL: on a loopback port, never as root, with fsync on.

# Sets pg_bin: the version of the existing data, else the newest.
find_postgres() {
  local found version
  version=$(cat "$(postgres_home)/data/PG_VERSION" 2>/dev/null || true)
  if [ -n "$version" ] && [ -x "$stack_root/usr/lib/postgresql/$version/bin/postgres" ]; then
    pg_bin=/usr/lib/postgresql/$version/bin
    return 0
  fi
  found=$(printf '%s\n' "$stack_root"/usr/lib/postgresql/*/bin/postgres | sort -V | tail -n 1)
  if [ -n "$stack_root" ]; then
    [ -x "$found" ] || return 1
    pg_bin=$(dirname "${found#"$stack_root"}")
    return 0
  fi
  [ -x "$found" ] || found=$(command -v postgres) || return 1
  pg_bin=$(dirname "$(readlink -f "$found")")
}

postgres_home() {
  local elsewhere
  elsewhere=$(recall postgres.home)
  echo "${elsewhere:-$stack_dir/postgres}"
}

# Can the server's user work in this directory, started by the given command?
works_in() {
  local dir=$1
  shift
  # shellcheck disable=SC2016
  "$@" sh -c 'cd "$1" && touch "$1/.probe" && rm "$1/.probe"' probe "$dir" 2>/dev/null
}

# Sets pg_home and as_postgres, the command prefix that starts things as a user whom
# PostgreSQL accepts. Root hands over to another user, who may need help to get through the
# directories above: the repository may be a clone that only root can enter.
settle_postgres_user() {
  pg_home=$(postgres_home)
  mkdir -p "$pg_home"
  as_postgres=(env)
  [ "$(id -u)" -eq 0 ] || return 0

  local user group caps=+dac_read_search,+dac_override
  user=$(stat -c %u "$pg_home")
  if [ "$user" -eq 0 ]; then
    user=$(id -u postgres 2>/dev/null || id -u nobody)
  fi
  group=$(id -g "$user")
  chown "$user:$group" "$pg_home"
  as_postgres=(setpriv --reuid "$user" --regid "$group" --clear-groups)
  if works_in "$pg_home" "${as_postgres[@]}"; then return 0; fi
  as_postgres+=(--inh-caps="$caps" --ambient-caps="$caps")
  if works_in "$pg_home" "${as_postgres[@]}"; then return 0; fi

  pg_home=/var/tmp/webhooks-stack-$(printf '%s' "$stack_dir" | sha256sum | cut -c 1-16)
  say "user $user cannot enter $stack_dir; PostgreSQL's data goes to $pg_home"
  mkdir -p "$pg_home"
  chown "$user:$group" "$pg_home"
  remember postgres.home "$pg_home"
  as_postgres=(setpriv --reuid "$user" --regid "$group" --clear-groups)
  works_in "$pg_home" "${as_postgres[@]}" || die "user $user cannot work in $pg_home either"
}

# A clean environment for the server's own programs.
run_postgres_tool() {
  "${in_root[@]}" "${as_postgres[@]}" env -i PATH="$pg_bin:/usr/bin:/bin" LC_ALL=C.UTF-8 "$@"
}

postgres_initialise() {
  [ ! -e "$pg_home/data" ] || return 0
  local owner
  owner=$(stat -c %u:%g "$pg_home")
  # Elsewhere first, then renamed: an interrupted initdb is never taken for a database.
  rm -rf "$pg_home/data.new"
  kept_secret postgres.password 16 >"$pg_home/password"
  chown "$owner" "$pg_home/password"
  (cd / && run_postgres_tool "$pg_bin/initdb" -D "$pg_home/data.new" -U webhooks -E UTF8 \
    --locale=C.UTF-8 --auth=scram-sha-256 --pwfile="$pg_home/password" --data-checksums) \
    </dev/null >>"$pg_log" 2>&1 || die_with_log "$pg_log" "initdb failed"
  rm -f "$pg_home/password"
  mv "$pg_home/data.new" "$pg_home/data"
}

postgres_addresses() {
  local host
  host=$(recall address)
  echo "127.0.0.1${host:+,$host}"
}

postgres_configure() {
  local library='' lib_dir
  lib_dir=$("${in_root[@]}" "$pg_bin/pg_config" --pkglibdir 2>/dev/null || echo "${pg_bin%/bin}/lib")
  [ ! -e "$stack_root$lib_dir/pg_stat_statements.so" ] || library=pg_stat_statements
  cat >"$pg_home/data/postgresql.conf" <<CONF
# Written by deploy/local/stack at each start.
listen_addresses = '$(postgres_addresses)'
port = $(recall postgres.port)
unix_socket_directories = ''
max_connections = 300
shared_buffers = 128MB
shared_preload_libraries = '$library'
max_locks_per_transaction = 256
jit = off

# Durability is what the product promises, so tests and benchmarks run with it.
fsync = on
synchronous_commit = on
full_page_writes = on
wal_compression = on
max_wal_size = 1GB
min_wal_size = 128MB
checkpoint_timeout = 5min
checkpoint_completion_target = 0.9

password_encryption = scram-sha-256
timezone = 'UTC'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] %d '
log_min_messages = warning
cluster_name = 'webhooks-local'
CONF
  # Of a node of a cluster (deploy/local/cluster).
  if [ -e "$stack_dir/cluster.conf" ]; then cat "$stack_dir/cluster.conf" >>"$pg_home/data/postgresql.conf"; fi
  chown --reference="$pg_home" "$pg_home/data/postgresql.conf"
}

# A crash leaves postmaster.pid behind. PostgreSQL takes it for valid while the number exists,
# be it a zombie that nobody has reaped yet or some other program. So it is removed unless that
# process really is a server on this data.
postgres_clear_stale_lock() {
  local file=$pg_home/data/postmaster.pid pid
  [ -e "$file" ] && read -r pid <"$file" || return 0
  if ! tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF -- "-D $pg_home/data"; then rm -f "$file"; fi
}

postgres_start() {
  pg_log=$stack_dir/log/postgres.log
  if is_paused postgres; then signal_whole CONT postgres; fi
  find_postgres || die "PostgreSQL is not installed: run stack up"
  local attempt
  for attempt in 1 2 3 4 5; do
    if ! is_running postgres; then
      settle_postgres_user
      postgres_initialise
      settle_port postgres
      postgres_configure
      postgres_clear_stale_lock
      spawn postgres "$pg_log" "${in_root[@]}" "${as_postgres[@]}" env -i PATH="$pg_bin:/usr/bin:/bin" LC_ALL=C.UTF-8 \
        "$pg_bin/postgres" -D "$pg_home/data"
    fi
    if postgres_await; then
      postgres_create_database
      return 0
    fi
    # It ended. Only a port that someone else was quicker to take is worth another attempt.
    port_is_taken "$(recall postgres.port)" || break
    say "port $(recall postgres.port) was taken meanwhile (attempt $attempt)"
  done
  die_with_log "$pg_log" "PostgreSQL does not start"
}

# False if the server ends before it is ready.
postgres_await() {
  local deadline=$((SECONDS + timeout))
  until "${in_root[@]}" "$pg_bin/pg_isready" -q -h 127.0.0.1 -p "$(recall postgres.port)" -t 2 && is_running postgres; do
    is_running postgres || return 1
    [ "$SECONDS" -lt "$deadline" ] || die_with_log "$pg_log" "PostgreSQL is not ready after $timeout seconds"
    sleep 0.1
  done
}

# psql as the stack's superuser, with nothing of the caller's libpq settings.
postgres_psql() {
  [ -n "${pg_bin:-}" ] || find_postgres || die "PostgreSQL is not installed: run stack up"
  "${in_root[@]}" env -i PATH="$PATH" HOME="$stack_dir" TERM="${TERM:-dumb}" LC_ALL=C.UTF-8 \
    PGHOST=127.0.0.1 PGPORT="$(recall postgres.port)" PGUSER=webhooks \
    PGPASSWORD="$(recall postgres.password)" PGDATABASE="${PGDATABASE:-webhooks}" \
    "$pg_bin/psql" -X "$@"
}

postgres_create_database() {
  local answer
  answer=$(PGDATABASE=postgres postgres_psql -qtA -c "SELECT 1 FROM pg_database WHERE datname = 'webhooks'") \
    || die_with_log "$pg_log" "PostgreSQL refuses the stack's own user"
  [ "$answer" = 1 ] || PGDATABASE=postgres postgres_psql -q -c 'CREATE DATABASE webhooks'
}

# Dies if a build with another baseline of the schema made the database: nothing converts it.
postgres_require_baseline() {
  local baseline versions
  baseline=$(basename "$here"/../../crates/ledger/migrations/*_baseline)
  baseline=${baseline%%_*}
  [ -n "$(postgres_psql -qtA -c "SELECT to_regclass('__diesel_schema_migrations')")" ] || return 0
  versions=$(postgres_psql -qtA -c 'SELECT version FROM __diesel_schema_migrations')
  if [ -z "$versions" ] || grep -qx "${baseline//-/}" <<<"$versions"; then return 0; fi
  die "a build with another baseline of the schema made the database, and nothing converts" \
    "it: run \`deploy/local/stack destroy\`, which deletes all data in $stack_dir, then \`make up\`"
}

# INT is PostgreSQL's fast shutdown: clients are disconnected, a checkpoint is written.
postgres_ask_to_stop() { ask_to_stop INT postgres; }
postgres_stop() { stop_with INT postgres 30; }
postgres_describe() { describe postgres "$(recall postgres.port)"; }
postgres_url() {
  echo "postgres://webhooks:$(recall postgres.password)@127.0.0.1:$(recall postgres.port)/webhooks"
}

# Removes a data directory that had to be placed outside $STACK_DIR.
postgres_forget() {
  case $(recall postgres.home) in
    /var/tmp/webhooks-stack-*) rm -rf "$(recall postgres.home)" ;;
  esac
}
