# shellcheck shell=bash
# Where the servers' programs come from: this machine, or the root folder of another system ($STACK_ROOT).

# Sets stack_root, empty for this machine, and in_root, the command prefix that runs a program there. Their processes
# are this machine's all the same, so they are signalled and watched like any other.
settle_root() {
  stack_root=${STACK_ROOT:-$(recall root)}
  in_root=()
  [ -n "$stack_root" ] || return 0
  stack_root=$(realpath -e -- "$stack_root") || die "STACK_ROOT: there is no such folder"
  [ "$(id -u)" -eq 0 ] || die "STACK_ROOT: chroot needs root"
  # The mounts exist for these processes alone and go with them: nothing is left to unmount, or to delete through.
  in_root=(unshare --mount --propagation private "$here/lib/in-root" "$stack_root" "$stack_dir")
}

# The servers are never installed into another root, nor taken from this machine instead.
require_root_has_servers() {
  [ -n "$stack_root" ] || return 0
  find_postgres || die "STACK_ROOT: $stack_root has no PostgreSQL"
  find_rabbitmq || die "STACK_ROOT: $stack_root has no RabbitMQ"
  remember root "$stack_root"
}
