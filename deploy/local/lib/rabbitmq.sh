# shellcheck shell=bash
# The private RabbitMQ, with a node name, cookie and name server (epmd) of its own.

# Sets rabbitmq_bin and epmd_program. Debian's wrapper in /usr/sbin switches users, so the real one is taken.
find_rabbitmq() {
  local found
  rabbitmq_bin=/usr/lib/rabbitmq/bin epmd_program=/usr/bin/epmd
  if [ -n "$stack_root" ]; then
    [ -x "$stack_root$rabbitmq_bin/rabbitmq-server" ] && [ -x "$stack_root$epmd_program" ]
    return
  fi
  if [ ! -x "$rabbitmq_bin/rabbitmq-server" ]; then
    found=$(printf '%s\n' /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server | sort -V | tail -n 1)
    [ -x "$found" ] || found=$(command -v rabbitmq-server) || return 1
    rabbitmq_bin=$(dirname "$(readlink -f "$found")")
  fi
  epmd_program=$(command -v epmd) && command -v erl >/dev/null
}

# Sets rabbitmq_env: the whole environment of the node and of its command line. The node's name
# stays the same when a port changes, since its data carries that name. A node of a cluster whose hosts have addresses
# is named by its address.
settle_rabbitmq_environment() {
  local home=$stack_dir/rabbitmq host='' distribution
  host=$(recall address)
  distribution="-kernel inet_dist_use_interface {$(tr . , <<<"${host:-127.0.0.1}")}"
  rabbitmq_env=(
    env -i
    PATH="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:$PATH"
    LC_ALL=C.UTF-8
    HOME="$home"
    ERL_EPMD_PORT="$(recall epmd.port)"
    ERL_EPMD_ADDRESS=127.0.0.1
    ERL_CRASH_DUMP_SECONDS=0
    RABBITMQ_NODENAME="$(rabbitmq_node)"
    RABBITMQ_DIST_PORT="$(recall distribution.port)"
    RABBITMQ_CONF_ENV_FILE="$home/rabbitmq-env.conf"
    RABBITMQ_CONFIG_FILE="$home/rabbitmq.conf"
    RABBITMQ_ADVANCED_CONFIG_FILE="$home/advanced.config"
    RABBITMQ_ENABLED_PLUGINS_FILE="$home/enabled_plugins"
    RABBITMQ_MNESIA_BASE="$home/data"
    RABBITMQ_PID_FILE="$home/node.pid"
    RABBITMQ_LOG_BASE="$stack_dir/log"
    RABBITMQ_LOGS="$stack_dir/log/rabbitmq.log"
    # Schedulers that do not spin while idle, and distribution on loopback only.
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+sbwt none +sbwtdcpu none +sbwtdio none $distribution"
    RABBITMQ_CTL_ERL_ARGS="$distribution"
    # The start script then becomes the node instead of watching over it: one pid to know.
    RUNNING_UNDER_SYSTEMD=true
  )
  [ -z "$host" ] || rabbitmq_env+=(RABBITMQ_USE_LONGNAME=true ERL_EPMD_ADDRESS="$host")
}

rabbitmq_node() {
  local host
  host=$(recall address)
  echo "webhooks-$(recall rabbitmq.node)@${host:-localhost}"
}

rabbitmq_configure() {
  local home=$stack_dir/rabbitmq
  mkdir -p "$home/data"
  kept_secret rabbitmq.node 4 >/dev/null
  kept_secret rabbitmq.password 16 >/dev/null
  if [ ! -e "$home/.erlang.cookie" ]; then
    random_hex 20 >"$home/.erlang.cookie"
    chmod 400 "$home/.erlang.cookie"
  fi
  : >"$home/rabbitmq-env.conf"
  echo '[].' >"$home/advanced.config"
  echo '[].' >"$home/enabled_plugins"
  cat >"$home/rabbitmq.conf" <<CONF
# Written by deploy/local/stack at each start.
listeners.tcp.1 = 127.0.0.1:$(recall rabbitmq.port)

# Made at the first start, in place of guest.
default_vhost = /
default_user = webhooks
default_pass = $(recall rabbitmq.password)
default_user_tags.administrator = true
loopback_users.webhooks = $([ -z "$(recall address)" ] && echo true || echo false)

# A publisher of more is refused at once. Events may have 256 KiB of data, and AMQP's consumers know no limit in bytes.
max_message_size = 1048576

# The log of the quorum queues is sorted out this often: the default, 512 MB, holds up all queues for a quarter of a second.
raft.wal_max_size_bytes = 64000000

disk_free_limit.absolute = 50MB
log.file.level = info
log.connection.level = error
CONF
  # Of a node of a cluster (deploy/local/cluster).
  if [ -e "$home/cluster.conf" ]; then
    cat "$home/cluster.conf" >>"$home/rabbitmq.conf"
    cp "$home/cluster.config" "$home/advanced.config"
  fi
  rabbitmq_configure_tls >>"$home/rabbitmq.conf"
}

