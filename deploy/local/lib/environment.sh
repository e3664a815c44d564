# shellcheck shell=bash
# $STACK_DIR/env: what a shell sources to talk to the running stack.

# Sets given_database_url and given_amqp_url to the servers that the caller brings along; empty
# where this stack is to run its own. A shell that has sourced a stack's env file carries URLs
# that a stack made; LOCAL_STACK_… tells them from the caller's own.
given_urls() {
  given_database_url='' given_amqp_url=''
  [ "$1" = no ] || return 0
  given_database_url=${DATABASE_URL:-}
  given_amqp_url=${AMQP_URL:-}
  if [ "$given_database_url" = "${LOCAL_STACK_DATABASE_URL:-}" ] || [ "$given_database_url" = "$(postgres_url)" ]; then
    given_database_url=''
  fi
  if [ "$given_amqp_url" = "${LOCAL_STACK_AMQP_URL:-}" ] || [ "$given_amqp_url" = "$(rabbitmq_url)" ]; then
    given_amqp_url=''
  fi
}

export_line() {
  local quoted=${2//\'/\'\\\'\'}
  printf "export %s='%s'\n" "$1" "$quoted"
}

write_env() {
  local database=${given_database_url:-$(postgres_url)} amqp=${given_amqp_url:-$(rabbitmq_url)}
  local own_database='' own_amqp=''
  [ -n "$given_database_url" ] || own_database=$database
  [ -n "$given_amqp_url" ] || own_amqp=$amqp
  {
    echo "# Written by deploy/local/stack up. Holds passwords."
    export_line DATABASE_URL "$database"
    export_line AMQP_URL "$amqp"
    export_line LOCAL_STACK_DATABASE_URL "$own_database"
    export_line LOCAL_STACK_AMQP_URL "$own_amqp"
    export_line WEBHOOKS__DATABASE__URL "$database"
    export_line WEBHOOKS__BROKER__URL "$amqp"
    export_line WEBHOOKS__BROKER__PREFIX webhooks
    export_line WEBHOOKS__BROKER__EVENTS_EXCHANGE business.events
    export_line WEBHOOKS__API__LISTEN 127.0.0.1:8080
    export_line WEBHOOKS__SECRETS__KEYS "local-1:$(kept_secret secrets.key 32)"
    export_line WEBHOOKS__RETRY__SCHEDULE 60s,5m,15m,1h,4h,12h
    export_line WEBHOOKS__EGRESS__TIMEOUT 10s
    # Receivers on this machine are what local development delivers to.
    export_line WEBHOOKS__EGRESS__ALLOWED_NETWORKS 127.0.0.0/8,::1/128
    export_line WEBHOOKS__DISPATCHER__MAX_IN_FLIGHT 1024
    export_line WEBHOOKS__LOG__FORMAT text
    # For webhookctl listen and publish: an authority that the services trust, and a tenant to try things with.
    export_line WEBHOOKCTL_TENANT 00000000-0000-4000-8000-000000000001
    if [ -e "$stack_dir/authority/authority.pem" ]; then
      export_line WEBHOOKCTL_AUTHORITY "$stack_dir/authority"
      export_line WEBHOOKS__EGRESS__EXTRA_CA_FILE "$stack_dir/authority/authority.pem"
    fi
  } >"$stack_dir/env.new"
  chmod 600 "$stack_dir/env.new"
  mv "$stack_dir/env.new" "$stack_dir/env"
}

# After one server was started again: its port may have changed, the other's URL has not.
refresh_env() {
  [ -e "$stack_dir/env" ] || return 0
  local kept
  # shellcheck source=/dev/null
  kept=$(. "$stack_dir/env" && if [ -z "$LOCAL_STACK_DATABASE_URL" ]; then echo "$DATABASE_URL"; fi)
  given_database_url=$kept
  # shellcheck source=/dev/null
  kept=$(. "$stack_dir/env" && if [ -z "$LOCAL_STACK_AMQP_URL" ]; then echo "$AMQP_URL"; fi)
  given_amqp_url=$kept
  write_env
}