# With a folder rabbitmq/tls, made by whoever wants it, the broker also speaks TLS, to clients that have a certificate.
rabbitmq_configure_tls() {
  local folder=$stack_dir/rabbitmq/tls
  [ -d "$folder" ] || return 0
  cat <<CONF

listeners.ssl.1 = 127.0.0.1:$(recall rabbitmq-tls.port)
ssl_options.cacertfile = $folder/authority.pem
ssl_options.certfile = $folder/server.pem
ssl_options.keyfile = $folder/server.key
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
CONF
}

epmd_start() {
  ! is_running epmd || return 0
  # Another node of this cluster has started it.
  [ -z "$(recall epmd.shared)" ] || return 0
  local attempt host
  host=$(recall address)
  for attempt in 1 2 3 4 5; do
    settle_port epmd
    spawn epmd "$stack_dir/log/epmd.log" "${in_root[@]}" env -i PATH="$PATH" \
      "$epmd_program" -address "${host:-127.0.0.1}" -port "$(recall epmd.port)"
    local deadline=$((SECONDS + 10))
    while is_running epmd && [ "$SECONDS" -lt "$deadline" ]; do
      if port_is_taken "$(recall epmd.port)" && is_running epmd; then return 0; fi
      sleep 0.05
    done
  done
  die_with_log "$stack_dir/log/epmd.log" "Erlang's epmd does not start ($attempt attempts)"
}

# Starts the node and does not wait; rabbitmq_await does.
rabbitmq_launch() {
  if is_paused rabbitmq; then signal_whole CONT rabbitmq; fi
  find_rabbitmq || die "RabbitMQ is not installed: run stack up"
  epmd_start
  if ! is_running rabbitmq; then
    settle_port rabbitmq
    settle_port distribution
    [ ! -d "$stack_dir/rabbitmq/tls" ] || settle_port rabbitmq-tls
    rabbitmq_configure
    settle_rabbitmq_environment
    spawn rabbitmq "$stack_dir/log/rabbitmq-start.log" "${in_root[@]}" "${rabbitmq_env[@]}" "$rabbitmq_bin/rabbitmq-server"
  fi
}

# Does the broker answer AMQP's greeting with connection.start? Listening alone is not enough.
rabbitmq_answers() {
  local port frame
  port=$(recall rabbitmq.port)
  port_is_taken "$port" || return 1
  frame=$(
    exec 3<>"/dev/tcp/127.0.0.1/$port" || exit 0
    printf 'AMQP\0\0\011\001' >&3
    timeout 3 head -c 11 <&3 | od -An -v -tx1 | tr -d ' \n'
  )
  [[ $frame =~ ^010000........000a000a$ ]]
}

rabbitmq_await() {
  local log=$stack_dir/log/rabbitmq-start.log attempt deadline
  for attempt in 1 2 3 4 5; do
    deadline=$((SECONDS + timeout))
    while is_running rabbitmq; do
      if rabbitmq_answers && is_running rabbitmq; then return 0; fi
      [ "$SECONDS" -lt "$deadline" ] || die_with_log "$log" "RabbitMQ is not ready after $timeout seconds"
      sleep 0.1
    done
    # It ended. Only a port that someone else was quicker to take is worth another attempt.
    port_is_taken "$(recall rabbitmq.port)" || port_is_taken "$(recall distribution.port)" || break
    say "a port of RabbitMQ was taken meanwhile (attempt $attempt)"
    rabbitmq_launch
  done
  die_with_log "$log" "RabbitMQ does not start"
}

rabbitmq_control() {
  find_rabbitmq || die "RabbitMQ is not installed: run stack up"
  settle_rabbitmq_environment
  "${in_root[@]}" "${rabbitmq_env[@]}" "$rabbitmq_bin/rabbitmqctl" "$@"
}

rabbitmq_ask_to_stop() { ask_to_stop TERM rabbitmq; }
rabbitmq_stop() { stop_with TERM rabbitmq 40; }
epmd_stop() { stop_with TERM epmd 5; }
rabbitmq_describe() { describe rabbitmq "$(recall rabbitmq.port)"; }
rabbitmq_url() {
  echo "amqp://webhooks:$(recall rabbitmq.password)@127.0.0.1:$(recall rabbitmq.port)/%2f"
}
